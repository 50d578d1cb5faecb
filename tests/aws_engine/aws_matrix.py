"""The crash matrix over sockets: the verbs on EC2."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crash_matrix import Place
from crash_verbs import ORPHANS, VERBS
from support.aws_cloud import OTHER, ZONE, aws_server, aws_zones
from support.aws_world import AwsHome, PointedAws
from support.simulated import Points, SharedClock, durable, use_home

from orchestrator.simulator.access import Access
from orchestrator.simulator.aws.ec2.visit import left

BY_NAME = {verb.name: verb for verb in VERBS}
AWS_VERBS = tuple(BY_NAME[name] for name in ("launch", "recover", "stop", "start", "down", "reap"))


@dataclass
class AwsPlace(Place):
    """A Place whose cloud is asked over sockets. kind: of the provider."""

    access: Access | None = None
    url: str = ""
    kind: type[PointedAws] = PointedAws

    def home(self, points: Points | None = None) -> AwsHome:
        use_home(self.live)
        assert self.access is not None
        return AwsHome(self.access, points or Points(), self.url, self.kind)

    def left_beside(self) -> list[str]:
        """Groups and addresses of orphans are the sweep's business."""
        assert self.access is not None
        with self.access.open() as cloud:
            found = [one for one in left(cloud) if not one.endswith("/default")]
            return [one for one in found if not any(one.endswith(f"orch-{name}") for name in ORPHANS)]


@contextmanager
def aws_place(root: Path, kind: type[PointedAws] = PointedAws) -> Generator[AwsPlace]:
    """The server is this process's; the commands that are killed are its children."""
    clock = SharedClock()
    access = durable(root / "live", clock, zones=aws_zones(ZONE, OTHER))
    with aws_server(access) as server:
        yield AwsPlace(root, clock=clock, access=access, url=server.url, kind=kind)
