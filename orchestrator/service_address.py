"""Where commands go: to the service of a team, or to the store of this computer."""

from __future__ import annotations

from collections.abc import Mapping


def find_server(environ: Mapping[str, str]) -> str:
    """Return the address of the service that commands use (ORCH_SERVER); "" for the store of this computer."""
    return environ.get("ORCH_SERVER", "").strip().rstrip("/")
