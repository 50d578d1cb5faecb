"""Simulated EC2 that sells Capacity Blocks and does nothing else: what AWS documents of the three operations.

Shapes and forms are botocore's own, by the simulated AWS's codec; the server is the simulated AWS's as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.codec import codec_of
from orch_fronts.aws.server import AwsServer
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario

DAY = 86_400.0
FIRST = float(int(time.time() // DAY) + 2) * DAY + 11.5 * 3600.0  # 11:30 UTC, in one to two days
CODEC = codec_of("ec2")


def offering(
    name: str, fee: str, *, days_later: int = 0, hours: int = 48, count: int = 4, zone: str = "a"
) -> dict[str, Any]:
    start = FIRST + days_later * DAY
    return {
        "CapacityBlockOfferingId": name, "InstanceType": "p5.48xlarge", "AvailabilityZone": f"us-east-1{zone}",
        "InstanceCount": count, "StartDate": start, "EndDate": start + hours * 3600.0,
        "CapacityBlockDurationHours": hours, "UpfrontFee": fee, "CurrencyCode": "USD",
    }  # fmt: skip


@dataclass
class BlockShop:
    """offerings: by region. refuses: regions that answer with this error code. mute: purchases act, and say nothing."""

    offerings: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    refuses: dict[str, str] = field(default_factory=dict[str, str])
    mute: bool = False
    page: int = 2
    sold: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    heard: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])

    def handle(self, call: AwsCall) -> AwsAnswer:
        given = CODEC.decode(call.operation, call.params)
        self.heard.append((call.region, call.operation, given))
        if code := self.refuses.get(call.region):
            raise AwsRefusal(code, "no", 403)
        answers = {
            "DescribeCapacityBlockOfferings": self._offer,
            "PurchaseCapacityBlock": self._sell,
            "DescribeCapacityReservations": self._list,
        }
        return AwsAnswer(status=200, body=CODEC.encode(call.operation, answers[call.operation](call.region, given)))

    def _offer(self, region: str, given: dict[str, Any]) -> dict[str, Any]:
        fitting = [
            one
            for one in self.offerings.get(region, [])
            if one["InstanceType"] == given["InstanceType"]
            and one["InstanceCount"] == given["InstanceCount"]
            and one["CapacityBlockDurationHours"] == given["CapacityDurationHours"]
            and one["StartDate"] >= given.get("StartDateRange", 0.0)
            and one["EndDate"] <= given.get("EndDateRange", float("inf"))
        ]
        at = int(given.get("NextToken", "0"))
        shown = {"CapacityBlockOfferings": fitting[at : at + self.page]}
        return shown | ({"NextToken": str(at + self.page)} if at + self.page < len(fitting) else {})

    def _sell(self, region: str, given: dict[str, Any]) -> dict[str, Any]:
        names = {one["CapacityBlockOfferingId"]: one for one in self.offerings.get(region, [])}
        if given["CapacityBlockOfferingId"] not in names:
            raise AwsRefusal("InvalidCapacityBlockOfferingId.NotFound", "it is not there")
        one = names[given["CapacityBlockOfferingId"]]
        block = {
            "CapacityReservationId": f"cr-0000000000000000{len(self.sold)}", "InstanceType": one["InstanceType"],
            "AvailabilityZone": one["AvailabilityZone"], "TotalInstanceCount": one["InstanceCount"],
            "AvailableInstanceCount": one["InstanceCount"], "State": "payment-pending", "StartDate": one["StartDate"],
            "EndDate": one["EndDate"], "ReservationType": "capacity-block",
            "InstancePlatform": given["InstancePlatform"], "Tags": given["TagSpecifications"][0]["Tags"],
        }  # fmt: skip
        self.sold.append((region, block))
        if self.mute:
            raise AwsRefusal("ServiceUnavailable", "", 503, answered=False)
        return {"CapacityReservation": block}

    def _list(self, region: str, given: dict[str, Any]) -> dict[str, Any]:
        filters = {(one["Name"].removeprefix("tag:"), *one["Values"]) for one in given.get("Filters", [])}
        held = [block for place, block in self.sold if place == region]
        shown = [one for one in held if filters <= {(tag["Key"], tag["Value"]) for tag in one["Tags"]}]
        return {"CapacityReservations": shown}


@contextmanager
def open_shop(shop: BlockShop) -> Iterator[str]:
    """Serves it; its address."""
    with AwsServer(InMemory(Scenario(), ManualClock()), fronts={"ec2": shop}, cut=True) as server:
        yield server.url
