"""Simulated cloud that sells slices: seeded, with its own clock, faults as data, and a log of every call."""
