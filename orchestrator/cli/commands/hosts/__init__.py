"""Commands that reach the hosts: ssh, cp, adopt and release."""
