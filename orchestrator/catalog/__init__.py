"""Facts about accelerators: dated data files and lookups in them. No I/O but reading those files."""
