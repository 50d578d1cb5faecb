"""The way to a host put into its address: through IAP, through jump hosts, or straight."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.hosts import HostAddress
from orchestrator.providers.google.access import Access, Way
from orchestrator.providers.google.iap import proxy_command
from orchestrator.providers.hosts.machines import parse_address

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")  # the order of ssh_config(5), IdentityFile


def reached(address: HostAddress, access: Access, *, name: str, instance: str, project: str, zone: str) -> HostAddress:
    """The same host with its way. name: of the slice. instance: what its worker says it is called, for IAP only.

    Raises ValueError for an instance that cannot be named, UserError for a jump host that cannot be read.
    """
    match access.way:
        case Way.IAP:
            return replace(address, host=address.internal_ip, proxy=proxy_command(instance, project, zone))
        case Way.JUMP:
            hops = [hop for hop in access.jump.split(",") if hop.strip()]
            return replace(address, host=address.internal_ip, jump=_jump(address, name, hops))
        case Way.INTERNAL:
            return replace(address, host=address.internal_ip)
        case Way.EXTERNAL:
            return address


def _jump(address: HostAddress, name: str, hops: Sequence[str]) -> HostAddress | None:
    """The last hop, reached through those before it. The jump hosts are the user's: they know the user's own key, and
    theirs is accepted once. Hosts behind the same one get the same value, and so one connection to it."""
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
