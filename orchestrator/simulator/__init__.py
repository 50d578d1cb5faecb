"""A pretend cloud that sells slices: seeded, with a clock of its own, faults as data, and a log of every call."""
