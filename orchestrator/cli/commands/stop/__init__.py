"""Commands that end jobs and machines: cancel, stop, start, down, reap."""
