"""A rehearsal: a task on simulated machines with injected faults, and its report."""
