"""Which quota holds back a launch, and the command that asks for more of it. Pure.

Names and codes: Service Quotas console and "Amazon EC2 service quotas" (docs.aws.amazon.com, November 2026). Quotas of
instances count vCPUs, and those of P and Trn instances are 0 in most new accounts. Machines of a capacity block, or of
a reservation, count nowhere else: what they lack is told by another error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog.ec2 import load_instances
from orchestrator.slices import Market, Spot

SERVICE = "ec2"
_LIMIT = re.compile(r"current vCPU limit of (\d+)")  # answer ec2-vcpu-1247 of the corpus, June 2023


@dataclass(frozen=True, slots=True)
class Quota:
    name: str
    code: str

    def more(self, wanted: int, region: str, profile: str = "") -> str:
        """The command line that asks for so many in all."""
        given = f" --profile {profile}" if profile else ""
        return (
            f"aws service-quotas request-service-quota-increase --service-code {SERVICE} --quota-code {self.code}"
            f" --desired-value {wanted} --region {region}{given}"
        )


ADDRESSES = Quota("EC2-VPC Elastic IPs", "L-0263D0A3")
_ON_DEMAND: Mapping[str, Quota] = {
    "p": Quota("Running On-Demand P instances", "L-417A185B"),
    "trn": Quota("Running On-Demand Trn instances", "L-2C3B7624"),
    "inf": Quota("Running On-Demand Inf instances", "L-1945791B"),
    "g": Quota("Running On-Demand G and VT instances", "L-DB2E81BA"),
}
_SPOT: Mapping[str, Quota] = {
    "p": Quota("All P5 Spot Instance Requests", "L-C4BD4855"),
    "p2": Quota("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    "p3": Quota("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    "p4": Quota("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    "trn": Quota("All Trn Spot Instance Requests", "L-6B0D517C"),
    "inf": Quota("All Inf Spot Instance Requests", "L-B5D1601B"),
    "g": Quota("All G and VT Spot Instance Requests", "L-3819A6DF"),
}
_STANDARD = Quota("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A")
_STANDARD_SPOT = Quota("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "L-34B43A08")


def quota_of(instance_type: str, market: Market) -> Quota:
    """Of the vCPUs of running instances of this type."""
    family = re.match(r"([a-z]+?)(\d)", f"{instance_type}0")
    letters, digit = (family[1], family[2]) if family else ("", "")
    table, rest = (_SPOT, _STANDARD_SPOT) if isinstance(market, Spot) else (_ON_DEMAND, _STANDARD)
    letters = "g" if letters in ("g", "gr", "vt") else letters
    return table.get(letters + digit) or table.get(letters) or rest


def advice(
    code: str, instance_type: str, hosts: int, market: Market, region: str, profile: str = "", words: str = ""
) -> str:
    """What to do after this error code: the quota by its name, and the command that asks for enough of it.

    Other machines may use all of the limit that the answer names, so this launch needs its vCPUs on top of it.
    """
    if code == "AddressLimitExceeded":
        return f"{ADDRESSES.name}: 5 are usual. {ADDRESSES.more(max(10, hosts), region, profile)}"
    if code not in ("VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"):
        return ""
    quota, machine = quota_of(instance_type, market), load_instances().get(instance_type)
    vcpus = machine.vcpus * hosts if machine is not None else 0
    needs = f"{quota.name}: {vcpus} vCPUs are needed for this alone" if vcpus else quota.name
    limit = _LIMIT.search(words)
    present = int(limit[1]) if limit is not None else 0
    return f"{needs}\n{quota.more(present + (vcpus or 1000), region, profile)}"
