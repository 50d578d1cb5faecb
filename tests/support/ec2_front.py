"""The front of EC2, and the engine with the real provider against it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from support.aws_cloud import (
    EFA,
    ONE_CARD,
    OTHER,
    ZONE,
    Account,
    aws_candidate,
    aws_provider,
    aws_server,
    aws_session,
    aws_zones,
)
from support.front_home import Front, FrontHome
from support.simulated import PointedCalls, Points

from orch_fronts.aws.ec2 import keys
from orch_fronts.aws.ec2.visit import left
from orch_fronts.aws.server import AwsServer
from orchestrator.cloud_access import AWS_API
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.records import Records
from orchestrator.simulator.calls import Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.slices import Candidate, OnDemand, Spot

INSTANCE_TYPES = {1: ONE_CARD, 2: EFA}  # by the number of hosts
_READS = ("Describe", "Get")


class Ec2Client(Points):
    """One client for all homes that use a server one after the other: what it has read of the model, it keeps.

    A point before each request leaves, and one when its answer has come, unread. `user` passes them: the points of the
    home that uses the client now.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.user = Points()
        self._clients: list[Any] = []
        self.session = aws_session(url, hook=self._watch)

    def here(self, name: str) -> None:
        self.user.here(name)

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()

    def _watch(self, client: Any) -> None:
        self._clients.append(client)
        client.meta.events.register("before-send.*.*", self._passed("sending"))
        client.meta.events.register("response-received.*.*", self._passed("answered"))

    def _passed(self, when: str) -> Callable[..., None]:
        def passed(event_name: str, **_: Any) -> None:
            operation = event_name.rpartition(".")[2]
            self.here(f"{when} {'GET' if operation.startswith(_READS) else operation}")

        return passed


class PointedAws(PointedCalls, AwsProvider):
    """The real provider, with points."""


@dataclass
class Ec2Home(FrontHome):
    """client: an Ec2Client."""

    kind: type[PointedAws] = PointedAws
    provider_name: ClassVar[str] = "aws"
    records: ClassVar[str] = "aws"
    shows_addresses: ClassVar[bool] = False
    with_keys: ClassVar[Callable[[Look], Look]] = staticmethod(keys.with_keys)

    def opened(self, records: Records | Path, points: Points) -> PointedAws:
        self.client.user = points
        session = self.client.session
        made = self.kind(lambda _: session, records, self.clock.now, self.clock.sleep)
        made.points = points
        return made

    def hang_up(self) -> None:
        self.client.hang_up()

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        market = Spot() if spot else OnDemand()
        return aws_candidate(INSTANCE_TYPES[hosts], market, hosts=hosts, zone=OTHER if other_zone else ZONE)

    def orphan_candidate(self, name: str) -> Candidate:
        market = Spot() if name.endswith("2") else OnDemand()
        return aws_candidate(EFA, market, hosts=2, access="eip")  # an account has no more than five Elastic IPs


@dataclass(frozen=True)
class Ec2Service:
    """A server and a client that many tests or histories use; each puts its own account behind them."""

    account: Account
    server: AwsServer
    client: Ec2Client


@contextmanager
def ec2_service(**options: Any) -> Generator[Ec2Service]:
    account = Account()
    with aws_server(account, **options) as server:
        yield Ec2Service(account, server, Ec2Client(server.url))


def _left(cloud: SimulatedCloud) -> list[str]:
    """Return groups, placement groups and addresses; every VPC has a default group."""
    return [one for one in left(cloud) if not one.endswith("/default")]


EC2 = Front(
    name="EC2",
    provider_name="aws",
    variable=AWS_API,
    serve=aws_server,
    provider=aws_provider,
    to_zones=aws_zones,
    zones=(ZONE, OTHER),
    home=Ec2Home,
    connect=Ec2Client,
    left=_left,
)
