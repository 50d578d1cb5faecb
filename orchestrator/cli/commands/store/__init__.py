"""Commands for the store as a whole: what it is, backup, restore, upgrade, import."""
