"""Service Quotas: how many vCPUs of each kind an account may have, and how many Elastic IPs.

Sources: Service Quotas API reference; data/quotas.toml. With `new_account` in the scenario the values are those of a
new account, and RunInstances refuses what is above them (ec2/launch.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws.asking import ask, page
from orch_fronts.aws.calls import ACCOUNT, AwsAnswer, AwsCall, AwsRefusal
from orch_fronts.aws.tables import Quota, instance_types, quotas
from orchestrator.simulator.access import Access
from orchestrator.simulator.scenario import ANY, Scenario
from orchestrator.simulator.scenario import Quota as Limit

_PAGE = 100


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
                codes, token = page(sorted(quotas()), call, _PAGE)
                shown = [self._shown(_find(one), call.region) for one in codes]
                return AwsAnswer.of_json({"Quotas": shown} | ({"NextToken": token} if token else {}))
            case _:
                raise AwsRefusal("UnknownOperationException", f"{call.operation} is not served")

    def _limits(self) -> Sequence[Limit]:
        """Return the limits of the scenario as it is now."""
        if self._access is None:
            return self._scenario.quotas
        with self._access.open() as cloud:
            return cloud.scenario.quotas

    def _shown(self, quota: Quota, region: str) -> dict[str, Any]:
        limits = [_vcpus(one) for one in self._limits() if _counts(quota, one, region)]
        value = self._values.get(
            quota.code, min(limits, default=quota.default if self._scenario.new_account else quota.granted)
        )
        return _plain(quota, region) | {"Value": float(value)}


def _counts(quota: Quota, limit: Limit, region: str) -> bool:
    """Whether a limit of the scenario is one of this quota's."""
    kind = limit.accelerator == ANY or limit.accelerator.startswith(quota.families)
    return bool(quota.families) and kind and limit.market in (ANY, quota.market) and limit.region in (ANY, region)


def _vcpus(limit: Limit) -> float:
    """The scenario counts hosts or chips; of all kinds together they are taken for the largest."""
    of_kind = [one for one in instance_types().values() if limit.accelerator in (ANY, one.name)]
    vcpus = max((one.vcpus for one in of_kind), default=0)
    chips = max((one.device.count if one.device else 1 for one in of_kind), default=1) if limit.unit == "chips" else 1
    return limit.amount * vcpus / max(chips, 1)


def _find(code: str) -> Quota:
    quota = quotas().get(code)
    if quota is None:
        raise _missing(f"the quota {code}")
    return quota


def _missing(what: str) -> AwsRefusal:
    return AwsRefusal("NoSuchResourceException", f"The request failed because {what} does not exist.")


def _plain(quota: Quota, region: str) -> dict[str, Any]:
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
