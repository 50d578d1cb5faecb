"""Access to a host through the user's own jump hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.hosts import HostAddress
from orchestrator.providers.hosts.machines import parse_address

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")  # the order of ssh_config(5), IdentityFile


def add_jump_hosts(address: HostAddress, hops: str, *, name: str) -> HostAddress:
    """Return the same host behind jump hosts, a comma list as `ssh -J` takes it.

    `name` is that of the slice.

    Raises:
        UserError: A jump host cannot be parsed.
    """
    return replace(address, jump=_jump(address, name, [hop for hop in hops.split(",") if hop.strip()]))


def _jump(address: HostAddress, name: str, hops: Sequence[str]) -> HostAddress | None:
    """Return the last hop, reached through those before it.

    Jump hosts belong to the user: they know the user's own key, and theirs is accepted once. Hosts behind the same jump
    host get the same value, and so share one connection to it.
    """
    if not hops:
        return None
    hop = parse_address(hops[-1])
    plain = re.sub(r"[^a-z0-9]+", "-", f"{hop.host}-{hop.port}".lower())
    return HostAddress(
        rank=0,
        alias=f"{name}-jump-{plain}",
        host=hop.host,
        port=hop.port,
        user=hop.user or address.user,
        identity_file=_own_key() or address.identity_file,
        known_hosts=address.known_hosts,
        internal_ip=hop.host,
        jump=_jump(address, name, hops[:-1]),
    )


def _own_key() -> Path | None:
    paths = (Path.home() / ".ssh" / key for key in _USUAL_KEYS)
    return next((path for path in paths if os.access(path, os.R_OK)), None)
