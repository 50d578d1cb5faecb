"""Files that people bring: what they are, and their rows."""
