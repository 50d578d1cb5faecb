"""Random histories of the engine on Google's TPUs: each call over a socket, and anything may go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import hypothesis.strategies as st
from engine_machine import CALLS, FAULTS, Machine
from hypothesis.stateful import initialize, rule
from support.google_cloud import OTHER, ZONE, tpu_zones
from support.simulated import Points, SimHome
from support.tpu_front import PointedGoogle, TpuHome

from orch_fronts.google.server import TpuServer
from orchestrator.simulator.faults import can_befall
from orchestrator.simulator.scenario import FaultKind
from orchestrator.slices import Candidate

QUEUE_CALLS = ("queue", "queue-get", "queue-list", "queue-delete", "operation")
TPU_FAULTS = [*FAULTS, *((call, kind) for call in QUEUE_CALLS for kind in FaultKind if can_befall(kind, call))]
ON_CREATE = [kind for kind in FaultKind if can_befall(kind, "create")]
assert not set(QUEUE_CALLS) & set(CALLS)


@dataclass
class HastyHome(TpuHome):
    """spot: queued resources, which wait for six minutes at most; else plain nodes."""

    spot: bool = False

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        del spot  # the machine asks for it always
        found = super().candidate(hosts, spot=self.spot, other_zone=other_zone)
        return replace(found, details=(*found.details, ("valid_hours", "0.1")))


class TpuMachine(Machine):
    """Each history has its server. A call that times out breaks its connection.

    A node has no token but its name (TPU API v2, projects.locations.nodes.create): what was asked for twice can come
    twice when the first one was ended in between. Then it is the sweep's. No page of Google's says that a look may lag
    behind: what orch does then is in test_google_delayed_listing.py.
    """

    tokens = False
    zones = tpu_zones(ZONE, OTHER)
    kind: ClassVar[type[PointedGoogle]] = PointedGoogle

    @initialize(
        lag=st.just(0.0),
        page=st.sampled_from([1, 50]),
        exits=st.sampled_from([0, 0, 3, 75]),
        spot=st.booleans(),
    )
    def begin(self, lag: float, page: int, exits: int, spot: bool) -> None:  # type: ignore[override]  # one more choice
        super().begin(lag, page, exits)
        self.spot = spot
        self.server = TpuServer(self.access, cut=True)
        self.server.__enter__()

    def home(self, points: Points | None = None) -> SimHome:
        return HastyHome(self.access, points or Points(), self.server.url, kind=self.kind, spot=self.spot)

    @rule(which=st.sampled_from(TPU_FAULTS), wait=st.integers(0, 3))
    def fault(self, which: tuple[str, FaultKind], wait: int) -> None:
        """But no end that hangs until it is asked again: what Google says is DELETING, the provider leaves to it."""
        if which[1] is not FaultKind.STUCK:
            super().fault(which, wait)

    @rule(kinds=st.lists(st.sampled_from(ON_CREATE), min_size=1, max_size=3), deadly=st.integers(0, 30))
    def queue_in_trouble(self, kinds: list[FaultKind], deadly: int) -> None:
        """As launch_in_trouble, for requests that wait."""
        self._do("down")
        for wait, kind in enumerate(kinds):
            self.fault(("queue", kind if can_befall(kind, "queue") else FaultKind.TIMEOUT_AFTER), wait)
        self._do("launch", deadly)
        self.no_slice_is_orphaned_and_closed_ones_are_deleted()
        self._do("launch")

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "server"):
                self.server.__exit__(None, None, None)
