"""The pure half of the provider "aws": its requests, each with its command line, and what it knows of its hosts.

A slice is what one RunInstances makes: all of its machines in one subnet, ranks by launch index. Everything that it
consists of carries its tags from the request that makes it (tags.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.errors import AccessError
from orchestrator.providers import protocol
from orchestrator.providers.aws import body, choices, groups, images, market, prechecks
from orchestrator.providers.aws.choices import Choices
from orchestrator.providers.aws.endpoint import ENDPOINT, loopback_endpoint
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.aws.tags import INTENT, SLICE, by_tag, specification, where
from orchestrator.providers.aws.unknowns import INSTANCES, SPOT_REQUESTS, SUBNET, VPC, allocation, first_interface
from orchestrator.providers.loopback import loopback_facts
from orchestrator.render.templates import render_template
from orchestrator.slices import Candidate, HostFacts, Market, Request, SliceSpec, Spot
from orchestrator.values import Text

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SCRATCH = "/opt/dlami/nvme"  # where AWS's images mount the local NVMe (Deep Learning AMI guide, 2026)
EFA_COUNT = "ORCH_EFA_COUNT"  # EFA interfaces of each host, for what checks them there
NETWORK_GBPS, NETWORK_EXPECTED = "ORCH_NETWORK_GBPS", "ORCH_NETWORK_EXPECTED"  # of trainer/commands/network.py
LIVING = ("pending", "running", "stopping", "stopped")  # states of an instance that TerminateInstances is needed for
_FIRST_INTERFACE = (
    "Reservations[].Instances[] | [?AmiLaunchIndex==`{}`].NetworkInterfaces[]"
    " | [?Attachment.NetworkCardIndex==`0` && Attachment.DeviceIndex==`0`].NetworkInterfaceId | [0]"
)
_IDS = "to_string(Reservations[].Instances[].InstanceId)"
# What programs on the hosts need to reach the same simulated AWS. No AWS_REGION: real machines have none either.
_LED = (ENDPOINT, f"{ENDPOINT}_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_REAL_KEY = re.compile(r"A[A-Z0-9]{3}[A-Z0-9]{12,124}")  # of IAM: AKIA…, ASIA… (IAM User Guide, "Unique identifiers")


class AwsPlanner:
    """Sends nothing and loads no SDK. Every method raises UserError for what EC2 cannot give."""

    name = "aws"

    def list_places(self, task: Task, choice: Resources, market: Market) -> list[protocol.Place]:
        from orchestrator.providers.aws import candidates

        return candidates.list_places(task, choice, market)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: protocol.Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        from orchestrator.providers.aws import candidates

        return candidates.list_details(task, choice, place)

    def list_notes(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """See protocol.AddsNotes."""
        from orchestrator.providers.aws.candidates import list_notes

        return list_notes(task, candidates)

    def preflight_error(self, task: Task, facts: HostFacts) -> AccessError | None:
        """See protocol.ChecksTasks."""
        from orchestrator.providers.aws.candidates import missing_credentials_error

        return missing_credentials_error(task, facts)

    def create_request(self, spec: SliceSpec) -> Request:
        """RunInstances, with what must be known and made before it, and what gives the head its address."""
        asked = choices.read(spec.candidate)
        place = asked.place
        before = [*prechecks.requests(asked), *images.requests(place, asked.image), _subnet(asked)]
        if not asked.security_group:
            before += groups.security_requests(place, spec, asked.access)
        if asked.makes_placement_group:
            before.append(groups.placement_request(place, spec))
        after: tuple[Request, ...] = ()
        if elastic := asked.access.elastic(asked.hosts):
            before += [_address(place, spec, rank) for rank in range(elastic)]
            after = _associate(place, spec, elastic)
        main = request(place, "RunInstances", spec.name, body.run_instances(spec, asked), why=asked.why)
        return replace(main, before=tuple(before), after=after)

    def end_request(self, name: str, candidate: Candidate) -> Request:
        """TerminateInstances, and afterwards the cleaning of what was made beside the instances."""
        asked = choices.read(candidate)
        main = _on_instances(asked.place, "TerminateInstances", name, LIVING)
        after: list[Request] = []
        if elastic := asked.access.elastic(asked.hosts):
            after += _release(asked.place, name, elastic)
        if isinstance(asked.market, Spot):
            after.append(_cancel(asked.place, name))
        if not asked.security_group:
            after.append(groups.security_end(asked.place, name))
        if asked.makes_placement_group:
            after.append(groups.placement_end(asked.place, name))
        return replace(main, after=tuple(after))

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "StopInstances", candidate, ("pending", "running"))

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "StartInstances", candidate, ("stopped",))

    def needs_admission(self, candidate: Candidate) -> bool:
        """See protocol.PlansAdmission."""
        asked = choices.read(candidate)
        return asked.access.admits_caller and not asked.security_group

    def host_facts(self, candidate: Candidate) -> HostFacts:
        asked = choices.read(candidate)
        if loopback_endpoint():  # the hosts stand on this computer, and their buckets do
            return loopback_facts(candidate, _pretended(), end_verb="off", stop_verb="off" if asked.keeps_disk else "")
        return HostFacts(
            env=_network_facts(asked),
            scratch=SCRATCH if asked.local_nvme else "",
            end_command=render_template("aws/end.sh.j2"),
            stop_command=render_template("aws/end.sh.j2") if asked.keeps_disk else "",
            backend=asked.image.backend,
            image_python=asked.image.python,
        )


def _network_facts(asked: Choices) -> tuple[tuple[str, str], ...]:
    """Return what the checks on hosts with EFA expect of the network."""
    if not asked.efa or asked.instance is None:
        return ()
    found = {EFA_COUNT: f"{len(asked.efa)}", NETWORK_GBPS: f"{asked.instance.network_gbps:g}"}
    if asked.instance.all_reduce_gbs:
        found[NETWORK_EXPECTED] = f"{asked.instance.all_reduce_gbs:g}"
    return tuple(found.items())


def _subnet(asked: Choices) -> Request:
    """The one that was named, else the default one of the zone."""
    vpc = (VPC, "Subnets[0].VpcId")
    if asked.subnet:
        return request(asked.place, "DescribeSubnets", asked.subnet, {"SubnetIds": [asked.subnet]}, gives=(vpc,))
    usual: dict[str, object] = {"Filters": [where("default-for-az", "true"), where("availability-zone", asked.zone)]}
    return request(asked.place, "DescribeSubnets", asked.zone, usual, gives=((SUBNET, "Subnets[0].SubnetId"), vpc))


def _address(place: Place, spec: SliceSpec, rank: int) -> Request:
    """It has no token: its tags say whose it is. Which host gets it is seen when the hosts run."""
    made: dict[str, object] = {"Domain": "vpc", "TagSpecifications": specification(spec, "elastic-ip")}
    return request(place, "AllocateAddress", spec.name, made, gives=((allocation(rank), "AllocationId"),))


def _associate(place: Place, spec: SliceSpec, count: int) -> tuple[Request, ...]:
    """By interface: EC2 takes an instance only where that has a single one."""
    mine: dict[str, object] = {"Filters": [by_tag(INTENT, spec.token), where("instance-state-name", "running")]}
    gives = tuple((first_interface(rank), _FIRST_INTERFACE.format(rank)) for rank in range(count))
    look = request(place, "DescribeInstances", spec.name, mine, gives=gives, why="when they are running")
    return (look, *(_led(place, spec, rank) for rank in range(count)))


def _led(place: Place, spec: SliceSpec, rank: int) -> Request:
    asked: dict[str, object] = {
        "AllocationId": Text.of(allocation(rank)),
        "NetworkInterfaceId": Text.of(first_interface(rank)),
        "AllowReassociation": False,
    }
    return request(place, "AssociateAddress", spec.name, asked)


def _on_instances(place: Place, operation: str, name: str, states: tuple[str, ...]) -> Request:
    mine: dict[str, object] = {"Filters": [by_tag(SLICE, name), where("instance-state-name", *states)]}
    look = request(place, "DescribeInstances", name, mine, gives=((INSTANCES, _IDS),))
    main = request(place, operation, name, {"InstanceIds": Text.of(INSTANCES)})
    return replace(main, before=(look,))


def _release(place: Place, name: str, count: int) -> list[Request]:
    mine: dict[str, object] = {"Filters": [by_tag(SLICE, name)]}
    gives = tuple((allocation(rank), f"Addresses[{rank}].AllocationId") for rank in range(count))
    look = request(place, "DescribeAddresses", name, mine, gives=gives)
    asked: list[dict[str, object]] = [{"AllocationId": Text.of(allocation(rank))} for rank in range(count)]
    ended = [request(place, "ReleaseAddress", name, one, why="when its machine has ended") for one in asked]
    return [replace(ended[0], before=(look,)), *ended[1:]]


def _cancel(place: Place, name: str) -> Request:
    ids = "to_string(SpotInstanceRequests[].SpotInstanceRequestId)"
    mine: dict[str, object] = {"Filters": [by_tag(SLICE, name)]}
    look = request(place, "DescribeSpotInstanceRequests", name, mine, gives=((SPOT_REQUESTS, ids),))
    asked: dict[str, object] = {"SpotInstanceRequestIds": Text.of(SPOT_REQUESTS)}
    return replace(request(place, "CancelSpotInstanceRequests", name, asked), before=(look,))


def _power(name: str, operation: str, candidate: Candidate, states: tuple[str, ...]) -> Request:
    asked = choices.read(candidate)
    refusal = market.stop_refusal(asked.instance_type, asked.market)
    if refusal is not None:
        raise refusal
    return _on_instances(asked.place, operation, name, states)


def _pretended() -> tuple[str, ...]:
    """Variables that lead hosts to the same pretend AWS.

    A key that could be a real one stays here: the environment of hosts is shown in plans.
    """
    real = _REAL_KEY.fullmatch(os.environ.get("AWS_ACCESS_KEY_ID", "")) is not None
    return tuple(name for name in _LED if not (real and "KEY" in name))


PLANNER = AwsPlanner()
