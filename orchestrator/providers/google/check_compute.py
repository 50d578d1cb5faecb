"""Quota of Compute Engine, from Service Usage v1beta1 (see check_quota.py): machines without TPUs, and addresses.

Metrics: cpus for e2, n2_cpus and a2_cpus for these families; nvidia_l4_gpus and the like for GPUs, and gpus_all_regions
over all of them; those of spot begin with preemptible_ (public listings of `gcloud compute regions describe`, 2026;
refusals name gpus_all_regions). regional_in_use_addresses and instances count the hosts of every machine, TPU VMs too;
new projects have 4 to 8 addresses a region (public refusals that name IN_USE_ADDRESSES, 2023 to 2026). Which quota the
vCPUs of g2 take is not known, so it is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.catalog.machines import ComputeType
from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Outcome, fix, ok, unknown
from orchestrator.providers.core.faults import Refused
from orchestrator.providers.google.check_access import not_asked
from orchestrator.providers.google.check_asked import machine_of
from orchestrator.providers.google.check_calls import Calls

SERVICE = "compute.googleapis.com"
UNLIMITED = -1
PAGE = 200
_VCPUS = {"e2": "cpus", "n2": "n2_cpus", "a2": "a2_cpus"}
_GPUS = {"L4": "nvidia_l4_gpus", "A100": "nvidia_a100_gpus", "A100-80GB": "nvidia_a100_80gb_gpus"}
_EVERYWHERE = "gpus_all_regions"
_ADDRESSES, _INSTANCES = "regional_in_use_addresses", "instances"


def check_quota(calls: Calls, ask: Ask, machine: ComputeType) -> Outcome:
    """Compare the limits of one region with what one machine needs."""
    region = ask.zone.rpartition("-")[0] or ask.region or machine.regions[0]
    try:
        limits = _read_limits(calls, region)
    except Refused as refused:
        return not_asked("quota", "the quota of Compute Engine", "serviceusage.quotas.get", refused, calls.project)
    markets = (("on demand", _needs(machine, spot=False)), ("spot", _needs(machine, spot=True)))
    if not any(metric in limits for _, needs in markets for metric in needs):
        return unknown("quota", f"Google lists no quota for {machine.name}", _console(calls.project), Exit.CAPACITY)
    lines = [f"{word}: {_compare(needs, limits)}" for word, needs in markets]
    words = f"{machine.name} in {region}, {'; '.join(lines)}"
    if any(_fits(needs, limits) for _, needs in markets):
        return ok("quota", words)
    return fix("quota", words, f"ask for more: {_console(calls.project)}", Exit.CAPACITY)


def check_addresses(calls: Calls, ask: Ask) -> Outcome:
    """Compare the hosts of one machine with the limits of addresses and instances; says nothing where none is listed.

    Raises:
        UserError: The name is not a machine of Google.
    """
    machine = machine_of(ask)
    if machine is None:
        return Outcome(())
    region = ask.zone.rpartition("-")[0] or ask.region or next(iter(machine.zones), "").rpartition("-")[0]
    try:
        limits = _read_limits(calls, region)
    except Refused:
        return Outcome(())  # the check of the quota says why it cannot be read
    internal = ask.options.internal_ips or ask.options.access in ("internal", "iap", "jump")
    needs = {_INSTANCES: machine.hosts} if internal else {_INSTANCES: machine.hosts, _ADDRESSES: machine.hosts}
    listed = {metric: need for metric, need in needs.items() if metric in limits}
    if not listed:
        return Outcome(())
    words = f"{machine.name} in {region}: {_compare(listed, limits)}"
    if _fits(listed, limits):
        return ok("addresses", words)
    step = f"ask for more: {_console(calls.project)}"
    if not _fits({_ADDRESSES: listed.get(_ADDRESSES, 0)}, limits):
        step = f"take internal addresses, access: iap (docs/google.md)   or {step}"
    return fix("addresses", words, step, Exit.CAPACITY)


def _needs(machine: ComputeType, *, spot: bool) -> dict[str, int]:
    """Return how much of each metric one machine takes."""
    prefix = "preemptible_" if spot else ""
    if not machine.chips:
        return {"preemptible_cpus" if spot else _VCPUS[machine.family]: machine.vcpus}
    found = {f"{prefix}{_GPUS[machine.chip]}": machine.chips, _EVERYWHERE: machine.chips}
    if not spot and machine.family in _VCPUS:
        found[_VCPUS[machine.family]] = machine.vcpus
    return found


def _fits(needs: Mapping[str, int], limits: Mapping[str, int]) -> bool:
    return all(limits.get(metric, 0) == UNLIMITED or limits.get(metric, 0) >= need for metric, need in needs.items())


def _compare(needs: Mapping[str, int], limits: Mapping[str, int]) -> str:
    return ", ".join(f"{need} of {_limit(limits.get(metric, 0))} {metric}" for metric, need in needs.items())


def _limit(value: int) -> str:
    return "unlimited" if value == UNLIMITED else f"{value:,}"


def _read_limits(calls: Calls, region: str) -> dict[str, int]:
    """Return the limit of each metric that holds in a region. Raises Refused."""
    parent = f"projects/{calls.project}/services/{SERVICE}"

    def ask(service: Any, token: str) -> Any:
        return service.services().consumerQuotaMetrics().list(parent=parent, pageSize=PAGE, pageToken=token)

    found: dict[str, int] = {}
    for page in calls.pages("serviceusage", "v1beta1", ask):
        for metric in page.get("metrics", ()):
            values = [_value(limit, region) for limit in metric.get("consumerQuotaLimits", ())]
            bounded = [value for value in values if value is not None]
            if bounded:
                found[str(metric.get("metric", "")).rpartition("/")[2]] = min(bounded)
    return found


def _value(limit: Mapping[str, Any], region: str) -> int | None:
    """Return the limit of the region, or of the project; None for one by zone or by minute."""
    unit = str(limit.get("unit", ""))
    if "/min" in unit or "{zone}" in unit:
        return None
    by_region = {
        str(one.get("dimensions", {}).get("region", "")): int(one.get("effectiveLimit", 0))
        for one in limit.get("quotaBuckets", ())
    }
    return by_region.get(region, by_region.get("", 0))


def _console(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}&service={SERVICE}"
