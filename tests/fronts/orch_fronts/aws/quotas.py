"""Service Quotas: how many vCPUs of each kind an account may have, and how many Elastic IPs.

Sources: Service Quotas API reference; codes and names of the quotas of EC2 as public tools read them (November 2026).
The values of a new account are made up; Elastic IPs are 5 per region (EC2 User Guide, "Elastic IP addresses").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orch_fronts.aws.asking import ask, page
from orch_fronts.aws.calls import ACCOUNT, AwsAnswer, AwsCall, AwsRefusal
from orchestrator.catalog.ec2 import load_instances
from orchestrator.simulator.access import Access
from orchestrator.simulator.scenario import ANY, Quota, Scenario

_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A quota of EC2. families: beginnings of the instance types that it counts the vCPUs of. market: of the core."""

    code: str
    name: str
    default: float
    families: tuple[str, ...] = ()
    market: str = "on-demand"


_STANDARD = ("c", "m", "r", "t2", "t3")
QUOTAS: tuple[Known, ...] = (
    Known(code="L-0263D0A3", name="EC2-VPC Elastic IPs", default=5),
    Known(
        code="L-1216C47A",
        name="Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        default=1152,
        families=_STANDARD,
    ),
    Known(code="L-1945791B", name="Running On-Demand Inf instances", default=1152, families=("inf",)),
    Known(code="L-2C3B7624", name="Running On-Demand Trn instances", default=4096, families=("trn",)),
    Known(
        code="L-34B43A08",
        name="All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        default=1152,
        families=_STANDARD,
        market="spot",
    ),
    Known(
        code="L-3819A6DF", name="All G and VT Spot Instance Requests", default=1152, families=("g", "vt"), market="spot"
    ),
    Known(code="L-417A185B", name="Running On-Demand P instances", default=4608, families=("p",)),
    Known(code="L-6B0D517C", name="All Trn Spot Instance Requests", default=4096, families=("trn",), market="spot"),
    Known(
        code="L-7212CCBC",
        name="All P4, P3 and P2 Spot Instance Requests",
        default=4608,
        families=("p2", "p3", "p4"),
        market="spot",
    ),
    Known(code="L-B5D1601B", name="All Inf Spot Instance Requests", default=1152, families=("inf",), market="spot"),
    Known(code="L-C4BD4855", name="All P5 Spot Instance Requests", default=4608, families=("p5", "p6"), market="spot"),
    Known(code="L-DB2E81BA", name="Running On-Demand G and VT instances", default=1152, families=("g", "vt")),
)


class QuotasFront:
    """values: by code, before those of the scenario."""

    def __init__(self, scenario: Scenario, values: Mapping[str, float], access: Access | None = None) -> None:
        self._scenario = scenario
        self._values = values
        self._access = access

    def handle(self, call: AwsCall) -> AwsAnswer:
        service, code = str(call.params.get("ServiceCode", "")), str(call.params.get("QuotaCode", ""))
        ask(self._access, call, code or service)
        if service != "ec2":
            raise _missing(f"the service {service}")
        match call.operation:
            case "GetServiceQuota":
                return AwsAnswer.of_json({"Quota": self._shown(_find(code), call.region)})
            case "GetAWSDefaultServiceQuota":
                return AwsAnswer.of_json({"Quota": _plain(_find(code), call.region) | {"Value": _find(code).default}})
            case "ListServiceQuotas":
                codes, token = page([quota.code for quota in QUOTAS], call, _PAGE)
                shown = [self._shown(_find(one), call.region) for one in codes]
                return AwsAnswer.of_json({"Quotas": shown} | ({"NextToken": token} if token else {}))
            case _:
                raise AwsRefusal("UnknownOperationException", f"{call.operation} is not served")

    def _limits(self) -> Sequence[Quota]:
        """Return the limits of the scenario as it is now."""
        if self._access is None:
            return self._scenario.quotas
        with self._access.open() as cloud:
            return cloud.scenario.quotas

    def _shown(self, quota: Known, region: str) -> dict[str, Any]:
        limits = [_vcpus(one) for one in self._limits() if _counts(quota, one, region)]
        value = self._values.get(quota.code, min(limits, default=quota.default))
        return _plain(quota, region) | {"Value": float(value)}


def _counts(quota: Known, limit: Quota, region: str) -> bool:
    """Whether a limit of the scenario is one of this quota's."""
    kind = limit.accelerator == ANY or limit.accelerator.startswith(quota.families)
    return bool(quota.families) and kind and limit.market in (ANY, quota.market) and limit.region in (ANY, region)


def _vcpus(limit: Quota) -> float:
    """The scenario counts hosts or chips; of all kinds together they are taken for the largest."""
    of_kind = [one for one in load_instances().values() if limit.accelerator in (ANY, one.name)]
    vcpus = max((one.vcpus for one in of_kind), default=0)
    chips = max((one.chips_per_host for one in of_kind), default=1) if limit.unit == "chips" else 1
    return limit.amount * vcpus / max(chips, 1)


def _find(code: str) -> Known:
    found: Iterable[Known] = (quota for quota in QUOTAS if quota.code == code)
    quota = next(iter(found), None)
    if quota is None:
        raise _missing(f"the quota {code}")
    return quota


def _missing(what: str) -> AwsRefusal:
    return AwsRefusal("NoSuchResourceException", f"The request failed because {what} does not exist.")


def _plain(quota: Known, region: str) -> dict[str, Any]:
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
