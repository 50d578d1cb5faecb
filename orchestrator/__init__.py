"""orch: provision accelerators, set them up, train, resume, and preview all of it first."""

__version__ = "0.2.0"
