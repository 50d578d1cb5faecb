"""A pretend EC2 for the tests of the provider: its clock, its cloud, and a slice that may be made in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.aws_cloud import ZONE, aws_candidate

from orch_fronts.aws.server import AwsServer
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.aws.session import AwsSession
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.slices import Candidate, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Text

INSTALLATION = "inst-1"
FOREIGN_ZONE = "us-west-2a"
READS = ("Describe", "Get", "Assume")


@dataclass
class Ec2:
    """One account with three zones in two regions. Its time passes only when a test says so."""

    access: InMemory
    clock: ManualClock
    server: AwsServer
    state: Path
    session: AwsSession
    keys: dict[int, SliceKeys] = field(default_factory=dict[int, SliceKeys])

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    def rule(self, **changes: Any) -> None:
        """From now on the cloud's scenario is so."""
        old = self.access.cloud
        self.access.cloud = SimulatedCloud(replace(old.scenario, **changes), self.clock, old.state)

    def until(self, moment: float) -> None:
        self.clock.advance(moment - self.clock.now())

    def provider(self, state: Path | None = None) -> AwsProvider:
        """As another command would have it; only the connections are the same."""
        return AwsProvider(lambda _: self.session, (state or self.state) / "aws", self.clock.now, self.clock.sleep)

    def calls(self, region: str = ZONE[:-1]) -> Calls:
        """For the truth, past the provider."""
        return Calls(self.session, region)

    def spec(self, candidate: Candidate | None = None, token: str = "t-1", name: str = "c-1") -> SliceSpec:
        given = {"orch-installation": INSTALLATION, "orch-cluster": name.rpartition("-")[0], "orch-intent": token}
        labels = tuple((key, Text.of(value)) for key, value in given.items())
        return SliceSpec(
            cluster=given["orch-cluster"],
            name=name,
            token=Text.of(token),
            candidate=candidate or aws_candidate(),
            labels=labels,
        )

    def keys_for(self, hosts: int) -> SliceKeys:
        if hosts not in self.keys:
            private, public = zip(*(make_host_key() for _ in range(hosts)), strict=True)
            self.keys[hosts] = SliceKeys(
                user_public=make_host_key()[1],
                identity_file="/nowhere/id",
                known_hosts="/nowhere/known",
                host_private=private,
                host_public=public,
            )
        return self.keys[hosts]

    def create(self, spec: SliceSpec, provider: AwsProvider | None = None) -> None:
        (provider or self.provider()).create(spec, self.keys_for(spec.candidate.hosts))

    def settled(self, name: str = "c-1", seconds: float = 300.0) -> SliceView:
        """What a look a second tells, until nothing is under way any more."""
        provider = self.provider()
        for _ in range(int(seconds)):
            before = self.changes()
            view = provider.observe(name)
            assert self.changes() == before, "observing changes nothing"
            if view.due:
                view = provider.finish(name)
            if view.state not in (SliceState.CREATING, SliceState.ENDING, SliceState.STOPPING, SliceState.STARTING):
                return view
            self.clock.advance(1.0)
        raise AssertionError(view)

    def asked(self) -> list[str]:
        """The operations that were sent until now."""
        return [call.operation for call in self.server.requests]

    def changes(self) -> list[str]:
        return [one for one in self.asked() if not one.startswith(READS)]

    def left(self, region: str = ZONE[:-1]) -> dict[str, list[str]]:
        """All that there is in a region beyond what an empty one has."""
        calls = self.calls(region)
        alive = [one for one in calls.instances({}) if one["State"]["Name"] not in ("terminated", "shutting-down")]
        groups = calls.every("DescribeSecurityGroups", "SecurityGroups", {})
        found: dict[str, Sequence[str]] = {
            "instances": [one["InstanceId"] for one in alive],
            "groups": [one["GroupName"] for one in groups if one["GroupName"] != "default"],
            "placements": [one["GroupName"] for one in calls.every("DescribePlacementGroups", "PlacementGroups", {})],
            "addresses": [one["AllocationId"] for one in calls.every("DescribeAddresses", "Addresses", {})],
        }
        return {kind: list(names) for kind, names in found.items() if names}
