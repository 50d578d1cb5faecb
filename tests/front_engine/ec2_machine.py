"""Random histories of the engine on EC2: each call over a socket, and anything may go wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import hypothesis.strategies as st
from crash_matrix import INTENT
from engine_machine import CALLS, DEEDS, FAULTS, Machine
from hypothesis.stateful import initialize, invariant, rule
from support.aws_cloud import EFA, OTHER, ZONE, aws_candidate, aws_zones
from support.ec2_front import Ec2Home, Ec2Service
from support.front_home import make_slice_keys, owned_spec
from support.simulated import Points, SimHome
from support.slice_names import slice_name

from orch_fronts.aws.ec2.visit import kept, left
from orchestrator.engine.state.recorded import open_reader
from orchestrator.simulator.faults import can_befall
from orchestrator.simulator.scenario import Deed, FaultKind
from orchestrator.slices import Candidate, OnDemand, SliceState, Spot

MAKING = ("create-security-group", "authorize-security-group-ingress", "authorize-security-group-egress",
          "create-placement-group", "allocate-address", "associate-address")  # fmt: skip
TAKING = ("release-address", "delete-security-group", "delete-placement-group", "cancel-spot-instance-requests")
READING = ("get-parameter", "describe-images", "describe-subnets", "describe-regions", "describe-addresses",
           "describe-security-groups", "describe-placement-groups", "describe-spot-instance-requests")  # fmt: skip
ALONE = (*MAKING, *TAKING, *READING)  # what EC2 has beside its instances
EC2_FAULTS = [*FAULTS, *((call, kind) for call in ALONE for kind in FaultKind if can_befall(kind, call))]
ON_CHANGE = [kind for kind in FaultKind if can_befall(kind, "allocate-address")]
assert not set(ALONE) & set(CALLS)
PIECES = ("groups", "placement", "addresses")
THEIRS = "another"  # installation


@dataclass
class HastyHome(Ec2Home):
    spot: bool = False
    way: str = ""

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        del spot  # the machine asks for it always
        market, zone = Spot() if self.spot else OnDemand(), OTHER if other_zone else ZONE
        details = {"access": self.way} | ({"instance_profile": "orch"} if self.way == "ssm" else {})
        return aws_candidate(EFA, market, hosts=hosts, zone=zone, **details)


class Ec2Machine(Machine):
    """theirs: what another installation has of a slice, whose name one of ours may come to have as well."""

    service: ClassVar[Ec2Service]  # of the test that runs now
    zones = aws_zones(ZONE, OTHER)

    @initialize(
        lag=st.sampled_from([0.0, 3.0]),
        page=st.sampled_from([1, 50]),
        exits=st.sampled_from([0, 0, 3, 75]),
        spot=st.booleans(),
        way=st.sampled_from(["", "eip", "ssm"]),
        theirs=st.sampled_from([("c", 2), ("c", 7), ("d", 1)]),
    )
    def begin(self, lag: float, page: int, exits: int, spot: bool, way: str, theirs: tuple[str, int]) -> None:  # type: ignore[override]  # more choices
        super().begin(lag, page, exits)
        self.spot, self.way = spot, way
        self.service.account.current = self.access
        self._seed(slice_name(*theirs))
        self.log.append(f"lag {lag}, page {page}, exits {exits}, spot {spot}, way {way!r}, theirs {theirs}")

    def home(self, points: Points | None = None) -> SimHome:
        return HastyHome(self.access, points or Points(), client=self.service.client, spot=self.spot, way=self.way)

    @rule(which=st.sampled_from(EC2_FAULTS), wait=st.integers(0, 3))
    def fault(self, which: tuple[str, FaultKind], wait: int) -> None:
        super().fault(which, wait)

    @rule(
        troubles=st.lists(st.tuples(st.sampled_from(MAKING), st.sampled_from(ON_CHANGE)), min_size=1, max_size=3),
        deadly=st.integers(0, 60),
    )
    def making_in_trouble(self, troubles: list[tuple[str, FaultKind]], deadly: int) -> None:
        """As launch_in_trouble, for what comes before the machines and after them."""
        self._do("down")
        for which in troubles:
            self.fault(which, 0)
        self._do("launch", deadly)
        self.no_slice_is_orphaned_and_closed_ones_are_deleted()
        self._do("launch")

    @rule(
        troubles=st.lists(st.tuples(st.sampled_from(TAKING), st.sampled_from(ON_CHANGE)), min_size=1, max_size=3),
        deadly=st.integers(0, 60),
    )
    def taking_in_trouble(self, troubles: list[tuple[str, FaultKind]], deadly: int) -> None:
        for which in troubles:
            self.fault(which, 0)
        self._do("down", deadly)

    @rule(deed=st.sampled_from(DEEDS), rank=st.integers(0, 1), deadly=st.integers(60, 130))
    def happens_under_way(self, deed: Deed, rank: int, deadly: int) -> None:
        """To a slice whose command was cut off while its job ran, or was about to."""
        self._do("launch", deadly)
        self.happens(deed, rank)
        self._do("go_on")

    @invariant()
    def others_are_not_touched(self) -> None:
        cloud = self._cloud()
        assert cloud.trespasses() == (), self.log
        assert sum(one.foreign for one in cloud.host_world().living()) == 3, self.log
        assert self._pieces(mine=False) == self.theirs, (self._pieces(mine=False), self.theirs, self.log)

    @invariant()
    def no_auxiliary_resource_outlives_its_slice(self) -> None:
        """Once the cluster is off the record. What belongs to a create that came late is the sweep's business."""
        with open_reader() as reader:
            if reader.cluster("c") is not None:
                return
        late = {one.labels.get(INTENT) for one in self._cloud().host_world().living()}
        beside = [name for name, one in self._pieces(mine=True).items() if one["tags"].get(INTENT) not in late]
        assert beside == [], (beside, self.log)

    def _end_well(self) -> None:
        super()._end_well()
        assert self._pieces(mine=True) == {}, (left(self._cloud()), self.log)
        assert self.service.server.errors == [], self.service.server.errors

    def _pieces(self, *, mine: bool) -> dict[str, Mapping[str, Any]]:
        """What EC2 keeps beside instances, by kind and id: of ours, or of all the others."""
        every = {f"{kind} {name}": one for kind in PIECES for name, one in kept(self._cloud(), kind).items()}
        return {name: one for name, one in every.items() if (one["tags"].get("orch-installation") != THEIRS) is mine}

    def _seed(self, name: str) -> None:
        """A slice of another installation, made as ours are made."""
        candidate = aws_candidate(EFA, hosts=2, access="eip")
        home = HastyHome(self.access, client=self.service.client)
        provider = home.opened(self.root / "theirs", Points())
        spec = owned_spec(name, "theirs", candidate, cluster="c", installation=THEIRS)
        provider.create(spec, make_slice_keys(candidate.hosts))
        while provider.finish(name).state is not SliceState.READY:
            self.clock.sleep(1.0)
        cloud = self._cloud()
        for one in cloud.host_world().living():
            one.foreign = True
        cloud.state.calls.clear()
        self.theirs = deepcopy(self._pieces(mine=False))
