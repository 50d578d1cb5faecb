"""Commands that reach the hosts: ssh and cp."""
