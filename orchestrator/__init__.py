"""orch: provision accelerators, set them up, train, resume, and preview all of it first."""

__version__ = "0.1.0"
