"""One observation: the store, the provider, the hosts.

Changes nothing, except notes of what was last seen, and what must precede it: `_observe_and_finish` and addresses.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.clock import SteadyClock
from orchestrator.engine.loop.addresses import admit_before_contact
from orchestrator.engine.loop.diagnosis import add_diagnosis
from orchestrator.engine.loop.finished_jobs import measure_host_run
from orchestrator.engine.loop.session import Session
from orchestrator.engine.loop.silence import find_unwatched_since, note_look
from orchestrator.engine.loop.silent_hosts import record_silent_hosts, record_silent_provider
from orchestrator.engine.state.names import host_job_name, slice_token
from orchestrator.engine.state.ssh_aliases import keep_aliases_current
from orchestrator.errors import CredentialsError, OrchError, OtherAccountError, UserError
from orchestrator.hosts import Failure, HostAddress, HostJob, HostOutcome, JobPhase
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.next_step import NextStep
from orchestrator.plan.decide_hosts import TIMER_LABEL
from orchestrator.plan.desired import Cancel, Down, Run
from orchestrator.plan.limits import format_time
from orchestrator.plan.observed import Contact, HostView, Intent, IntentState, Observed, Outcome
from orchestrator.plan.preview_format import format_duration
from orchestrator.plan.refusals import Refusal
from orchestrator.providers.protocol import ChecksLogins, Finishes, Provider
from orchestrator.remote.marks import SETUP, mark_name
from orchestrator.slices import CapacityBlock, Owned, SliceState, SliceView
from orchestrator.store.records import JobRecord
from orchestrator.values import to_text

READ_BUDGETS_EVERY = 60.0  # seconds, while a run is at work
REPORT_END_BEFORE = 3600.0  # seconds before the provider takes the machines back: it is reported then, once
_CONTACTS = {
    Failure.IDENTITY: Contact.IDENTITY,
    Failure.AUTH: Contact.DENIED,
    Failure.OTHER_VERSION: Contact.OTHER_VERSION,
}
UNSURE = ("host-lost", "cancelled", "identity-mismatch")  # ends after which a program may still run on a lost host
STEPPING = (None, "training")  # phases in which a program's steps should follow each other


def observe(session: Session) -> Observed:
    """Return the present state as far as it is known. Errors of a host or a provider are part of it.

    Raises:
        CredentialsError: A provider does not accept the credentials, so nothing is known of the machines.
    """
    store, memory = session.store, session.memory
    cluster = store.cluster(session.cluster.name) or session.cluster
    job = store.job(session.cluster, session.job.id) if session.job is not None else None
    observed, view = _observe_machines(session)
    _report_skew(session)
    folder = _folder(session, job)
    hosts = _observe_hosts(session, observed.current, view, folder, job)
    _note_failures(session, hosts)
    return replace(
        observed,
        now=session.now(),
        hosts=hosts,
        contact_since=memory.contact_since,
        failed_since=memory.failed_since,
        attempt=job.attempt if job is not None else 1,
        ended=store.ended_attempts(session.cluster, job.id) if job is not None else (),
        started=job.started if job is not None else False,
        generation_at_open=job.opened_at if job is not None else 0,
        first_failed=memory.first_failed,
        running_job=folder,
        outcome=_outcome(job),
        failure=memory.failure,
        succeeded=memory.succeeded,
        epoch=session.hold.number if session.hold is not None else 0,
        taken_over=session.hold.taken_over if session.hold is not None else "",
        stacks_collected=bool(folder) and memory.stacks_of == folder,
        cancel_requested=job is not None and job.state == "cancelling",
        entered=cluster.host_contents not in ("", "{}"),
        unwatched_since=find_unwatched_since(session, job),
        over_budget=tuple(memory.over_budget.items()),
        spent_budget=_find_spent_budget(session, job),
        spent_before=_find_spent_before(session, job),
        down_requested=isinstance(session.desired, Run) and cluster.desired_state == "down",
    )


def _find_spent_budget(session: Session, job: JobRecord | None) -> str:
    """Return which budget is spent and ends the run, in words, as of the last minute; "" for none."""
    if job is None or job.kind == "exec" or session.now() < session.memory.budgets_read + READ_BUDGETS_EVERY:
        return session.memory.spent_budget
    session.memory.budgets_read = session.now()
    session.memory.spent_budget = session.store.find_spent_budget(session.cluster, job.run_id)
    return session.memory.spent_budget


def _find_spent_before(session: Session, job: JobRecord | None) -> float | None:
    """Return Observed.spent_before, summed once for each job: a run is on one cluster at a time."""
    desired, memory = session.desired, session.memory
    if job is None or not isinstance(desired, Run) or (desired.limits.dollars is None and desired.automatic is None):
        return 0.0
    if memory.spent_before[0] != job.id:
        memory.spent_before = (job.id, session.store.find_spent_before(session.cluster, job.run_id))
    return memory.spent_before[1]


def observe_slice(session: Session) -> Observed:
    """Return the present state of the slice alone, before a job is opened on it."""
    return _observe_machines(session)[0]


def _observe_machines(session: Session) -> tuple[Observed, SliceView]:
    observed = Observed(now=session.now(), intents=session.store.intents(session.cluster))
    try:
        view = _observe_slice(session, observed.current)
    except (OtherAccountError, UserError) as error:
        view = SliceView(state=SliceState.UNCLEAR, reason=to_one_line(error.what))
        observed = replace(observed, refusal=_refusal(error))
    observed = replace(
        observed,
        slice_state=view.state,
        slice_reason=view.reason,
        slice_refusal=str(Refusal.from_error(view.refused)) if view.refused is not None else "",
        slice_until=view.until,
        slice_ends=view.ends,
        healthy_at=session.memory.healthy_at,
        unclear_since=session.memory.unclear_since,
    )
    return observed, view


def _observe_slice(session: Session, intent: Intent | None) -> SliceView:
    """Return the provider's view of the slice. Raises CredentialsError, OtherAccountError, UserError."""
    memory = session.memory
    if intent is None:
        return SliceView(state=SliceState.UNCLEAR)
    try:
        provider = session.provider_of(intent)
        if intent.state is IntentState.PLANNED:
            return SliceView(state=SliceState.UNCLEAR)
        view = _observe_and_finish(session, intent, provider)
        if view.login:
            what = f"{intent.candidate.provider} does not accept the credentials of this computer"
            raise CredentialsError(what, view.reason, view.login)
    except (CredentialsError, OtherAccountError, UserError):  # waiting does not help
        raise
    except OrchError as error:
        view = SliceView(state=SliceState.UNCLEAR, reason=to_one_line(str(error)))
    if view.state is SliceState.UNCLEAR:
        memory.unclear_since = memory.unclear_since or session.now()
        record_silent_provider(session, intent.candidate.provider, view.reason)
    else:
        memory.unclear_since = None
    _note_owner(session, view)
    _report_created(session, intent, view)
    if view.state is not SliceState.READY:
        session.disconnect()
        memory.contact_since = None  # silence counts from an observation of hosts that should answer
    elif intent.state is IntentState.ACCEPTED:
        memory.healthy_at = session.now()
    note_look(session, intent, view)
    return _note_times(session, intent, view)


