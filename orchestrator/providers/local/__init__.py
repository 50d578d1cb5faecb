"""A pretend cloud on this computer: each host is a real sshd with an address, a home and a key of its own."""
