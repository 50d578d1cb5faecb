"""Commands to use before spending money: check, rehearse, simulate, accelerators, blocks."""
