"""TPU quota by family and zone, from Service Usage v1beta1: consumerQuotaMetrics of tpu.googleapis.com.

Chosen over the Cloud Quotas API: google-api-python-client carries its description, and it needs no further API to be
enabled. It tells limits, not what of them is in use. Families are known by their metrics' names, such as
tpu-v5s-litepod-preemptible (public tools read it so, 2026); Google documents no list of them. The small slices of v5e
count against quota for serving (catalog/data/tpu.toml). Numbers are cores for v2
to v4 and v5p, chips for v5e and v6e, as in the name of a type ("Cloud TPU quotas", read November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.catalog.tpu import get_generation, list_generations
from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Outcome, fix, ok, unknown
from orchestrator.providers.core.faults import Refused
from orchestrator.providers.google import check_compute
from orchestrator.providers.google.check_access import not_asked
from orchestrator.providers.google.check_asked import machine_of
from orchestrator.providers.google.check_calls import Calls

SERVICE = "tpu.googleapis.com"
UNLIMITED = -1
PAGE = 200
_SPOT = re.compile(r"preemptible|spot", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """unit: "zone" or "region". values: limit by place, "" for places that are not named; UNLIMITED for no limit."""

    family: str
    spot: bool
    unit: str
    values: Mapping[str, int]

    def at(self, zone: str) -> int:
        place = zone if self.unit == "zone" else zone.rpartition("-")[0]
        return self.values.get(place, self.values.get("", 0))


def quota(calls: Calls, ask: Ask) -> Outcome:
    """Raises UserError for a name that is not a machine of Google."""
    tpu = machine_of(ask)
    if isinstance(tpu, ComputeType):
        return check_compute.check_quota(calls, ask, tpu)
    try:
        limits = _limits(calls)
    except Refused as refused:
        return not_asked("quota", "the TPU quota", "serviceusage.quotas.get", refused, calls.project)
    if not limits:
        words = "Google lists no TPU quota for this project"
        return unknown("quota", words, _console(calls.project), Exit.CAPACITY)
    return _one(calls.project, ask, tpu, limits) if tpu else _all(calls.project, ask, limits)


def _one(project: str, ask: Ask, tpu: TpuSlice, limits: Sequence[Limit]) -> Outcome:
    """Whether the slice asked for fits into the limit of some zone that was asked for."""
    family = get_generation(tpu.generation).quota_family(tpu.size)
    mine = [one for one in limits if one.family == family]
    if not mine:
        words = f"Google lists no quota for {family}"
        return unknown("quota", words, _console(project), Exit.CAPACITY)
    zones = [ask.zone] if ask.zone else [one for one in tpu.zones if ask.region in ("", one.rpartition("-")[0])]
    fits = [zone for zone in zones if any(_enough(_least(mine, spot, zone), tpu.size) for spot in (False, True))]
    words = "; ".join(f"{zone}: {_both(mine, zone)}" for zone in (fits or zones))
    if fits:
        return ok("quota", f"{tpu.name} needs {tpu.size}; {words}")
    mend = f"ask for at least {tpu.size} of {family}: {_console(project)}"
    return fix("quota", f"{tpu.name} needs {tpu.size}; {words}", mend, Exit.CAPACITY)


def _all(project: str, ask: Ask, limits: Sequence[Limit]) -> Outcome:
    """One finding per family that has any quota in the zones of the catalogue, or in the one asked for."""
    outcomes: list[Outcome] = []
    without: list[str] = []
    for generation, family in ((one, family) for one in list_generations() for family in one.quota_metrics):
        mine = [one for one in limits if one.family == family]
        zones = [ask.zone] if ask.zone else [z for z in generation.zones if ask.region in ("", z.rpartition("-")[0])]
        having = [zone for zone in zones if any(_least(mine, spot, zone) for spot in (False, True))]
        if having:
            words = "; ".join(f"{zone}: {_both(mine, zone)}" for zone in having)
            outcomes.append(ok(f"quota {family}", words))
        else:
            without.append(family)
    if not outcomes:
        where = ask.zone or ask.region or "any zone that is listed"
        return fix("quota", f"no TPU quota in {where}", f"ask for some: {_console(project)}", Exit.CAPACITY)
    rest = ok("quota", f"none for {', '.join(without)}") if without else None
    return Outcome(tuple(one for outcome in (*outcomes, *filter(None, [rest])) for one in outcome.findings))


def _both(limits: Sequence[Limit], zone: str) -> str:
    return f"{_number(_least(limits, False, zone))} on demand, {_number(_least(limits, True, zone))} spot"


def _least(limits: Iterable[Limit], spot: bool, zone: str) -> int:
    """The smallest limit that holds in `zone`: that of the zone and that of its region both count."""
    values = [one.at(zone) for one in limits if one.spot is spot]
    bounded = [value for value in values if value != UNLIMITED]
    return min(bounded) if bounded else (UNLIMITED if values else 0)


def _enough(limit: int, size: int) -> bool:
    return limit == UNLIMITED or limit >= size


def _number(limit: int) -> str:
    return "no limit" if limit == UNLIMITED else f"{limit:,}"


def _console(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}&service={SERVICE}"


def _limits(calls: Calls) -> list[Limit]:
    """All pages. Raises Refused."""
    parent = f"projects/{calls.project}/services/{SERVICE}"

    def ask(service: Any, token: str) -> Any:
        return service.services().consumerQuotaMetrics().list(parent=parent, pageSize=PAGE, pageToken=token)

    pages = calls.pages("serviceusage", "v1beta1", ask)
    return [limit for page in pages for metric in page.get("metrics", ()) for limit in _read(metric)]


def _read(metric: Mapping[str, Any]) -> list[Limit]:
    """[] for a metric of another kind, such as calls a minute."""
    name = str(metric.get("metric", "")).rpartition("/")[2]
    families = {family: pattern for one in list_generations() for family, pattern in one.quota_metrics.items()}
    family = next((family for family, pattern in families.items() if re.search(pattern, name)), "")
    found: list[Limit] = []
    for limit in metric.get("consumerQuotaLimits", ()) if family else ():
        unit = str(limit.get("unit", ""))
        kind = "zone" if "{zone}" in unit else "region" if "{region}" in unit else ""
        if kind and "/min" not in unit:
            values = {_place(one, kind): int(one.get("effectiveLimit", 0)) for one in limit.get("quotaBuckets", ())}
            found.append(Limit(family=family, spot=bool(_SPOT.search(name)), unit=kind, values=values))
    return found


def _place(bucket: Mapping[str, Any], kind: str) -> str:
    return str(bucket.get("dimensions", {}).get(kind, ""))
