"""SSH: connections to many hosts in parallel, detached jobs, tree sync, small files, host keys."""
