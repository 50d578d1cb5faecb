"""Offers: which machines train this, by when, and at what price. Pure: no file, no process, no network."""
