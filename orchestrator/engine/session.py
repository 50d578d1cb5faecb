"""What one command keeps in memory while it drives a cluster. All of it may be lost at any time: see observe.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.world import World
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.desired import Desired
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Trouble
from orchestrator.providers.protocol import Provider
from orchestrator.remote.hands import Hands
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from orchestrator.engine.follow import Follower


@dataclass
class Memory:
    """Evidence that only this process has seen. Losing it costs time, never correctness.

    well_at: when the slice was last seen READY, or when this command began: deadlines do not run from before that.
    """

    well_at: float
    trouble: Trouble | None = None
    unclear_since: float | None = None
    contact_since: float | None = None
    failed_since: float | None = None
    first_failed: int | None = None
    stacks_of: str = ""  # folder of the job whose stacks were collected
    outcomes: tuple[HostOutcome, ...] = ()
    ends: tuple[str, float] | None = None  # a slice, and when its provider has said to take the machines back
    told_end: str = ""  # the slice whose near end was told


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
        world: World,
    ) -> None:
        self.store = store
        self.paths = paths
        self.narrator = narrator
        self.keeper = keeper
        self.cluster = cluster
        self.desired = desired
        self.facts = facts
        self.job = job
        self.world = world
        self.memory = Memory(well_at=world.clock.now())
        self.follower: Follower | None = None
        self._providers: dict[str, Provider] = {}
        self._hands: Hands | None = None

    def provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self.world.provider(name)
        return self._providers[name]

    def now(self) -> float:
        return self.world.clock.now()

    def hands(self, hosts: tuple[HostAddress, ...]) -> Hands:
        """What reaches these hosts; kept as long as the hosts are the same."""
        if self._hands is not None and self._hands.hosts == hosts:
            return self._hands
        self.drop_hands()
        self._hands = self.world.hands(hosts)
        return self._hands

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._hands.hosts if self._hands is not None else ()

    def drop_hands(self) -> None:
        if self.follower is not None:
            self.follower.stop()
            self.follower = None
        if self._hands is not None:
            self._hands.close()
            self._hands = None

    def close(self) -> None:
        self.drop_hands()