def _observe_and_finish(session: Session, intent: Intent, provider: Provider) -> SliceView:
    """Observe the slice. Who holds the cluster's lease, and still does, also takes the steps that are due."""
    token = slice_token(session.cluster, intent)
    view = provider.observe(intent.name, token)
    if not view.due or not isinstance(provider, Finishes):
        return view
    if not session.keeper.is_held or not session.store.renew(session.keeper.lease):
        return view  # a lost lease fails at the next guarded write
    return provider.finish(intent.name, token)


def _note_owner(session: Session, view: SliceView) -> None:
    if view.installation not in ("", session.store.installation):
        session.memory.new_owner = f"by installation {view.installation}, as the labels of the machines show"


def _refusal(error: OrchError) -> Outcome:
    return Outcome(
        status=int(error.exit_status),
        code=error.code,
        what=error.what,
        why=error.why,
        next_step=NextStep.parse(error.next_step),
    )


def _report_created(session: Session, intent: Intent, view: SliceView) -> None:
    """Report that a slice is created when the provider reports it as READY, not when it accepts the request."""
    created = session.memory.created
    if created is None or created[0] != intent.name or view.state is not SliceState.READY:
        return
    session.memory.created = None
    session.narrator.note(f"{intent.name} is created: ready {session.now() - created[1]:.0f} s after the request")


def _report_skew(session: Session) -> None:
    """Say once that this computer's clock is wrong: after the provider's answer, which may have shown it."""
    clock = session.services.clock
    if session.memory.skew_reported or not isinstance(clock, SteadyClock) or not (skew := clock.skew()):
        return
    session.memory.skew_reported = True
    span, way = format_duration(round(abs(skew) / 60) * 60), "ahead" if skew > 0 else "behind"
    session.narrator.note(
        f"this computer's clock is {span} {way}; limits do not count by it. Set it: sudo timedatectl set-ntp true   "
        f"or, if it is right: rm {clock.file}"
    )


