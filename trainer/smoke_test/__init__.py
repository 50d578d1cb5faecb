"""The smoke test: it proves on a host that training works there."""
