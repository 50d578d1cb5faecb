"""The loop: observe, decide, act, record, and again, until `decide` reports the end."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from orchestrator.cloud_identities.role import name_caller
from orchestrator.engine.loop.act import act
from orchestrator.engine.loop.addresses import admit_after_silence, admit_before_contact
from orchestrator.engine.loop.admission import admit_keys
from orchestrator.engine.loop.checkpoints import has_checkpoint, note_checkpoint
from orchestrator.engine.loop.choice import renew_choice
from orchestrator.engine.loop.finish import finish_command, leave_running
from orchestrator.engine.loop.growth import note_growth
from orchestrator.engine.loop.job_opening import open_job
from orchestrator.engine.loop.lease_wait import hold_lease
from orchestrator.engine.loop.observe import observe, observe_slice
from orchestrator.engine.loop.overtaken import overtaken_result, superseded_result, yield_to_down
from orchestrator.engine.loop.queue import (
    choose_after_job,
    end_jobs,
    list_waiting_jobs,
)
from orchestrator.engine.loop.results import (
    download_remaining_logs,
    open_writable_bucket,
)
from orchestrator.engine.loop.session import Providers, Session
from orchestrator.engine.loop.stage_end import end_stopped_pipelines
from orchestrator.engine.loop.transfer import recording_transfer, refuse_if_taken_over
from orchestrator.engine.loop.wait import Waiter, drain_logs, ensure_follower
from orchestrator.engine.loop.watch_lease import hold_watch_lease
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.identities import find_access
from orchestrator.engine.state.lease import PATIENCE, LeaseKeeper
from orchestrator.engine.state.opening import open_store, refuse_creation
from orchestrator.errors import AccessError, OrchError, OtherAccountError, UserError
from orchestrator.exits import Exit
from orchestrator.messages import count_noun
from orchestrator.next_step import NextStep
from orchestrator.paths import Paths, load_paths
from orchestrator.plan.actions import Action, Conclude, EndSlice, StartJob, StopSlice
from orchestrator.plan.decide import decide
from orchestrator.plan.decide_slice import refuse_command
from orchestrator.plan.desired import Cancel, Desired, Down, Run, Stop
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL_STATES, Contact, Intent, Observed, Outcome
from orchestrator.plan.steps import Done, GiveUp, Step, Wait, WaitFor
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.plan.ways_back import resume_or_launch
from orchestrator.slices import CapacityBlock, SliceState
from orchestrator.store.lookup import find_cluster
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

_WITHOUT_HOSTS = frozenset(
    {SliceState.ABSENT, SliceState.CREATING, SliceState.PREEMPTED, SliceState.FAILED, SliceState.ENDING}
)


class Detached(OrchError):
    """Ctrl-C while the program runs: orch stops watching, the program continues."""

    code = "detached"
    exit_status = Exit.INTERRUPTED


def drive_cluster(
    ready: PreparedCommand,
    narrator: Narrator,
    *,
    follow: bool = True,
    recorder: list[Action] | None = None,
    services: Services | None = None,
) -> CommandResult:
    """Fulfil a prepared command.

    Args:
        ready: The command.
        narrator: Receives the progress.
        follow: If False, return as soon as the program runs.
        recorder: Every action that is performed is appended, for comparison with the plan.
        services: The real ones by default.

    Raises:
        Detached: Ctrl-C while the program runs.
        ConflictError: Another orch works on the cluster.
        OrchError: What `decide` cannot handle.
    """
    ready.raise_refusal()
    where = load_paths()
    services = services or real_services(where, ready.identity)
    with (
        open_store(where, services, ready.verb, ready.project) as store,
        LeaseKeeper(store, ready.cluster, ready.verb, narrator) as keeper,
    ):
        _refuse_in_newer_store(store, ready.desired)
        announced = store.cluster(ready.cluster)
        caller = name_caller(store.installation, announced.owner if announced is not None else store.member)
        bucket = _open_bucket(ready, store, services, caller)
        providers = Providers(services, caller)
        if announced is not None:
            _refuse_other_account(store, providers, announced)
            if (ending := _announce(store, ready, announced, narrator)) is not None:
                return ending
        hold_lease(keeper, store, ready, recorded=announced is not None)
        if (ending := _finish_earlier(store, where, narrator, keeper, ready, announced, services)) is not None:
            return ending
        cluster = _cluster(store, ready)
        session = Session(
            store,
            where,
            narrator,
            keeper,
            cluster,
            ready.desired,
            ready.facts,
            None,
            services,
            providers,
            accept_host_keys=ready.accept_host_keys,
            trees=ready.trees,
        )
        try:
            return _carry_out(session, ready, bucket, follow=follow, recorder=recorder)
        finally:
            session.close()


def _carry_out(
    session: Session, ready: PreparedCommand, bucket: Bucket | None, *, follow: bool, recorder: list[Action] | None
) -> CommandResult:
    """Open the job of a command, and loop until it ends. Raises Detached on Ctrl-C while the program runs."""
    try:
        with recording_transfer(session):
            if (refused := _refuse_without_machines(session)) is not None:
                return refused
            open_job(session, ready, bucket)
            with hold_watch_lease(session):
                return _loop(session, follow=follow, recorder=recorder)
    except KeyboardInterrupt:
        detached = _detached(session) or _cancel_request(session)
        if detached is None:
            raise
        raise detached from None


def _finish_earlier(
    store: Store,
    where: Paths,
    narrator: Narrator,
    keeper: LeaseKeeper,
    ready: PreparedCommand,
    announced: ClusterRecord | None,
    services: Services,
) -> CommandResult | None:
    """Finish what earlier commands left, now that the lease is held. Return the result when nothing is left to do."""
    if isinstance(ready.desired, Down) and (announced is None or _is_absent(store, announced)):
        return CommandResult(step=Done(f"cluster '{ready.cluster}' is already deleted"))
    if isinstance(ready.desired, Run) and ready.desired.create:
        if ready.continued_uid and (ending := superseded_result(store, ready)) is not None:
            return ending
        if announced is not None and announced.desired_state == "stopped" and not _is_absent(store, announced):
            store.set_desired_state(announced, "up")  # who launches on a stopped cluster wants it started
        finished = finish_down(store, where, narrator, keeper, ready.cluster, ready.facts, services)
        return superseded_result(store, ready) if finished and ready.continued_uid else None
    return None


def _refuse_in_newer_store(store: Store, desired: Desired) -> None:
    if isinstance(desired, Run) and desired.create:
        refuse_creation(store)


def _refuse_other_account(store: Store, providers: Providers, cluster: ClusterRecord) -> None:
    """Raise before anything is announced to others when the credentials are of another account, or missing."""
    for intent in store.intents(cluster):
        if intent.state in FINAL_STATES:
            continue
        try:
            providers.of(intent)
        except (AccessError, OtherAccountError, UserError):
            raise
        except OrchError:  # the loop reports it, and tries again
            return


def _announce(store: Store, ready: PreparedCommand, cluster: ClusterRecord, narrator: Narrator) -> CommandResult | None:
    """Record a teardown or a cancel before the lease is held: its holder reads this and yields.

    Returns:
        The result, when a job is cancelled that was not started; else None.
    """
    desired = ready.desired
    if ready.forced:
        store.event(cluster.qualified_name, "force", ready.forced)
    if isinstance(desired, Down):
        store.set_desired_state(cluster, "down")
        _end_waiting_jobs(store, cluster, narrator)
    if isinstance(desired, Cancel):
        number = int(desired.folder.partition("-")[0])
        store.cancel_job(cluster, number)
        if not store.job(cluster, number).started:
            end_stopped_pipelines(store, cluster)
            done = Done(f"job {number} of '{cluster.name}' is cancelled: it was not started yet")
            return CommandResult(step=done, job_id=number)
    return None


def _open_bucket(ready: PreparedCommand, store: Store, services: Services, caller: str) -> Bucket | None:
    if ready.job is None or not ready.job.bucket:
        return None
    access = find_access(store, services.access, caller, task=ready.job.task)
    return open_writable_bucket(ready.job.bucket, access)


def finish_down(
    store: Store, where: Paths, narrator: Narrator, keeper: LeaseKeeper, name: str, facts: Facts, services: Services
) -> CommandResult | None:
    """Finish an interrupted `down` before anything new is made under the name."""
    cluster = store.cluster(name)
    if cluster is None or cluster.desired_state != "down":
        return None
    narrator.note(f"'{name}' was being taken down; that is finished first")
    session = Session(store, where, narrator, keeper, cluster, Down(name), facts, None, services)
    try:
        with recording_transfer(session):
            ending = _loop(session, follow=True, recorder=None)
    finally:
        session.close()
    if not isinstance(ending.step, Done):
        raise OrchError(ending.step.what, ending.step.why, str(ending.step.next_step))
    return ending


def _is_absent(store: Store, announced: ClusterRecord) -> bool:
    """Return whether another command took the cluster down while this one waited for the lease."""
    living = store.cluster(announced.name)
    return living is None or living.uid != announced.uid


def _cluster(store: Store, ready: PreparedCommand) -> ClusterRecord:
    if isinstance(ready.desired, Run) and ready.desired.create:
        return store.open_cluster(ready.cluster, ready.summary)
    return find_cluster(store, ready.cluster)


def _refuse_without_machines(session: Session) -> CommandResult | None:
    """Return why a command (exec) cannot use the machines as they are now, before it is on record; None when it can."""
    desired = session.desired
    if not isinstance(desired, Run) or desired.create:
        return None
    observed = observe_slice(session)
    refuse_if_taken_over(session)
    step = refuse_command(desired, observed, session.facts)
    return CommandResult(step=step) if step is not None else None


def _loop(session: Session, *, follow: bool, recorder: list[Action] | None) -> CommandResult:
    waiter = Waiter(session)
    patience = PATIENCE
    while True:
        session.keeper.hold(patience)
        patience = PATIENCE
        living = session.store.cluster(session.cluster.name)
        if (early := overtaken_result(session, living) or yield_to_down(session, living)) is not None:
            return early
        _claim_attempt(session)
        observed = observe(session)
        session.services.report_hosts(session.cluster.uid, observed.hosts)
        refuse_if_taken_over(session)
        if observed.outcome is not None:
            _keep_machines_for_queue(session)
        admit_after_silence(session, observed)
        admit_keys(session, observed)
        observed = note_growth(session, renew_choice(session, observed))
        step = _decide(session, observed)
        match step:
            case Done() | GiveUp():
                return finish_command(session, step)
            case Wait():
                if step.on is WaitFor.JOB and not follow:
                    return leave_running(session)
                patience = inf if step.on is WaitFor.JOB else PATIENCE  # who only watches lets all others go first
                denied = any(host.contact is Contact.DENIED for host in observed.hosts)
                if step.on is not WaitFor.PAUSE:
                    session.memory.succeeded = None  # something else has to happen first
                waiter.wait(step, yielding=denied)  # whoever can let this computer in needs the lease
            case _:
                if recorder is not None:
                    recorder.append(step)
                if isinstance(step, Conclude):
                    drain_logs(session)
                if isinstance(step, EndSlice | StopSlice) and _ends_logs(session):
                    _save_logs(session, observed.current)
                act(session, step)
                if (
                    isinstance(step, StartJob)
                    and follow
                    and session.services.follows_logs
                    and session.memory.failure is None
                ):
                    ensure_follower(session)


def _decide(session: Session, observed: Observed) -> Step:
    step = decide(session.desired, observed, session.facts)
    if isinstance(step, Conclude) and step.status != Exit.OK:  # its next step depends on the bucket
        return decide(session.desired, note_checkpoint(session, observed), session.facts)
    return step


def _claim_attempt(session: Session) -> None:
    """Claim the next epoch of the run in its bucket before an attempt is decided on, once per attempt."""
    hold, job = session.hold, session.job
    if hold is None or job is None or hold.taken_over:
        return
    current = session.store.job(session.cluster, job.id)
    if current.state != "ended" and hold.attempt != current.attempt:
        hold.claim(current.attempt)


def _ends_logs(session: Session) -> bool:
    """Return whether the end of the hosts would end output that is not here."""
    return isinstance(session.desired, Down | Stop) or session.memory.missing_output is not None


def _save_logs(session: Session, intent: Intent | None) -> None:
    """Download the remaining logs once, before the first request that ends or stops the hosts."""
    if session.services.follows_logs and not session.memory.logs_saved:
        session.memory.logs_saved = True
        if intent is not None:
            admit_before_contact(session, intent)
        download_remaining_logs(session)


def _keep_machines_for_queue(session: Session) -> None:
    """Keep the machines of an ended job for the jobs behind it; the last of those takes them down."""
    desired, job = session.desired, session.job
    if not isinstance(desired, Run) or not desired.create or job is None:
        return
    chosen = choose_after_job(
        session.store, session.cluster, session.store.job(session.cluster, job.id), desired.teardown
    )
    if chosen is desired.teardown:
        return
    if chosen is TeardownPolicy.KEEP:
        last = list_waiting_jobs(session.store, session.cluster, job.id)[-1]
        session.narrator.note(f"'{session.cluster.name}' stays for the queue; job {last.id}, the last, takes it down")
    session.desired = replace(desired, teardown=chosen)


def _end_waiting_jobs(store: Store, cluster: ClusterRecord, narrator: Narrator) -> None:
    """End the jobs that wait on a cluster to be taken down: they must not create it again."""
    message = f"cluster '{cluster.name}' is taken down"
    again = NextStep(words=f"orch launch … -c {cluster.name}")
    count = end_jobs(store, cluster, message, lambda _: again, waiting=True, begun=False)
    if count:
        narrator.note(
            f"{count_noun(count, 'queued job')} of '{cluster.name}' ended too; see: orch events {cluster.name}"
        )


def _detached(session: Session) -> Detached | None:
    """Return the message after Ctrl-C while the program runs; None when no program runs."""
    if session.job is None:
        return None
    job = session.store.job(session.cluster, session.job.id)
    if not job.started or job.state == "ended" or _has_no_hosts(session):
        return None
    name = session.cluster.name
    again = f"orch watch {name}   to watch again (--detach: without a terminal)"
    if job.kind == "exec":
        again = f"orch logs -f {name} {job.id}   to watch again"
    return Detached(
        f"stopped watching; job {job.id} continues to run",
        next_step=f"{again}\norch cancel {name} {job.id}   to end it",
    )


def _has_no_hosts(session: Session) -> bool:
    """Return whether no program can be running: the slice never was READY, or was last seen unusable.

    A slice that is only unclear, stopped or starting may hold a program, or the disks of one.
    """
    record = session.store.cluster(session.cluster.name)
    return record is not None and (not record.hosts or record.last_state in _WITHOUT_HOSTS)


def _cancel_request(session: Session) -> Detached | None:
    """After Ctrl-C while waiting for machines, cancel the request; None when there is nothing to cancel.

    An unwatched request could be granted hours later, and cost money. A second Ctrl-C leaves the rest to
    `down`.
    """
    job, desired, name = session.job, session.desired, session.cluster.name
    current = next((one for one in session.store.intents(session.cluster) if one.state not in FINAL_STATES), None)
    if job is None or current is None or not isinstance(desired, Run) or not desired.create:
        return None
    if not _has_no_hosts(session) or current.generation <= session.store.job(session.cluster, job.id).opened_at:
        return None
    session.narrator.note(
        f"interrupted while waiting for machines: the request is cancelled (Ctrl-C again: leave it to orch down {name})"
    )
    back = resume_or_launch(name, has_checkpoint(session, job))
    ended = Outcome(
        status=Exit.INTERRUPTED,
        code="cancelled",
        what=f"job {job.id} was interrupted while it had no machines",
        why="",
        next_step=back,
    )
    session.store.record_outcome(session.cluster, job.id, ended)
    session.store.set_desired_state(session.cluster, "down")
    session.job, session.desired = None, Down(name)
    ending = _loop(session, follow=True, recorder=None)
    if not isinstance(ending.step, Done):
        raise OrchError(ending.step.what, ending.step.why, str(ending.step.next_step))
    left = "nothing is left of it"
    if isinstance(current.candidate.market, CapacityBlock):
        left = f"the {current.candidate.market} stays yours"
    return Detached(f"interrupted; the request for machines was cancelled, {left}", next_step=str(back))
