"""Facts about accelerators as dated data files, and the look-ups over them. No I/O beyond reading those files."""
