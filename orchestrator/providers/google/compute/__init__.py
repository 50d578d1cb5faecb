"""TPUs by Compute Engine: v5p, v6e and TPU7x as instances and as managed instance groups with a topology."""
