"""SSH: connections to many hosts at once, detached jobs, tree sync, small files, host keys."""
