"""A short proof that this machine, its devices and its bucket can train: `python -m trainer smoke`, and `check`."""
