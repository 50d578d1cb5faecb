"""Which events people are notified of. Pure: from events of the audit and the records that they name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from orchestrator.exits import Exit
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.limits import LIMIT_CODE
from orchestrator.project import DEFAULT_PROJECT, split_name
from orchestrator.store.audited import parse_subject
from orchestrator.store.channel_records import CONDITION, ENGINE
from orchestrator.store.records import ClusterRecord, EventRecord, JobRecord


class Kind(StrEnum):
    """What a notification is about. The values are in the configuration and in messages."""

    ENDED = "ended"  # a job or pipeline succeeded, or a person ended it
    FAILED = "failed"
    LOST = "lost"  # the machines of a job were lost, or its program hung
    GROWN = "grown"  # a run saved, and left its machines for better ones
    LIMIT = "limit"  # a limit of time or money is near, or was reached
    BUDGET = "budget"  # a budget is nearly spent, or spent
    WAITING = "waiting"  # a job waits for machines for long
    SILENT = "silent"  # hosts of a running job, or their provider, do not answer
    STUCK = "stuck"  # the engine cannot drive a job, and tries again: credentials or secrets are missing, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One event that people are notified of.

    Attributes:
        seq: The number of the event.
        at: When it happened, in epoch seconds.
        title: What happened, one line.
        cluster: Without its project; "" for a pipeline.
        status: The exit status of what ended; None for what did not end.
        progress: What the output of its job says; "" where it says nothing.
    """

    seq: int
    at: float
    kind: Kind
    title: str
    why: str = ""
    next_step: NextStep = NO_STEP
    project: str = DEFAULT_PROJECT
    cluster: str = ""
    owner: str = ""
    run_id: str = ""
    job: int | None = None
    status: int | None = None
    progress: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records that events name.

    Attributes:
        clusters: By uid.
        jobs: All jobs of each of these clusters, by its uid.
        read_progress: Returns what the output of a job says; "" for nothing.
    """

    clusters: Mapping[str, ClusterRecord] = field(default_factory=dict[str, ClusterRecord])
    jobs: Mapping[str, tuple[JobRecord, ...]] = field(default_factory=dict[str, tuple[JobRecord, ...]])
    read_progress: Callable[[JobRecord], str] = lambda _job: ""

    def job(self, uid: str, number: int) -> JobRecord | None:
        """Return one job; None where it is not on record."""
        return next((job for job in self.jobs.get(uid, ()) if job.id == number), None)

    def is_at_work(self, uid: str, at: float) -> bool:
        """Return whether a launch or resume of a cluster had begun and not ended at a time."""
        return any(
            job.kind != "exec" and job.created <= at and (job.ended is None or job.ended >= at)
            for job in self.jobs.get(uid, ())
        )


_LOSSES = {
    EndCause.PREEMPTED: "was preempted",
    EndCause.HOST_DIED: "lost a host",
    EndCause.UNREACHABLE: "lost its hosts",
    EndCause.HUNG: "hung",
    EndCause.EXPIRED: "lost its machines at the time that the provider had announced",
}
_COLUMNS_OF: Mapping[str, str] = {"job": "jobs", "attempt": "attempts", "intent": "intents", "pipeline": "pipelines"}


def find_notices(events: Sequence[EventRecord], records: Records) -> tuple[Notice, ...]:
    """Return what people are notified of, in the order of the events."""
    return tuple(notice for event in events if (notice := _find_notice(event, records)) is not None)


def find_cluster_uid(event: EventRecord) -> str:
    """Return the uid of the cluster that an event is about, "" for one that no notification needs."""
    named = _subject_of(event)
    return "" if named is None else str(named[1].get("cluster_uid", ""))


def _find_notice(event: EventRecord, records: Records) -> Notice | None:
    if event.kind == ENGINE:
        return Notice(
            seq=event.seq, at=event.at, kind=Kind.STUCK, title=_clean(event.what), next_step=NextStep("orch queue")
        )
    named = _subject_of(event)
    if named is None:
        return None
    table, key = named
    if event.kind == CONDITION:
        return _of_condition(event, key, records)
    after = _columns(event.after)
    match table:
        case "jobs" if after.get("state") == "ended":
            return _of_job(event, key, after, records)
        case "attempts":
            return _of_attempt(event, key, after, records)
        case "intents" if after.get("cause"):
            return _of_intent(event, key, after, records)
        case "pipelines" if after.get("state") in ("ended", "cancelled"):
            kind = Kind.ENDED if after.get("status") in (0, int(Exit.INTERRUPTED)) else Kind.FAILED
            title = _clean(f"pipeline {event.what}")
            status = after.get("status")
            return Notice(
                seq=event.seq, at=event.at, kind=kind, title=title, next_step=NextStep("orch queue -a"), status=status
            )
        case _:
            return None


def _subject_of(event: EventRecord) -> tuple[str, dict[str, Any]] | None:
    """Return the table and key of the row that an event changed, or that a condition names; None for other events.

    Events of other kinds repeat rows: those of an upgrade.
    """
    subject = event.cause.partition(": ")[2] if event.kind == CONDITION else event.subject
    if event.kind != CONDITION and event.kind not in _COLUMNS_OF:
        return None
    try:
        table, key = parse_subject(subject.partition(",")[0])
    except ValueError:
        return None
    if table == "clusters":
        key = {"cluster_uid": key["uid"]}
    return (table, key) if table == "clusters" or event.kind in (CONDITION, table[:-1]) else None


def _columns(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


def _of_job(event: EventRecord, key: Mapping[str, Any], after: Mapping[str, Any], records: Records) -> Notice | None:
    job = records.job(key["cluster_uid"], key["id"])
    if job is None or job.kind == "exec":
        return None
    status, code, what = after.get("status"), str(after.get("code") or ""), str(after.get("what") or "")
    if code == LIMIT_CODE:
        kind, ending = Kind.LIMIT, f"ended: {what}"
    elif status == 0:
        kind, ending = Kind.ENDED, "succeeded"
    elif status == Exit.INTERRUPTED and code != "abandoned":
        kind, ending = Kind.ENDED, f"ended: {what}"
    else:
        kind, ending = Kind.FAILED, f"failed: {what}"
    return _about_job(
        event, kind, ending, job, records, why=str(after.get("why") or ""), status=status,
        next_step=NextStep.parse(str(after.get("next_step") or ""))
        or NextStep(f"orch logs {_short_name(event)} {job.id}", "shows its output"),
    )  # fmt: skip


def _of_attempt(
    event: EventRecord, key: Mapping[str, Any], after: Mapping[str, Any], records: Records
) -> Notice | None:
    job = records.job(key["cluster_uid"], key["job_id"])
    cause = _cause(after)
    kind, phrase = Kind.LOST, _LOSSES.get(cause)
    if cause is EndCause.GROWN:
        kind, phrase = Kind.GROWN, "leaves its machines for better ones"
    if job is None or phrase is None:
        return None
    ending = f"{phrase} (attempt {key['attempt']})"
    step = NextStep(f"orch events {_short_name(event)}")
    return _about_job(event, kind, ending, job, records, why=str(after.get("why") or ""), next_step=step)


def _of_intent(event: EventRecord, key: Mapping[str, Any], after: Mapping[str, Any], records: Records) -> Notice | None:
    """Return the notice of machines that were lost while no job ran: the others end an attempt."""
    phrase, uid = _LOSSES.get(_cause(after)), key["cluster_uid"]
    if phrase is None or records.is_at_work(uid, event.at):
        return None
    why = str(after.get("why") or "")
    return _about_cluster(event, Kind.LOST, f"'{_short_name(event)}' {phrase}", uid, records, why=why)


def _of_condition(event: EventRecord, key: Mapping[str, Any], records: Records) -> Notice | None:
    try:
        kind = Kind(event.cause.partition(":")[0])
    except ValueError:  # of a newer orch
        return None
    uid = str(key.get("cluster_uid", ""))  # a budget is of no cluster
    number = key.get("job_id", key.get("id"))
    job = records.job(uid, int(number)) if number is not None else None
    notice = _about_cluster(event, kind, event.what, uid, records)
    if job is None:
        return notice
    return _about_cluster(event, kind, event.what, uid, records, run_id=job.run_id, job=job.id)


def _cause(after: Mapping[str, Any]) -> EndCause:
    """Return the cause of an end; one that only a newer orch knows is none that people are notified of."""
    try:
        return EndCause(str(after.get("cause")))
    except ValueError:
        return EndCause.REQUESTED


def _about_job(event: EventRecord, kind: Kind, ending: str, job: JobRecord, records: Records, **more: Any) -> Notice:
    name = _short_name(event)
    subject = f"run {job.run_id} on '{name}'" if job.run_id else f"job {job.id} of '{name}'"
    return _about_cluster(
        event, kind, f"{subject} {ending}", job.cluster_uid, records, run_id=job.run_id, job=job.id,
        progress=_clean(records.read_progress(job)), **more,
    )  # fmt: skip


def _about_cluster(event: EventRecord, kind: Kind, title: str, uid: str, records: Records, **more: Any) -> Notice:
    record = records.clusters.get(uid)
    project, name = split_name(event.cluster)
    owner = record.owner if record is not None else ""
    notice = Notice(
        seq=event.seq, at=event.at, kind=kind, title=_clean(title), project=project, cluster=name, owner=owner, **more
    )
    return replace(
        notice,
        why=_clean(notice.why),
        next_step=NextStep(_clean(notice.next_step.command), _clean(notice.next_step.words)),
    )


def _short_name(event: EventRecord) -> str:
    return split_name(event.cluster)[1]


def _clean(text: str) -> str:
    """Return text that may hold a program's output on one line, without control characters."""
    return to_one_line(escape_controls(text))