def _note_times(session: Session, intent: Intent, view: SliceView) -> SliceView:
    """Return the view, with the end that was announced before when the provider does not repeat it.

    The machines of a capacity block cost, and count, from its start. That is recorded, since limits apply over restarts
    of orch.
    """
    memory, desired = session.memory, session.desired
    if view.ends is not None:
        memory.ends = (intent.name, view.ends)
    elif memory.ends is not None and memory.ends[0] == intent.name:
        view = replace(view, ends=memory.ends[1])
    if not isinstance(desired, Run) or intent.state is not IntentState.ACCEPTED:
        return view
    block = isinstance(intent.candidate.market, CapacityBlock)
    if block and view.until is not None and intent.billed_from is not None and intent.billed_from < view.until:
        session.store.note_billing_start(session.keeper.lease, session.cluster, intent.name, view.until)
    if view.ends is not None and memory.reported_end != intent.name:
        _report_machine_end(session, intent.name, view.ends, view.ends - desired.budgets.save_before)
    return view


def _report_machine_end(session: Session, name: str, ends: float, last: float) -> None:
    now = session.now()
    if now >= last or ends > now + REPORT_END_BEFORE:
        return
    session.memory.reported_end = name
    session.narrator.note(
        f"the machines of '{session.cluster.name}' are taken back by the provider from {format_time(ends, now)} on, in "
        f"{(ends - now) / 60:.0f} min; a program is asked to save and stop at {format_time(last, now)}"
    )


def _folder(session: Session, job: JobRecord | None) -> str:
    """Return the folder of the job that the observation of the hosts is about."""
    desired = session.desired
    if isinstance(desired, Cancel):
        return desired.folder
    if job is not None:
        return f"{job.id}-a{job.attempt}"
    unsure = UNSURE if isinstance(desired, Down) else ()
    open_jobs = [
        one
        for one in session.store.jobs(session.cluster)
        if one.started and (one.state != "ended" or one.code in unsure)
    ]
    return f"{open_jobs[-1].id}-a{open_jobs[-1].attempt}" if open_jobs else ""


def _observe_hosts(
    session: Session, intent: Intent | None, view: SliceView, folder: str, job: JobRecord | None
) -> tuple[HostView, ...]:
    if intent is None or view.state is not SliceState.READY or not _hosts_matter(session, intent):
        return ()
    if session.hosts != view.hosts:
        session.store.note_hosts(None, session.cluster, view.hosts)
        keep_aliases_current(session.paths, session.store)
    admit_before_contact(session, intent)
    desired = session.desired
    ranks = desired.ranks if isinstance(desired, Run) else None
    jobs, failures = _job_states(session, view.hosts, folder, ranks)
    marks: dict[int, dict[str, str]] = {}
    if isinstance(desired, Run) and all(state.phase is JobPhase.ABSENT for state in jobs.values()):
        marks = _read_marks(session, view.hosts, ranks, failures)
        _note_held(session, marks)
    _note_contact(session, failures)
    own = any(hop.own for host in view.hosts for hop in host.hops)
    new: Mapping[str, str] = session.pins.unconfirmed() if own else {}
    views = [
        replace(_host_view(session, host, jobs, marks, failures), new_keys=_new_keys(host, new)) for host in view.hosts
    ]
    return tuple(
        replace(one, role=_login_role(session, intent)) if one.contact is Contact.DENIED else one
        for one in add_diagnosis(session, intent, tuple(views))
    )


def _login_role(session: Session, intent: Intent) -> str:
    provider = session.provider(intent.candidate.provider)
    return provider.login_role(intent.candidate) if isinstance(provider, ChecksLogins) else ""


