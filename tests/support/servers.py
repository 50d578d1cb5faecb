"""Computers of servers, which share one store on PostgreSQL, its login and one SSH key for hosts."""

from __future__ import annotations

from pathlib import Path

from orchestrator.remote.keys import make_host_key


def make_servers_key(folder: Path) -> Path:
    """Write the key that the computers mount, as a secret that no state folder has, and return its path."""
    key = folder / "servers-key"
    private, _ = make_host_key()
    key.write_text(private)
    key.chmod(0o600)
    return key


def name_server(store: str, key: Path, person: str) -> dict[str, str]:
    """Return the variables with which a person works on a computer of a server.

    Args:
        store: The address.
        key: The file of the shared key.
        person: As the operating system calls them there.
    """
    return {"ORCH_STORE": store, "ORCH_ENGINE_KEY": str(key), "LOGNAME": person}
