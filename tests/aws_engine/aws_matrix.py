"""The crash matrix over sockets: the verbs on EC2."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aws_line import Line, LinedHome
from crash_matrix import Place
from crash_verbs import READY, VERBS, Verb, down, launch, nothing_yet, preempted, recover, task, up
from support.aws_cloud import EFA, OTHER, REGION, ZONE, aws_candidate, aws_server, aws_zones
from support.aws_world import PointedAws
from support.simulated import Points, SharedClock, SimHome, durable, sim_launch, use_home

from orch_fronts.aws.ec2.visit import left
from orchestrator.providers.aws.calls import Calls
from orchestrator.simulator.access import Access
from orchestrator.slices import CapacityBlock

BEFORE = 30.0  # seconds until the capacity block begins

BY_NAME = {verb.name: verb for verb in VERBS}
AWS_VERBS = tuple(BY_NAME[name] for name in ("launch", "recover", "stop", "start", "down", "reap"))


def _block_bought(home: SimHome) -> None:
    """And paid for; it begins soon."""
    nothing_yet(home)
    assert isinstance(home, LinedHome)
    assert home.line is not None
    calls = Calls(home.line.session, REGION)
    wanted = {"InstanceType": EFA, "InstanceCount": 2, "CapacityDurationHours": 24}
    offered = calls.read("ec2", "DescribeCapacityBlockOfferings", wanted)["CapacityBlockOfferings"][0]
    given = {"CapacityBlockOfferingId": offered["CapacityBlockOfferingId"], "InstancePlatform": "Linux/UNIX"}
    made = calls.change("PurchaseCapacityBlock", given)["CapacityReservation"]
    _note().write_text(f"{made['CapacityReservationId']} {offered['AvailabilityZone']}")
    home.pass_time(offered["StartDate"].timestamp() - home.clock.now() - BEFORE)


def _launch_in_block(home: SimHome) -> None:
    name, zone = _note().read_text().split()
    home.drive(sim_launch(task(), aws_candidate(EFA, CapacityBlock(name), hosts=2, zone=zone)))


def _note() -> Path:
    return Path(os.environ["ORCH_HOME"]).parent / "block"


# Their requests are those of the others, in another order.
MORE_VERBS = (
    BY_NAME["resume"],
    Verb("launch spot", nothing_yet, partial(launch, spot=True), READY, 1),
    Verb("launch in a capacity block", _block_bought, _launch_in_block, READY, 1),
    Verb("recover what was no spot", partial(preempted, spot=False), partial(recover, spot=False), {"c-2": "ready"}, 2),
    Verb("down spot", partial(up, spot=True), down, {}, 1),
)


@dataclass
class AwsPlace(Place):
    """A Place whose cloud is asked over sockets. kind: of the provider."""

    access: Access | None = None
    line: Line | None = None
    kind: type[PointedAws] = PointedAws

    def home(self, points: Points | None = None) -> LinedHome:
        use_home(self.live, self.server)
        assert self.access is not None
        assert self.line is not None
        self.line.hang_up()  # in a child that was forked: these connections are its parent's
        return LinedHome(self.access, points or Points(), kind=self.kind, line=self.line)

    def left_auxiliary(self) -> list[str]:
        """Return groups and addresses."""
        assert self.access is not None
        with self.access.open() as cloud:
            return [one for one in left(cloud) if not one.endswith("/default")]


@contextmanager
def aws_place(root: Path, kind: type[PointedAws] = PointedAws, *, store: str | None = None) -> Generator[AwsPlace]:
    """The cloud's server is this process's; the commands that are killed are its children. store: Place.server."""
    clock = SharedClock()
    access = durable(root / "live", clock, zones=aws_zones(ZONE, OTHER))
    with aws_server(access) as server:
        yield AwsPlace(root, server=store, clock=clock, access=access, line=Line(server.url), kind=kind)
