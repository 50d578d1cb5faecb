"""What a slice has beside its instances: found by its tags, and taken away when the instances are gone.

Nothing of it has a token but its tag, so that two may be there after an answer was lost: all that carry it are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.providers.aws.calls import Calls, Filters, Thing
from orchestrator.providers.aws.tags import INTENT, SLICE
from orchestrator.providers.core.faults import Kind, Refused

_WANTED = ("open", "active")  # states of a spot request that may still get machines, or holds some


@dataclass(frozen=True, slots=True)
class AuxiliaryResources:
    """Of one slice. token: "" for any of this name. Every method may raise Refused."""

    calls: Calls
    name: str
    token: str

    def addresses(self) -> list[Thing]:
        return self.calls.every("DescribeAddresses", "Addresses", self.mine)

    def spot_requests(self) -> list[Thing]:
        wanted = {**self.mine, "state": _WANTED}
        return self.calls.every("DescribeSpotInstanceRequests", "SpotInstanceRequests", wanted)

    def groups(self) -> list[Thing]:
        return self.calls.every("DescribeSecurityGroups", "SecurityGroups", self.mine)

    def placements(self) -> list[Thing]:
        found = self.calls.every("DescribePlacementGroups", "PlacementGroups", self.mine)
        return [one for one in found if one.get("State") != "deleted"]

    def left(self) -> list[str]:
        """What there is, by name."""
        found = [f"Elastic IP {one['AllocationId']}" for one in self.addresses()]
        found += [f"spot request {one['SpotInstanceRequestId']}" for one in self.spot_requests()]
        found += [f"security group {one['GroupName']}" for one in self.groups()]
        return [*found, *(f"placement group {one['GroupName']}" for one in self.placements())]

    def remove(self) -> list[str]:
        """Take all of it away; what is still in use, or on its way out, by name."""
        left = [
            f"Elastic IP {one['AllocationId']}"
            for one in self.addresses()
            if not self._gone("ReleaseAddress", AllocationId=one["AllocationId"])
        ]
        for one in self.spot_requests():
            self._gone("CancelSpotInstanceRequests", SpotInstanceRequestIds=[one["SpotInstanceRequestId"]])
        left += [
            f"security group {one['GroupName']}"
            for one in self.groups()
            if not self._gone("DeleteSecurityGroup", GroupId=one["GroupId"])
        ]
        left += [
            f"placement group {one['GroupName']}"
            for one in self.placements()
            if one.get("State") == "deleting" or not self._gone("DeletePlacementGroup", GroupName=one["GroupName"])
        ]
        return left

    @property
    def mine(self) -> Filters:
        """Filters of every Describe operation."""
        found = {f"tag:{SLICE}": [self.name]}
        return found | {f"tag:{INTENT}": [self.token]} if self.token else found

    def _gone(self, operation: str, **params: object) -> bool:
        """False for what is in use."""
        try:
            self.calls.change(operation, params)
        except Refused as refused:
            if refused.answer.kind in (Kind.IN_USE, Kind.WRONG_STATE):
                return False
            if refused.answer.kind is not Kind.NOT_FOUND:
                raise
        return True
