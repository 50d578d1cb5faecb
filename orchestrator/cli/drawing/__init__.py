"""Text for terminals: tables, live lines, progress, the closing words of a command."""
