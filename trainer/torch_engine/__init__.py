"""The torch engine: a plain model, divided from outside over a mesh of devices. See engine.py."""
