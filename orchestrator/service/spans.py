"""Spans for OpenTelemetry, from events: what has ended, with its beginning. Nothing here imports OpenTelemetry.

Ids follow from what a span describes, so that a span that is sent twice, or by two servers of a team, is the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.plan.observed import FINAL_STATES, Intent, IntentState
from orchestrator.plan.spending_budget import name_market
from orchestrator.store.audited import parse_subject
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord, JobRecord

KINDS = ("attempt", "intent", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that has ended.

    Attributes:
        trace: What it is part of: spans with the same text are shown together.
        key: What it describes, within the trace.
        parent: Key of the span that contains it; "" for none.
        begin: Epoch seconds; likewise `end`.
        failure: Why it failed; "" where it did not.
    """

    name: str
    trace: str
    key: str
    begin: float
    end: float
    parent: str = ""
    failure: str = ""
    attributes: Mapping[str, str | int | float] = field(default_factory=dict[str, "str | int | float"])


def read_spans(store: Reader, events: Sequence[EventRecord]) -> tuple[Span, ...]:
    """Return what ended by these events."""
    return tuple(span for event in events if event.kind in KINDS for span in _read_event(store, event))


def _read_event(store: Reader, event: EventRecord) -> Iterator[Span]:
    try:
        table, key = parse_subject(event.subject)
    except ValueError:
        return
    after: dict[str, Any] = json.loads(event.after or "{}")
    uid = key["cluster_uid"]
    if table == "attempts" and event.before is None:
        job = _find_job(store, uid, key["job_id"])
        if job is not None:
            yield _describe_attempt(event, job, key["attempt"], after)
    elif table == "jobs" and after.get("state") == "ended":
        job = _find_job(store, uid, key["id"])
        if job is not None:
            yield _describe_job(event, job)
    elif table == "intents" and after.get("state") in set(FINAL_STATES):
        intents = store.intents_by_uid([uid]).get(uid, ())
        yield from (_describe_slice(store, event, one) for one in intents if one.generation == key["generation"])


def _find_job(store: Reader, uid: str, number: int) -> JobRecord | None:
    return store.find_job(uid, number)


def _name_trace(job: JobRecord) -> str:
    return f"run {job.run_id}" if job.run_id else f"job {job.cluster_uid}/{job.id}"


def _describe_attempt(event: EventRecord, job: JobRecord, attempt: int, row: Mapping[str, Any]) -> Span:
    ended = float(row.get("at") or event.at)
    cause, why = str(row.get("cause", "")), str(row.get("why", ""))
    return Span(
        name=f"attempt {attempt}",
        trace=_name_trace(job),
        key=f"attempt {job.cluster_uid}/{job.id}/{attempt}",
        parent=f"job {job.cluster_uid}/{job.id}",
        begin=min(float(row.get("started_at") or ended), ended),  # clocks of two computers may differ
        end=ended,
        failure=f"{cause}: {why}",
        attributes=_describe_run(event, job) | {"orch.attempt": attempt, "orch.cause": cause},
    )


def _describe_job(event: EventRecord, job: JobRecord) -> Span:
    return Span(
        name=job.kind,
        trace=_name_trace(job),
        key=f"job {job.cluster_uid}/{job.id}",
        begin=job.created,
        end=job.ended if job.ended is not None else event.at,
        failure=(job.what or f"exit status {job.status}") if job.status else "",
        attributes=_describe_run(event, job) | {"orch.attempt": job.attempt, "orch.exit_status": job.status or 0},
    )


def _describe_run(event: EventRecord, job: JobRecord) -> dict[str, str | int | float]:
    return {"orch.cluster": event.cluster, "orch.job": job.id, "orch.run_id": job.run_id}


def _describe_slice(store: Reader, event: EventRecord, intent: Intent) -> Span:
    """Describe a slice from its intent to its end, with the key by which the provider made it only once."""
    candidate = intent.candidate
    attributes: dict[str, str | int | float] = {
        "orch.cluster": event.cluster,
        "orch.slice": intent.name,
        "orch.idempotency_key": intent.token,
        "cloud.provider": candidate.provider,
        "cloud.region": candidate.region,
        "cloud.availability_zone": candidate.zone,
        "orch.machine": candidate.accelerator,
        "orch.hosts": candidate.hosts,
        "orch.market": name_market(candidate.market),
    }
    if intent.billed_from is not None:
        billed = (intent.billed_until or event.at) - intent.billed_from
        attributes |= {"orch.billed_seconds": billed}
    refused = intent.state is IntentState.REFUSED
    return Span(
        name="slice refused" if refused else "slice",
        trace=f"slice {event.subject}",
        key=event.subject,
        begin=store.find_beginning(event.cluster, event.subject, event.seq) or event.at,
        end=event.at,
        failure=(intent.why or "refused") if refused else "",
        attributes=attributes,
    )
