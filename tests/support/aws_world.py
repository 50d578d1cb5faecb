"""The engine with the real provider of EC2: every call over a socket, to a simulated cloud that tests own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from support.aws_cloud import EFA, ONE_CARD, OTHER, ZONE, aws_candidate, aws_session
from support.simulated import PointedCalls, PointedHands, Points, SimHome, stored_records

from orch_fronts.aws.ec2.keys import with_keys
from orchestrator.hosts import HostAddress
from orchestrator.paths import load_paths
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.records import Records
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import Access
from orchestrator.simulator.reading import describe_resource
from orchestrator.simulator.state import Resource
from orchestrator.simulator.world import host_alias
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, Spot
from orchestrator.values import Text

INSTANCE_TYPES = {1: ONE_CARD, 2: EFA}  # by the number of hosts
_READS = ("Describe", "Get")


def pointed(points: Points) -> Callable[[Any], None]:
    """A hook for clients: a point before each request leaves, one when its answer has come, unread."""

    def name(event_name: str) -> str:
        operation = event_name.rpartition(".")[2]
        return "GET" if operation.startswith(_READS) else operation

    def leaves(event_name: str, **_: Any) -> None:
        points.here(f"sending {name(event_name)}")

    def came(event_name: str, **_: Any) -> None:
        points.here(f"answered {name(event_name)}")

    def hook(client: Any) -> None:
        client.meta.events.register("before-send.*.*", leaves)
        client.meta.events.register("response-received.*.*", came)

    return hook


class PointedAws(PointedCalls, AwsProvider):
    """The real provider, with points."""


class AwsHands(PointedHands):
    """Simulated hands that know a host by the key it shows, as SSH does."""

    def __init__(self, access: Access, hosts: tuple[HostAddress, ...], points: Points) -> None:
        super().__init__(access, _as_the_cloud_calls_them(access, hosts), points)
        self._given = hosts

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._given


def _as_the_cloud_calls_them(access: Access, hosts: tuple[HostAddress, ...]) -> tuple[HostAddress, ...]:
    """Where our key answers, the cloud's own address and name of that host; else an address without a server."""
    with access.open() as cloud:
        living = (one for one in cloud.host_world().living() if "ec2" in one.extra)
        known = {key: (address, name) for one in living for key, address, name in _named(one)}
    found = ((host, known.get(host.host_key, (host.internal_ip, host.alias))) for host in hosts)
    return tuple(replace(host, host=address, alias=name, jump=None) for host, (address, name) in found)


def _named(resource: Resource) -> list[tuple[str | None, str, str]]:
    keys = with_keys(describe_resource(resource)).extra["keys"]["host_public"]
    return [(keys[host.rank], host.address, host_alias(resource, host.rank)) for host in resource.hosts]


@dataclass
class AwsHome(SimHome):
    """url: of the AwsServer that serves `access`. kind: of the provider, for a sabotaged one."""

    url: str = ""
    kind: type[PointedAws] = PointedAws
    provider_name: ClassVar[str] = "aws"

    def provider(self) -> PointedAws:
        made = self._opened(stored_records("aws"))
        made.points = self.points
        return made

    def hands(self, hosts: tuple[HostAddress, ...], _pins: object) -> HostOperations:
        return AwsHands(self.access, hosts, self.points)

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        market = Spot() if spot else OnDemand()
        return aws_candidate(INSTANCE_TYPES[hosts], market, hosts=hosts, zone=OTHER if other_zone else ZONE)

    def orphan(self, name: str, installation: str) -> None:
        """Made by another orch of this installation, whose folder is lost."""
        token = Text.of(f"token-{name}")
        given = {"orch-installation": installation, "orch-cluster": "lost", "orch-intent": token.reveal()}
        labels = tuple((key, Text.of(value)) for key, value in given.items())
        market = Spot() if name.endswith("2") else OnDemand()
        candidate = aws_candidate(EFA, market, hosts=2, access="eip")  # an account has no more than five Elastic IPs
        private, public = zip(*(make_host_key() for _ in range(candidate.hosts)), strict=True)
        keys = SliceKeys(
            user_public=make_host_key()[1],
            identity_file="/nowhere",
            known_hosts="/nowhere",
            host_private=private,
            host_public=public,
        )
        self._opened(load_paths().state.parent.parent / "lost" / "aws", Points()).create(
            SliceSpec(cluster="lost", name=name, token=token, candidate=candidate, labels=labels), keys
        )

    def _opened(self, records: Records | Path, points: Points | None = None) -> PointedAws:
        hook = pointed(points or self.points)
        return self.kind(
            lambda profile: aws_session(self.url, profile, hook), records, self.clock.now, self.clock.sleep
        )
