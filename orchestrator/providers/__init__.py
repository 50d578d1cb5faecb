"""Clouds, one folder each. Nothing outside a provider's folder imports its SDK; see protocol.py, registry.py."""
