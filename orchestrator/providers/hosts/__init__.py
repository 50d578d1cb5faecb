"""The user's own machines: nothing is created, nothing is ended, we only write down who uses them."""
