"""Conditions that no event says by itself: a job that waits for machines, a limit that is near. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import gmtime, strftime

from orchestrator.formatting import format_amount, format_duration
from orchestrator.plan.limits import dollars_spent, hours_up
from orchestrator.plan.observed import Intent, IntentState, Observed
from orchestrator.plan.spending_budget import SpendingBudget, Usage
from orchestrator.slices import SliceState
from orchestrator.store.audited import format_subject
from orchestrator.store.records import ClusterRecord, EventRecord, JobRecord

SILENT_SECONDS = 120.0  # longer than decide waits before it replaces silent hosts (plan/desired.py)
_OBSERVED_SECONDS = 900.0  # a cluster that no process observed for so long is not waiting: nothing drives it


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on a condition is recorded.

    Attributes:
        waiting: Seconds that a job waits for machines.
        near: The part of a limit, of 1, that is used.
    """

    waiting: float
    near: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a cluster, or of a budget.

    Attributes:
        what: For people, one line.
        cause: Its kind and its subject: the same for the same condition, which is recorded once.
    """

    what: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """What is on record of an existing cluster.

    Attributes:
        events: Its newest events, oldest first.
    """

    cluster: ClusterRecord
    intents: tuple[Intent, ...]
    jobs: tuple[JobRecord, ...]
    events: tuple[EventRecord, ...]


def find_conditions(history: ClusterHistory, thresholds: Thresholds, now: float) -> tuple[Condition, ...]:
    """Return the conditions of a cluster."""
    return (*_find_long_waits(history, thresholds, now), *_find_near_limits(history, thresholds, now))


def find_budget_condition(budget: SpendingBudget, usage: Usage, near: float, now: float) -> Condition | None:
    """Return the condition that the money of a month is nearly spent, or spent; None before.

    Args:
        budget: The budget.
        usage: Of the budget, now. Money that is only held does not count.
        near: The part of the limit, of 1, that is near.
        now: Epoch seconds.
    """
    limit, spent = budget.dollars_per_month, usage.month.dollars
    if limit is None or spent < near * limit:
        return None
    ends = "its runs end" if budget.at_limit == "stop" else "no further slice is allowed"
    state = f"is spent: {ends}" if spent >= limit else f"is nearly spent; at the limit {ends}"
    percent, month = 100 if spent >= limit else round(100 * near), strftime("%Y-%m", gmtime(now))
    what = f"the budget of {budget.scope} {state} ({format_amount(spent)} of {format_amount(limit)} in {month})"
    subject = format_subject("budgets", {"project": budget.project, "member": budget.member})
    return Condition(what=what, cause=f"budget: {subject}, {percent} % of {limit:g} in {month}")


def describe_silence(job: JobRecord, cluster: str, who: str, seconds: float, why: str) -> Condition:
    """Return the condition that hosts of a running job, or their provider, do not answer.

    Args:
        job: The job.
        cluster: The cluster's name.
        who: Which hosts, or which provider, in words.
        seconds: For how long.
        why: The failure of one of them.
    """
    reason = f": {why}" if why else ""
    what = f"job {job.id} of '{cluster}' runs, and {who} did not answer for {format_duration(seconds)}{reason}"
    return Condition(what=what, cause=f"silent: {_name_attempt(job)}")


def may_wait_for_machines(job: JobRecord) -> bool:
    """Return whether the job has not started its program, and could."""
    return job.kind != "exec" and job.state in ("pending", "running") and not job.started


def _find_long_waits(history: ClusterHistory, thresholds: Thresholds, now: float) -> Iterator[Condition]:
    cluster, current = history.cluster, Observed(now=now, intents=history.intents).current
    ready = (
        current is not None and current.state is IntentState.ACCEPTED and cluster.last_state == SliceState.READY.value
    )
    observed = max([cluster.last_seen, *(max(one.since, one.last_sent) for one in history.intents)])
    if ready or cluster.desired_state != "up" or now - observed > _OBSERVED_SECONDS:
        return
    for job in filter(may_wait_for_machines, history.jobs):
        waited = now - _find_wait_begin(job, history.events)
        if waited < thresholds.waiting:
            continue
        refused = [one for one in history.intents if one.state is IntentState.REFUSED and one.why]
        place = f"; requested: {current.candidate.where} {current.candidate.market}" if current is not None else ""
        last = f"; last refusal: {refused[-1].candidate.where}: {refused[-1].why}" if refused else ""
        what = f"job {job.id} of '{cluster.name}' has waited for machines for {format_duration(waited)}{place}{last}"
        yield Condition(what=what, cause=f"waiting: {_name_attempt(job)}")


def _find_wait_begin(job: JobRecord, events: Sequence[EventRecord]) -> float:
    """Return when the job was opened, its turn came, or its last attempt ended: the newest of its changes of state."""
    subject = format_subject("jobs", {"cluster_uid": job.cluster_uid, "id": job.id})
    times = [
        event.at
        for event in events
        if event.subject == subject
        and event.kind == "job"
        and (event.before is None or {"state", "attempt"} & set(json.loads(event.after or "{}")))
    ]
    return max([job.created, *times])


def _find_near_limits(history: ClusterHistory, thresholds: Thresholds, now: float) -> Iterator[Condition]:
    cluster, observed = history.cluster, Observed(now=now, intents=history.intents)
    current = observed.current
    if current is None or current.billed_from is None:
        return
    limits: dict[str, float] = json.loads(cluster.limits)
    spent = dollars_spent(observed)
    for name, used, shown in (
        ("max_cost", spent, f"{format_amount(spent or 0)} of {format_amount(limits.get('max_cost', 0))}"),
        ("max_hours", hours_up(observed), f"{hours_up(observed):.1f} of {limits.get('max_hours', 0):g} hours"),
    ):
        limit = limits.get(name)
        if limit and used is not None and used >= thresholds.near * limit:
            subject = format_subject("clusters", {"uid": cluster.uid})
            what = f"'{cluster.name}' has used {shown}; at the limit its machines end"
            yield Condition(what=what, cause=f"limit: {subject}, {name} {limit:g}")


def _name_attempt(job: JobRecord) -> str:
    return format_subject("attempts", {"cluster_uid": job.cluster_uid, "job_id": job.id, "attempt": job.attempt})
