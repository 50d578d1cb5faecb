"""What is asked before a create makes anything: whether the zone offers the type, and whether the quotas allow it.

A refusal of RunInstances would say the same later, once groups and addresses were made and in each zone again. These
questions are no condition: without an answer, or without the permission for it, the create goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from orchestrator.catalog.ec2 import load_instances
from orchestrator.errors import CapacityError, QuotaError, RefusalScope
from orchestrator.providers.aws.choices import Choices
from orchestrator.providers.aws.market import reservation_of
from orchestrator.providers.aws.quotas import ADDRESSES, SERVICE, Quota, quota_of
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.aws.tags import where
from orchestrator.slices import OnDemand, Request, Spot

OFFERINGS, QUOTA = "DescribeInstanceTypeOfferings", "GetServiceQuota"


def requests(asked: Choices) -> list[Request]:
    """Return the questions about a create, each optional.

    Machines of a reservation or a Capacity Block count in no quota of vCPUs ("On-Demand Instance quotas", EC2 User
    Guide, 2026): the reservation did.
    """
    filters: dict[str, object] = {
        "LocationType": "availability-zone",
        "Filters": [where("instance-type", asked.instance_type)],
    }
    found = [request(asked.place, OFFERINGS, asked.instance_type, filters)]
    if not reservation_of(asked.market):
        found.append(_quota(asked.place, quota_of(asked.instance_type, asked.market), asked.instance_type))
    if asked.access.elastic(asked.hosts):
        found.append(_quota(asked.place, ADDRESSES, ADDRESSES.name))
    return [replace(one, optional=True) for one in found]


def judge(step: Request, answer: Mapping[str, Any], record: Record) -> None:
    """Raise CapacityError where an answer says that the create would be refused."""
    subject = step.target.partition("/")[2]
    if step.method == OFFERINGS:
        _judge_offerings(subject, answer.get("InstanceTypeOfferings", ()), record)
    elif step.body.get("QuotaCode") == ADDRESSES.code:
        needed = 1 if record.way == "eip" else record.hosts
        _judge_quota(ADDRESSES, needed, "Elastic IPs", answer, record)
    else:
        machine = load_instances().get(subject)
        needed = machine.vcpus * record.hosts if machine is not None else 0
        quota = quota_of(subject, Spot() if record.market == "spot" else OnDemand())
        _judge_quota(quota, needed or 1, "vCPUs", answer, record)


def _quota(place: Place, quota: Quota, subject: str) -> Request:
    return request(place, QUOTA, subject, {"ServiceCode": SERVICE, "QuotaCode": quota.code}, service="service-quotas")


def _judge_offerings(instance_type: str, offered: Sequence[Mapping[str, Any]], record: Record) -> None:
    """A zone that does not offer the type is passed over, and so is a region without any."""
    zones = sorted(str(one["Location"]) for one in offered)
    if not zones:
        error = CapacityError(
            f"{record.region} does not offer {instance_type}",
            "DescribeInstanceTypeOfferings lists it in no zone of the region",
            "take another region or type: orch accelerators",
        )
        error.scope = RefusalScope.MARKET
        raise error
    if record.zone and record.zone not in zones:
        raise CapacityError(
            f"{record.zone} does not offer {instance_type}",
            f"{', '.join(zones)} do" if len(zones) > 1 else f"{zones[0]} does",
            f"--infra aws/{record.region}",
        )


def _judge_quota(quota: Quota, needed: int, unit: str, answer: Mapping[str, Any], record: Record) -> None:
    """A value below what the create needs is the same in every zone of the region."""
    value = cast(Mapping[str, Any], answer.get("Quota", {})).get("Value")
    if value is None or value >= needed:
        return
    error = QuotaError(
        f"{record.region} allows {value:,.0f} of the {needed:,} {unit} that {record.name} needs",
        f"quota '{quota.name}' ({quota.code})",
        quota.more(needed, record.region, record.profile),
    )
    error.scope = RefusalScope.REGION if quota is ADDRESSES else RefusalScope.MARKET
    raise error
