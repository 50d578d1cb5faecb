"""The torch engine: a plain model, sharded from outside over a mesh of devices; see engine.py."""
