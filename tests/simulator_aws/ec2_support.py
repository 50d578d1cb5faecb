"""The EC2 API of a simulated cloud on the loopback, and boto3 for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from orch_fronts.aws.images import by_parameter
from orch_fronts.aws.server import AwsServer
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Durations, Scenario, Zone

REGION, OTHER_REGION = "us-east-1", "us-west-2"
ZONE, OTHER, FAR = "us-east-1a", "us-east-1b", "us-west-2a"
ZONES = (Zone(ZONE, REGION), Zone(OTHER, REGION), Zone(FAR, OTHER_REGION))
EVEN = Durations(jitter=0.0)  # create 40 s, end 20 s, stop 20 s, start 30 s
IMAGE = next(name for name in by_parameter() if "base-oss-nvidia-driver-gpu-ubuntu-24.04" in name)
AMI = by_parameter()[IMAGE].ami(REGION)
P4D, P5 = "p4d.24xlarge", "p5.48xlarge"
MIDNIGHT = 1_800_057_600.0  # 2027-01-16 00:00 UTC


@dataclass
class Ec2:
    """A server, its cloud and clients. The clock stands still until a test moves it."""

    server: AwsServer
    access: InMemory
    clock: ManualClock
    clients: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    @property
    def api(self) -> Any:
        return self.at(REGION)

    def at(self, region: str) -> Any:
        if region not in self.clients:
            self.clients[region] = client(self.server.url, region)
        return self.clients[region]

    def run(self, count: int = 1, region: str = REGION, **more: Any) -> list[dict[str, Any]]:
        """The instances as RunInstances answers them."""
        given = {"ImageId": AMI, "InstanceType": P4D, "MinCount": count, "MaxCount": count} | more
        if "Placement" not in given and "NetworkInterfaces" not in given and "SubnetId" not in given:
            given["Placement"] = {"AvailabilityZone": ZONE}
        return list(self.at(region).run_instances(**given)["Instances"])

    def running(self, count: int = 1, **more: Any) -> list[dict[str, Any]]:
        ids = [one["InstanceId"] for one in self.run(count, **more)]
        self.clock.advance(41)
        return self.look(*ids)

    def look(self, *ids: str) -> list[dict[str, Any]]:
        answer = self.api.describe_instances(InstanceIds=list(ids)) if ids else self.api.describe_instances()
        return [one for reservation in answer["Reservations"] for one in reservation["Instances"]]

    def states(self, *ids: str) -> list[str]:
        return [one["State"]["Name"] for one in self.look(*ids)]

    def terminate(self, *ids: str) -> None:
        self.api.terminate_instances(InstanceIds=list(ids))

    def subnet(self, zone: str = ZONE) -> str:
        found = self.api.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [zone]}])["Subnets"]
        return str(found[0]["SubnetId"])


Make = Callable[..., Ec2]


def client(url: str, region: str = REGION, service: str = "ec2") -> Any:
    """One try for each call: what is answered is seen."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=10)
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=region,
        aws_access_key_id="AKIATEST",
        aws_secret_access_key="secret",
        config=config,
    )


def refusal(call: Callable[..., Any], **params: Any) -> tuple[str, int]:
    """Code and HTTP status of what must be refused."""
    with pytest.raises(ClientError) as caught:
        call(**params)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def words_of(call: Callable[..., Any], **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    return str(caught.value.response["Error"]["Message"])


def efa(cards: int, card0: bool = True, kind: str = "efa-only", **more: Any) -> list[dict[str, Any]]:
    """A plain interface on card 0, and an EFA on each card that may have one."""
    found = [{"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", **more}]
    found += [{"NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": kind, **more}] if card0 else []
    return found + [
        {"NetworkCardIndex": card, "DeviceIndex": 0, "InterfaceType": kind, **more} for card in range(1, cards)
    ]


def tags(kind: str, **pairs: str) -> list[dict[str, Any]]:
    pairs_of = [{"Key": key.replace("_", "-"), "Value": value} for key, value in pairs.items()]
    return [{"ResourceType": kind, "Tags": pairs_of}]


def scenario(**more: Any) -> Scenario:
    return Scenario(**({"zones": ZONES, "durations": EVEN} | more))
