"""What the engine needs from outside this process, except its store and its own files.

The engine runs unchanged against real clouds, against the simulator, and in a rehearsal, which has real hosts in a
simulated cloud.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.clock import Clock, SteadyClock
from orchestrator.cloud_access import CloudAccess, read_cloud_access
from orchestrator.hosts import HostAddress
from orchestrator.open_files import raise_open_files_limit
from orchestrator.paths import Paths
from orchestrator.plan.observed import HostView
from orchestrator.providers.protocol import Provider
from orchestrator.providers.registry import open_provider
from orchestrator.remote.host_operations import HostOperations, SshAccess
from orchestrator.store.location import store_location
from orchestrator.store.provider_records import StoredRecords

if TYPE_CHECKING:  # loads the SSH library
    from orchestrator.remote.trust import HostPins

IDENTITY = "ORCH_IDENTITY"  # path of a private key, as with --identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The external services of one command.

    Attributes:
        provider: Returns the provider of a name; opened once, it keeps its connections and what it has seen.
        host_operations: Opens the operations on one set of hosts; the pins are those of people's own machines.
        clock: Gives the time and sleeps.
        follows_logs: Whether a thread beside the loop follows logs. With simulated time only the loop advances time.
        access: How the services of the clouds are reached, read once.
        report_hosts: Receives each observation of a cluster's hosts, with the cluster's uid; it returns immediately.
        wants_chips: Whether someone looks at the chips of a cluster, given its uid; it returns immediately.
        identity: The key with which hosts are entered that orch made, instead of this computer's; None for its own.
        reopen_providers: Makes `provider` read the credentials of this computer again, after a login.
    """

    provider: Callable[[str], Provider]
    host_operations: Callable[[tuple[HostAddress, ...], HostPins], HostOperations]
    clock: Clock
    follows_logs: bool = True
    access: CloudAccess = field(default_factory=lambda: read_cloud_access(os.environ))
    report_hosts: Callable[[str, tuple[HostView, ...]], None] = lambda _cluster, _hosts: None
    wants_chips: Callable[[str], bool] = lambda _cluster: False
    identity: Path | None = None
    reopen_providers: Callable[[], None] = lambda: None


def real_services(where: Paths, identity: str = "") -> Services:
    """Return the services of real clouds and real hosts; providers keep their records in the store.

    The limit of open files is raised: hosts and clouds need more than the usual one.

    Args:
        where: The folders of this installation.
        identity: Path of the private key for hosts that orch made, such as a recovery key; "" for that of ORCH_IDENTITY
            or of this computer.
    """
    raise_open_files_limit()
    given = identity or os.environ.get(IDENTITY, "")
    clock = SteadyClock(where.state)
    records = StoredRecords(lambda: store_location(os.environ, where))

    @cache
    def provider(name: str) -> Provider:
        return open_provider(name, where.state, clock, records)

    key = Path(given).expanduser().absolute() if given else None
    return Services(
        provider=provider,
        host_operations=SshAccess(key),
        clock=clock,
        identity=key,
        reopen_providers=provider.cache_clear,
    )
