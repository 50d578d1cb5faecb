"""The document of `orch status`: clusters with their machines, jobs and prices, and all that its text shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from orchestrator.documents.clusters import (
    ClusterSummary,
    PaidPerHour,
    find_passed_limit,
    sum_prices,
    summarize_cluster,
)
from orchestrator.documents.output_forms import output_as_json
from orchestrator.documents.output_progress import add_cluster_output
from orchestrator.documents.queries import ClustersQuery, choose_clusters
from orchestrator.documents.stages import read_pipelines, stage_as_json
from orchestrator.formatting import format_utc
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.store.other_state import find_file_refusal
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord

_RECENT = 5  # events of a cluster that is shown alone


def read_status(store: Reader, now: float, query: ClustersQuery) -> dict[str, Any]:
    """Return the document of data/status.schema.json for the clusters that a query chooses.

    Raises:
        NotFoundError: There is no cluster of this name; the nearest names are suggested.
    """
    chosen = choose_clusters(store, query.scope, query.cluster)
    document = clusters_as_json(store, now, chosen)
    if query.cluster:
        events = store.events(chosen[0].qualified_name, limit=_RECENT)
        document["clusters"][0]["last_events"] = [{"at": format_utc(one.at), "what": one.what} for one in events]
    return document


def clusters_as_json(
    store: Reader, now: float, records: Sequence[ClusterRecord], paid: PaidPerHour | None = None
) -> dict[str, Any]:
    """Return clusters as in data/status.schema.json.

    Args:
        store: Open.
        now: Epoch seconds.
        records: The clusters, or a page of them.
        paid: What all pages cost an hour; None for the sum of these clusters.
    """
    found = add_cluster_output([summarize_cluster(store, record) for record in records])
    pipelines = read_pipelines(store, chain.from_iterable(item.jobs for item in found))
    actors = store.last_actors("cluster", [record.qualified_name for record in records])
    paid = paid or sum_prices(found)
    return {
        "version": 1,
        "kind": "status",
        "now": format_utc(now),
        "member": store.member,
        "refusal": find_file_refusal(store) or None,
        "price_per_hour": None if paid.unknown else paid.dollars,
        "clusters": [_cluster_json(item, actors, pipelines, now) for item in found],
    }


def _cluster_json(
    item: ClusterSummary, actors: Mapping[str, str], pipelines: Mapping[str, PipelineRecord], now: float
) -> dict[str, object]:
    current = item.current_job
    return {
        "name": item.cluster.name,
        "created": format_utc(item.cluster.created),
        "summary": item.cluster.summary,
        "project": item.cluster.project,
        "owner": item.cluster.owner or None,
        "actor": actors.get(item.cluster.qualified_name),
        "wanted": item.cluster.desired_state,
        "state": item.state,
        "state_at": format_utc(item.state_at),
        "working": item.busy_with or None,
        "passed_limit": find_passed_limit(item, now) or None,
        "machines": None if item.current is None else _machines_json(item, item.current),
        "earlier_machines": [
            {"slice": one.name, "state": str(one.state), "why": one.why or None}
            for one in item.slices
            if one.state in FINAL_STATES
        ],
        "hosts": [
            {
                "rank": h.rank,
                "label": h.label,
                "host": h.host,
                "port": h.port,
                "user": h.user,
                "internal_ip": h.internal_ip,
            }
            for h in item.cluster.hosts
        ],
        "jobs": [{**_job_json(job), "stage": stage_as_json(job, pipelines)} for job in item.jobs],
        "current_job": None if current is None else current.id,
        "abandoned_job": None if item.abandoned is None else item.abandoned.id,
        "ended_attempts": [{"attempt": past.attempt, "cause": str(past.cause), "why": past.why} for past in item.ended],
        "from_output": output_as_json(item.output),
    }


def _machines_json(item: ClusterSummary, intent: Intent) -> dict[str, object]:
    machine = intent.candidate
    return {
        "slice": intent.name,
        "provider": machine.provider,
        "region": machine.region or None,
        "zone": machine.zone or None,
        "accelerator": machine.accelerator,
        "hosts": machine.hosts,
        "chips_per_host": machine.chips_per_host,
        "market": str(machine.market),
        "price_per_hour": item.price_per_hour,
        "list_price_per_hour": machine.price_per_hour,
        "price_note": machine.price_note or None,
        "billed_since": None if intent.billed_from is None else format_utc(intent.billed_from),
        "account": intent.account or None,
    }


def _job_json(job: JobRecord) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "run_id": job.run_id,
        "state": job.state,
        "attempt": job.attempt,
        "hosts": list(job.ranks) if job.ranks is not None else None,
        "created": format_utc(job.created),
        "ended": format_utc(job.ended) if job.ended is not None else None,
        "status": job.status,
        "what": job.what or None,
        "why": job.why or None,
        "bucket": job.bucket or None,
    }
