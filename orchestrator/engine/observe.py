"""One look at everything: the store, the provider, the hosts. Read only, but for notes of what was last seen."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from orchestrator.engine.identity import host_job, token_of
from orchestrator.engine.session import Session
from orchestrator.errors import OrchError
from orchestrator.hosts import Failure, HostAddress, HostJob, HostOutcome, JobPhase
from orchestrator.plan.decide_hosts import TIMER
from orchestrator.plan.desired import Adopt, Cancel, Down, Run
from orchestrator.plan.limits import moment
from orchestrator.plan.observed import Contact, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.remote.marks import SETUP, mark_name
from orchestrator.slices import CapacityBlock, Owned, SliceState, SliceView
from orchestrator.store.records import JobRecord
from orchestrator.values import text

TELL_END = 3600.0  # seconds before the provider takes the machines back: then it is told, once
STEPPING = (None, "training")  # what a program says it does while its steps should follow each other


def observe(session: Session) -> Observed:
    """What is so now, as far as it can be known. Never raises for what a host or a provider does."""
    store, memory = session.store, session.memory
    cluster = store.cluster(session.cluster.name) or session.cluster
    intents = store.intents(session.cluster)
    job = store.job(session.cluster, session.job.id) if session.job is not None else None
    observed = Observed(now=session.now(), intents=intents)
    view = _look_at_slice(session, observed.current)
    folder = _folder(session, job)
    hosts = _look_at_hosts(session, observed.current, view, folder, job)
    _note_failures(session, hosts)
    return Observed(
        now=session.now(),
        intents=intents,
        slice_state=view.state,
        slice_reason=view.reason,
        slice_until=view.until,
        slice_ends=view.ends,
        hosts=hosts,
        well_at=memory.well_at,
        unclear_since=memory.unclear_since,
        contact_since=memory.contact_since,
        failed_since=memory.failed_since,
        attempt=job.attempt if job is not None else 1,
        ended=store.ended(session.cluster, job.id) if job is not None else (),
        started=job.started if job is not None else False,
        opened_at=job.opened_at if job is not None else 0,
        first_failed=memory.first_failed,
        running_job=folder,
        outcome=_outcome(job),
        trouble=memory.trouble,
        stacks=bool(folder) and memory.stacks_of == folder,
        cancelled=job is not None and job.state == "cancelling",
        wanted_down=isinstance(session.desired, Run) and cluster.wanted == "down",
    )


def _look_at_slice(session: Session, intent: Intent | None) -> SliceView:
    memory = session.memory
    if intent is None or intent.state is IntentState.PLANNED:
        return SliceView(SliceState.UNCLEAR)
    try:
        view = session.provider(intent.candidate.provider).observe(
            intent.name, token_of(session.cluster, intent.generation)
        )
    except OrchError as error:
        view = SliceView(SliceState.UNCLEAR, reason=str(error))
    if view.state is SliceState.UNCLEAR:
        memory.unclear_since = memory.unclear_since or session.now()
    else:
        memory.unclear_since = None
    if view.state is not SliceState.READY:
        session.drop_hands()
        memory.contact_since = None  # silence counts from a look at hosts that should answer
    elif intent.state is IntentState.ACCEPTED:
        memory.well_at = session.now()
    session.store.note_state(session.cluster, view.state.value)
    return _note_times(session, intent, view)


def _note_times(session: Session, intent: Intent, view: SliceView) -> SliceView:
    """The view, with the end that was said before when the provider does not say it now.

    A block's machines cost, and count, from its start on: that goes on record, since limits run over restarts of orch.
    """
    memory, desired = session.memory, session.desired
    if view.ends is not None:
        memory.ends = (intent.name, view.ends)
    elif memory.ends is not None and memory.ends[0] == intent.name:
        view = replace(view, ends=memory.ends[1])
    if not isinstance(desired, Run) or intent.state is not IntentState.ACCEPTED:
        return view
    block = isinstance(intent.candidate.market, CapacityBlock)
    if block and view.until is not None and intent.born is not None and intent.born < view.until:
        session.store.note_born(session.keeper.lease, session.cluster, intent.name, view.until)
    if view.ends is not None and memory.told_end != intent.name:
        _tell_end(session, intent.name, view.ends, view.ends - desired.budgets.save_before)
    return view


def _tell_end(session: Session, name: str, ends: float, last: float) -> None:
    now = session.now()
    if now >= last or ends > now + TELL_END:
        return
    session.memory.told_end = name
    session.narrator.note(
        f"the machines of '{session.cluster.name}' are taken back from {moment(ends, now)} on, in "
        f"{(ends - now) / 60:.0f} min; a program is told to save and stop at {moment(last, now)}"
    )


def _folder(session: Session, job: JobRecord | None) -> str:
    """Folder of the job that the look at the hosts is about."""
    desired = session.desired
    if isinstance(desired, Cancel):
        return desired.folder
    if job is not None:
        return f"{job.id}-a{job.attempt}"
    open_jobs = [j for j in session.store.jobs(session.cluster) if j.state != "ended" and j.started]
    return f"{open_jobs[-1].id}-a{open_jobs[-1].attempt}" if open_jobs else ""


def _look_at_hosts(
    session: Session, intent: Intent | None, view: SliceView, folder: str, job: JobRecord | None
) -> tuple[HostView, ...]:
    if intent is None or view.state is not SliceState.READY or not _hosts_matter(session, intent):
        return ()
    if session.hosts != view.hosts:
        session.store.note_hosts(None, session.cluster, view.hosts)
    desired = session.desired
    ranks = desired.ranks if isinstance(desired, Run) else None
    jobs, failures = _job_states(session, view.hosts, folder, ranks)
    marks: dict[int, dict[str, str]] = {}
    if isinstance(desired, Run) and all(state.phase is JobPhase.ABSENT for state in jobs.values()):
        marks = _read_marks(session, view.hosts, ranks, failures)
        _note_held(session, marks)
    _note_contact(session, failures)
    return tuple(_host_view(session, host, jobs, marks, failures) for host in view.hosts)


def _hosts_matter(session: Session, intent: Intent) -> bool:
    if isinstance(session.desired, Down):
        return isinstance(intent.candidate.market, Owned)
    if isinstance(session.desired, Run | Adopt):
        return intent.state is IntentState.ACCEPTED
    return isinstance(session.desired, Cancel)


def _job_states(
    session: Session, hosts: tuple[HostAddress, ...], folder: str, ranks: tuple[int, ...] | None
) -> tuple[dict[int, HostJob], dict[int, HostOutcome]]:
    report = session.hands(hosts).look(host_job(session.cluster.uid, folder or "none"), ranks)
    failures = {outcome.rank: outcome for outcome in report.failed}
    return {state.rank: state for state in report.jobs}, failures


def _read_marks(
    session: Session, hosts: tuple[HostAddress, ...], ranks: tuple[int, ...] | None, failures: dict[int, HostOutcome]
) -> dict[int, dict[str, str]]:
    wanted = [host.rank for host in hosts if (ranks is None or host.rank in ranks) and host.rank not in failures]
    look = session.hands(hosts).marks(wanted)
    failures.update({outcome.rank: outcome for outcome in look.failed})
    return {rank: dict(held) for rank, held in look.held.items()}


def _note_held(session: Session, marks: dict[int, dict[str, str]]) -> None:
    """Remember what hosts hold, for previews that cannot ask them."""
    labels = _labels(session)
    held: dict[str, dict[str, Any]] = {
        str(rank): {
            "setup": mine.get(SETUP, ""),
            "trees": {label: mine[mark_name(label)] for label in labels if mark_name(label) in mine},
        }
        for rank, mine in marks.items()
    }
    if held and json.dumps(held, sort_keys=True) != session.cluster.held:
        session.store.note_held(None, session.cluster, held)


def _host_view(
    session: Session,
    host: HostAddress,
    jobs: dict[int, HostJob],
    marks: dict[int, dict[str, str]],
    failures: dict[int, HostOutcome],
) -> HostView:
    ip = text(host.internal_ip)
    if host.rank in failures:
        wrong = failures[host.rank].failure is Failure.IDENTITY
        return HostView(host.rank, ip, Contact.IDENTITY if wrong else Contact.DOWN)
    if host.rank not in jobs:
        return HostView(host.rank, ip)
    state, held = jobs[host.rank], marks.get(host.rank, {})
    labels = _labels(session)
    return HostView(
        rank=host.rank,
        internal_ip=ip,
        contact=Contact.OK,
        trees=tuple((label, held[mark_name(label)]) for label in labels if mark_name(label) in held),
        setup=held.get(SETUP, ""),
        job=state.phase,
        exit_code=state.exit_code,
        last_line=state.last_line,
        step=state.step,
        beat_age=state.beat_age if state.doing in STEPPING else None,  # other phases have no pace to compare
    )


def _labels(session: Session) -> tuple[str, ...]:
    desired = session.desired
    if not isinstance(desired, Run):
        return ()
    return (TIMER, *(tree.label for tree in desired.trees), *(mount.label for mount in desired.mounts))


def _note_contact(session: Session, failures: dict[int, HostOutcome]) -> None:
    memory = session.memory
    memory.contact_since = (memory.contact_since or session.now()) if failures else None


def _note_failures(session: Session, hosts: tuple[HostView, ...]) -> None:
    memory = session.memory
    bad = [
        host for host in hosts if host.job is JobPhase.LOST or (host.job is JobPhase.FINISHED and host.exit_code != 0)
    ]
    if not bad:
        memory.failed_since = None
        return
    memory.failed_since = memory.failed_since or session.now()
    if memory.first_failed is None:
        memory.first_failed = bad[0].rank


def _outcome(job: JobRecord | None) -> Outcome | None:
    if job is None or job.state != "ended":
        return None
    return Outcome(job.status or 0, job.code, job.what, job.why, job.next_step)
