"""Whether this computer has a key for hosts that orch made. Light: commands ask it before they connect."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import AccessError
from orchestrator.hosts import HostAddress


def require_login_key(cluster: str, hosts: Iterable[HostAddress]) -> None:
    """Raise AccessError when this computer has no key for hosts that orch made: it has not joined the team yet."""
    missing = next((host for host in hosts if host.own is None and not host.identity_file.exists()), None)
    if missing is not None:
        raise AccessError(
            f"this computer cannot log in to the hosts of '{cluster}' yet",
            f"it has no key: {missing.identity_file} is made by its first command that changes something",
            f"orch exec {cluster} -- true   makes it, and waits until the hosts admit it",
        )
