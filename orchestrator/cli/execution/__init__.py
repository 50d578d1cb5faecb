"""Carry out a prepared change: preview it, or ask and perform it."""
