"""The commands, in packages by the sections of `orch --help`; each module loads only when its command is called."""
