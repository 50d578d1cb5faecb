"""Quotas of the TPU API as Service Usage v1beta1 shows them: metrics, limits by zone or region, buckets.

Source: services.consumerQuotaMetrics (reference of Service Usage v1beta1, read November 2026). Names of metrics like
tpu-v5s-litepod-preemptible are those that public tools read there (2026); of the other families they are modelled.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from orch_fronts.google.grants import Grants, Limit
from orch_fronts.google.methods import Called
from orch_fronts.google.status import NOT_FOUND, Refusal

COMPUTE = "compute.googleapis.com"
SERVICES = ("tpu.googleapis.com", COMPUTE)
PAGE = 200  # at most; "pageSize" may ask for fewer


def quota_metrics(project: str, call: Called, grants: Grants) -> dict[str, Any]:
    """One page of a ListConsumerQuotaMetricsResponse. Raises Refusal for another service."""
    service = call.path_values[2]
    if service not in SERVICES:
        raise Refusal(NOT_FOUND, f"The simulated project has no quotas of {service}")
    by_metric: dict[str, list[Limit]] = defaultdict(list)
    for limit in (one for one in grants.limits if one.service == service):
        by_metric[limit.metric].append(limit)
    start = int(call.query.get("pageToken", ("0",))[0] or 0)
    size = min(int(call.query.get("pageSize", (str(PAGE),))[0] or PAGE), PAGE)
    names = sorted(by_metric)
    answer: dict[str, Any] = {
        "metrics": [_metric(project, name, by_metric[name]) for name in names[start : start + size]]
    }
    if start + size < len(names):
        answer["nextPageToken"] = str(start + size)
    return answer


def _metric(project: str, name: str, limits: list[Limit]) -> dict[str, Any]:
    service = limits[0].service
    path = f"projects/{project}/services/{service}/consumerQuotaMetrics/{service}%2F{name}"
    dimensions = sorted({_dimension(limit) for limit in limits})
    return {
        "name": path,
        "metric": f"{service}/{name}",
        "displayName": name.replace("-", " "),
        "unit": "1",
        "consumerQuotaLimits": [_limit(path, name, one, limits) for one in dimensions],
    }


def _limit(path: str, name: str, dimension: str, limits: list[Limit]) -> dict[str, Any]:
    own = [limit for limit in limits if _dimension(limit) == dimension]
    return {
        "name": f"{path}/limits/%2Fproject%2F{dimension}",
        "metric": f"{limits[0].service}/{name}",
        "unit": f"1/{{project}}/{{{dimension}}}" if dimension else "1/{project}",
        "quotaBuckets": [_bucket(dimension, limit) for limit in sorted(own, key=lambda one: one.where)],
    }


def _bucket(dimension: str, limit: Limit) -> dict[str, Any]:
    """A limit of 0 is not written: it is the default of its type in protobuf's JSON."""
    value = {"effectiveLimit": str(limit.value), "defaultLimit": str(limit.value)} if limit.value else {}
    return value | ({"dimensions": {dimension: limit.where}} if limit.where else {})


def _dimension(limit: Limit) -> str:
    """us-west4-a is a zone, us-west4 a region; a limit for everywhere is by zone for TPUs, else by project."""
    if limit.where:
        return "region" if limit.where.count("-") == 1 else "zone"
    return "" if limit.service == COMPUTE else "zone"