def _new_keys(host: HostAddress, new: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{hop.pin_name} {new[hop.pin_name]}" for hop in host.hops if hop.pin_name in new)


def _hosts_matter(session: Session, intent: Intent) -> bool:
    if isinstance(session.desired, Down):
        return isinstance(intent.candidate.market, Owned)
    if isinstance(session.desired, Run):
        return intent.state is IntentState.ACCEPTED
    return isinstance(session.desired, Cancel)


def _job_states(
    session: Session, hosts: tuple[HostAddress, ...], folder: str, ranks: tuple[int, ...] | None
) -> tuple[dict[int, HostJob], dict[int, HostOutcome]]:
    operations, uid = session.host_operations(hosts), session.cluster.uid
    report = operations.read_job(host_job_name(uid, folder or "none"), ranks, chips=session.services.wants_chips(uid))
    failures = {outcome.rank: outcome for outcome in report.failed}
    session.memory.log_sizes = {state.rank: state.log_bytes for state in report.jobs}
    if (run := measure_host_run(session, report.jobs, complete=not report.failed)) is not None:
        session.memory.host_run = (folder, run)
    return {state.rank: state for state in report.jobs}, failures


def _read_marks(
    session: Session, hosts: tuple[HostAddress, ...], ranks: tuple[int, ...] | None, failures: dict[int, HostOutcome]
) -> dict[int, dict[str, str]]:
    ranks_to_read = [host.rank for host in hosts if (ranks is None or host.rank in ranks) and host.rank not in failures]
    look = session.host_operations(hosts).read_marks(ranks_to_read)
    failures.update({outcome.rank: outcome for outcome in look.failed})
    return {rank: dict(held) for rank, held in look.held.items()}


def _note_held(session: Session, marks: dict[int, dict[str, str]]) -> None:
    """Record what hosts hold, for previews that cannot ask them: also trees of earlier commands, and other hosts'."""
    recorded: dict[str, dict[str, Any]] = json.loads(session.cluster.host_contents or "{}")
    held = dict(recorded)
    for rank, mine in marks.items():
        labels = {*_labels(session), *recorded.get(str(rank), {}).get("trees", {})}
        trees = {label: mine[mark_name(label)] for label in sorted(labels) if mark_name(label) in mine}
        held[str(rank)] = {"setup": mine.get(SETUP, ""), "trees": trees}
    if held != recorded:
        session.store.note_host_contents(None, session.cluster, held)


def _host_view(
    session: Session,
    host: HostAddress,
    jobs: dict[int, HostJob],
    marks: dict[int, dict[str, str]],
    failures: dict[int, HostOutcome],
) -> HostView:
    ip = to_text(host.internal_ip)
    if host.rank in failures:
        failed = failures[host.rank]
        contact = _CONTACTS.get(failed.failure or Failure.LOST, Contact.DOWN)
        return HostView(rank=host.rank, internal_ip=ip, contact=contact, silence=_silence(failed), remedy=failed.remedy)
    if host.rank not in jobs:
        return HostView(rank=host.rank, internal_ip=ip)
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
        ended_by=state.ended_by,
        bucketless=state.bucketless,
        lost_peer=state.lost_peer,
        last_line=state.last_line,
        remedy=state.remedy,
        step=state.step,
        beat_age=state.beat_age if state.doing in STEPPING else None,  # other phases have no pace to compare
        chips=state.chips,
    )


def _silence(failed: HostOutcome) -> str:
    """Return why a host does not answer. No times in it: a wait with another reason would be printed again."""
    detail = escape_controls(to_one_line(re.sub(r" in \d+\.\d s", "", failed.detail)))
    if failed.failure is Failure.TAKEN_OVER:  # programs can write what a host claims; see _note_owner for the proof
        detail = f"it claims to be {detail}, which the labels of the machines do not confirm"
    if failed.failure is Failure.OTHER_VERSION or failed.host in detail:
        return detail
    return f"{failed.host}: {detail}"


def _labels(session: Session) -> tuple[str, ...]:
    desired = session.desired
    if not isinstance(desired, Run):
        return ()
    return (TIMER_LABEL, *(tree.label for tree in desired.trees), *(mount.label for mount in desired.mounts))


def _note_contact(session: Session, failures: dict[int, HostOutcome]) -> None:
    memory = session.memory
    memory.contact_since = (memory.contact_since or session.now()) if failures else None
    record_silent_hosts(session, {rank: _silence(failed) for rank, failed in failures.items()})


def _note_failures(session: Session, hosts: tuple[HostView, ...]) -> None:
    memory = session.memory
    own = [host for host in hosts if host.ended_by is None]
    bad = [host for host in own if host.job is JobPhase.LOST or (host.job is JobPhase.FINISHED and host.exit_code != 0)]
    if not bad:
        memory.failed_since = None
        return
    memory.failed_since = memory.failed_since or session.now()
    if memory.first_failed is None:
        memory.first_failed = bad[0].rank


def _outcome(job: JobRecord | None) -> Outcome | None:
    if job is None or job.state != "ended":
        return None
    return Outcome(status=job.status or 0, code=job.code, what=job.what, why=job.why, next_step=job.next_step)
