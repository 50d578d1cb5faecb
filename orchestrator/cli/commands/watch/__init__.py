"""Commands that show clusters, jobs and their output: status, queue, logs, events, profile."""
