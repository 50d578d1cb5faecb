"""What the commands of this installation present to the hosts of a slice; see remote/fence.py."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import replace

from orchestrator.computer import read_member
from orchestrator.hosts import Fence, HostAddress
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.slices import Owned
from orchestrator.store.admission_records import SliceOwner
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord

_VERSION_ALONE = Fence(epoch=0, installation="", owner="")


def fence_hosts(
    hosts: tuple[HostAddress, ...],
    intents: Iterable[Intent],
    installation: str | None,
    find_owner: Callable[[str], SliceOwner | None],
) -> tuple[HostAddress, ...]:
    """Return the addresses with what is presented to them; people's own machines compare the version alone.

    Args:
        hosts: Of the cluster's slice.
        intents: Of the cluster.
        installation: Id of the store; None before it exists.
        find_owner: Returns the recorded owner of a slice by its token.
    """
    current = next((intent for intent in intents if intent.state not in FINAL_STATES), None)
    if current is None or installation is None:
        return hosts
    fence = _VERSION_ALONE
    if not isinstance(current.candidate.market, Owned):
        owner = find_owner(current.token)
        fence = make_fence(installation, owner.epoch if owner is not None else 1)
    return tuple(replace(host, fence=fence) for host in hosts)


def make_fence(installation: str, epoch: int) -> Fence:
    """Return what this person's commands present."""
    return Fence(epoch=epoch, installation=installation, owner=f"{read_member()}@{platform.node()}")


def fence_recorded_hosts(reader: Reader, record: ClusterRecord) -> tuple[HostAddress, ...]:
    """Return the recorded hosts of a cluster with what is presented to them."""
    return fence_hosts(record.hosts, reader.intents(record), reader.installation(), reader.slice_owner)
