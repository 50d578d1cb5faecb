"""What one command keeps in memory while it drives a cluster. All of it may be lost at any time: see observe.py."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.desired import Desired
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Trouble
from orchestrator.providers.protocol import Provider
from orchestrator.providers.registry import open_provider
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from orchestrator.engine.follow import Follower
    from orchestrator.remote.fleet import Fleet


@dataclass
class Memory:
    """Evidence that only this process has seen. Losing it costs time, never correctness.

    well_at: when the slice was last seen READY, or when this command began: deadlines do not run from before that.
    """

    trouble: Trouble | None = None
    well_at: float = field(default_factory=time.time)
    unclear_since: float | None = None
    contact_since: float | None = None
    failed_since: float | None = None
    first_failed: int | None = None
    outcomes: tuple[HostOutcome, ...] = ()


class Session:
    """One command at work on one cluster."""

    def __init__(
        self,
        store: Store,
        paths: Paths,
        narrator: Narrator,
        keeper: LeaseKeeper,
        cluster: ClusterRecord,
        desired: Desired,
        facts: Facts,
        job: JobRecord | None,
    ) -> None:
        self.store = store
        self.paths = paths
        self.narrator = narrator
        self.keeper = keeper
        self.cluster = cluster
        self.desired = desired
        self.facts = facts
        self.job = job
        self.memory = Memory()
        self.follower: Follower | None = None
        self._providers: dict[str, Provider] = {}
        self._fleet: Fleet | None = None

    def provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = open_provider(name, self.paths.state)
        return self._providers[name]

    def fleet(self, hosts: tuple[HostAddress, ...]) -> Fleet:
        """Connections to these hosts; kept as long as the hosts are the same."""
        from orchestrator.remote.fleet import Fleet
        from orchestrator.remote.keys import write_known_hosts

        if self._fleet is not None and self._fleet.hosts == hosts:
            return self._fleet
        self.drop_fleet()
        pinned = [host for host in hosts if host.host_key is not None]
        if pinned:
            write_known_hosts(pinned[0].known_hosts, pinned)
        self._fleet = Fleet(hosts)
        return self._fleet

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._fleet.hosts if self._fleet is not None else ()

    def drop_fleet(self) -> None:
        if self.follower is not None:
            self.follower.stop()
            self.follower = None
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None

    def close(self) -> None:
        self.drop_fleet()
