"""The EC2 API over the simulated cloud: an operation and its parameters in, XML out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal, Need
from orch_fronts.aws.codec import codec_of
from orch_fronts.aws.ec2 import (
    addresses,
    amis,
    blocks,
    groups,
    instances,
    kinds,
    launch,
    network,
    passing,
    placement,
    spot,
    spot_prices,
    tagging,
)
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import refused
from orch_fronts.aws.permissions import ec2_needs
from orchestrator.errors import OrchError
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.calls import ApiError

_OPERATIONS: Mapping[str, Callable[[Visit], dict[str, Any]]] = {
    "AllocateAddress": addresses.allocate,
    "AssociateAddress": addresses.associate,
    "AuthorizeSecurityGroupEgress": groups.authorize,
    "AuthorizeSecurityGroupIngress": groups.authorize,
    "CancelSpotInstanceRequests": spot.cancel,
    "CreatePlacementGroup": placement.create,
    "CreateSecurityGroup": groups.create,
    "CreateTags": tagging.create,
    "DeletePlacementGroup": placement.delete,
    "DeleteSecurityGroup": groups.delete,
    "DeleteTags": tagging.delete,
    "DescribeAddresses": addresses.describe,
    "DescribeAvailabilityZones": network.describe_zones,
    "DescribeCapacityBlockOfferings": blocks.offerings,
    "DescribeCapacityReservations": blocks.describe,
    "DescribeImages": amis.describe,
    "DescribeInstanceAttribute": instances.describe_attribute,
    "DescribeInstanceStatus": instances.describe_status,
    "DescribeInstanceTypeOfferings": kinds.describe_offerings,
    "DescribeInstanceTypes": kinds.describe_types,
    "DescribeInstances": instances.describe,
    "DescribeNetworkInterfaces": instances.describe_interfaces,
    "DescribePlacementGroups": placement.describe,
    "DescribeRegions": network.describe_regions,
    "DescribeSecurityGroups": groups.describe,
    "DescribeSpotInstanceRequests": spot.describe,
    "DescribeSpotPriceHistory": spot_prices.history,
    "DescribeSubnets": network.describe_subnets,
    "DescribeTags": tagging.describe,
    "DescribeVpcs": network.describe_vpcs,
    "DisassociateAddress": addresses.disassociate,
    "PurchaseCapacityBlock": blocks.purchase,
    "ReleaseAddress": addresses.release,
    "RevokeSecurityGroupIngress": groups.revoke,
    "RunInstances": launch.run,
    "StartInstances": instances.start,
    "StopInstances": instances.stop,
    "TerminateInstances": instances.terminate,
}


class Ec2Front:
    """One service of AwsServer. `advance` processes what is due, for Pump."""

    def __init__(self, access: Access, bodies: Bodies) -> None:
        self._access = access
        self._bodies = bodies
        self._codec = codec_of("ec2")

    def needs(self, call: AwsCall) -> Sequence[Need]:
        params = self._params(call)
        with self._access.open() as cloud:
            visit = Visit(cloud=cloud, bodies=self._bodies, region=call.region, operation=call.operation, params=params)
            return ec2_needs(call.operation, params, call.region, lambda name: tagging.tags_of(visit, name))

    def handle(self, call: AwsCall) -> AwsAnswer:
        """Raises AwsRefusal."""
        params = self._params(call)
        try:
            with self._access.open() as cloud:
                passing.advance(cloud, self._bodies)
                answer = _OPERATIONS[call.operation](
                    Visit(cloud=cloud, bodies=self._bodies, region=call.region, operation=call.operation, params=params)
                )
                passing.advance(cloud, NoBodies())  # what the call made takes its addresses; hosts come with time
        except ApiError as error:
            raise refused(error) from error
        except OrchError as error:  # what stands behind the instances has failed
            raise AwsRefusal("InternalError", str(error), 500) from error
        return AwsAnswer(body=self._codec.encode(call.operation, answer))

    def advance(self) -> None:
        with self._access.open() as cloud:
            passing.advance(cloud, self._bodies)

    def _params(self, call: AwsCall) -> dict[str, Any]:
        if call.operation not in _OPERATIONS:
            words = f"The action {call.operation} is not valid for this web service."
            raise AwsRefusal("InvalidAction", words)
        return self._codec.decode(call.operation, call.params)
