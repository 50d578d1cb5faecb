"""The loop: observe, decide, do one thing, record, again, until decide() says that it is over."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from orchestrator.engine.act import act
from orchestrator.engine.identity import INSTALLATION, RUN_ID, UID, new_run_id
from orchestrator.engine.lease import PATIENCE, LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.observe import observe
from orchestrator.engine.opening import open_store
from orchestrator.engine.ready import Ending, Ready
from orchestrator.engine.results import archive_logs, job_outcomes, leave_task, open_bucket
from orchestrator.engine.session import Session
from orchestrator.engine.settle import refuse_if_busy, settle
from orchestrator.engine.turns import after, behind, driven_elsewhere, end_jobs, overtaken, result
from orchestrator.engine.waiting import Waiter, drain, watch
from orchestrator.engine.watching import watching
from orchestrator.engine.world import World, real_world
from orchestrator.errors import NotFoundError, OrchError
from orchestrator.exits import Exit
from orchestrator.paths import Paths, paths
from orchestrator.plan.actions import Action, Conclude, StartJob
from orchestrator.plan.decide import decide
from orchestrator.plan.desired import Adopt, After, Cancel, Desired, Down, Run, Start, Stop
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL, Outcome
from orchestrator.plan.steps import Done, GiveUp, Wait, WaitFor
from orchestrator.slices import CapacityBlock, SliceState
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store
from orchestrator.values import fill

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket

TURN = 0.5  # seconds that a lease stays free for a command that looks for it ten times a second

_WITHOUT_HOSTS = frozenset(
    {SliceState.ABSENT, SliceState.CREATING, SliceState.PREEMPTED, SliceState.FAILED, SliceState.ENDING}
)


class Detached(OrchError):
    """Ctrl-C while the program runs: we stop watching, the program goes on."""

    code = "detached"
    exit_status = Exit.INTERRUPTED


def drive(
    ready: Ready,
    narrator: Narrator,
    *,
    follow: bool = True,
    recorder: list[Action] | None = None,
    world: World | None = None,
) -> Ending:
    """Fulfil a wish. follow False: return as soon as the program runs.

    recorder: every action that is done is appended, for comparison with the plan. world: the real one by default.
    Raises Detached on Ctrl-C while the program runs, ConflictError when another orch is in the way, and what decide()
    cannot handle.
    """
    ready.check()
    where = paths()
    world = world or real_world(where)
    with (
        open_store(where, world, ready.verb) as store,
        LeaseKeeper(store, ready.cluster, ready.verb, narrator) as keeper,
    ):
        bucket = open_bucket(ready.job.bucket) if ready.job is not None and ready.job.bucket else None
        announced = store.cluster(ready.cluster)
        if isinstance(ready.desired, Down) and announced is not None:
            store.want(announced, "down")  # before the lease: whoever holds it reads this and makes way
            _end_queue(store, announced, narrator)
        if isinstance(ready.desired, Cancel) and announced is not None:
            number = int(ready.desired.folder.partition("-")[0])
            store.cancel_job(announced, number)  # before the lease as well: nobody may start it again
            if not store.job(announced, number).started:
                return Ending(Done(f"job {number} of '{ready.cluster}' will not be started"), (), number)
        keeper.hold(inf if driven_elsewhere(store, ready) else PATIENCE)
        if isinstance(ready.desired, Down) and announced is not None and _is_gone(store, announced):
            return Ending(Done(f"cluster '{ready.cluster}' is gone"))
        if isinstance(ready.desired, Run) and ready.desired.create:
            if ready.of and (ending := _too_late(store, ready)) is not None:
                return ending
            if announced is not None and announced.wanted == "stopped" and not _is_gone(store, announced):
                store.want(announced, "up")  # who launches on a stopped cluster wants it started
            finish_down(store, where, narrator, keeper, ready.cluster, ready.facts, world)
        if isinstance(ready.desired, Adopt):
            finish_down(store, where, narrator, keeper, ready.cluster, ready.facts, world)
        cluster = _cluster(store, ready)
        session = Session(store, where, narrator, keeper, cluster, ready.desired, ready.facts, None, world)
        try:
            _open_job(session, ready, bucket)
            with watching(session):
                return _loop(session, follow=follow, recorder=recorder)
        except KeyboardInterrupt:
            detached = _detached(session) or _give_back(session)
            if detached is None:
                raise
            raise detached from None
        finally:
            session.close()


def finish_down(
    store: Store, where: Paths, narrator: Narrator, keeper: LeaseKeeper, name: str, facts: Facts, world: World
) -> Ending | None:
    """A `down` that was cut off is brought to its end before anything new is made under the name."""
    cluster = store.cluster(name)
    if cluster is None or cluster.wanted != "down":
        return None
    narrator.note(f"'{name}' was being taken down; that is finished first")
    session = Session(store, where, narrator, keeper, cluster, Down(name), facts, None, world)
    try:
        ending = _loop(session, follow=True, recorder=None)
    finally:
        session.close()
    if not isinstance(ending.step, Done):
        raise OrchError(ending.step.what, ending.step.why, ending.step.next_step)
    return ending


def _is_gone(store: Store, announced: ClusterRecord) -> bool:
    """Another command brought it to its end while we waited for the lease."""
    living = store.cluster(announced.name)
    return living is None or living.uid != announced.uid


def _cluster(store: Store, ready: Ready) -> ClusterRecord:
    if isinstance(ready.desired, Adopt) or (isinstance(ready.desired, Run) and ready.desired.create):
        return store.open_cluster(ready.cluster, ready.summary)
    cluster = store.cluster(ready.cluster)
    if cluster is None:
        raise NotFoundError(f"there is no cluster '{ready.cluster}'", next_step="orch status")
    return cluster


def _open_job(session: Session, ready: Ready, bucket: Bucket | None) -> None:
    """Number the job, or go on with the same one that a killed command left, and fill in what was unknown."""
    new, desired = ready.job, ready.desired
    if isinstance(desired, Adopt):
        session.desired = fill(desired, {UID: session.cluster.uid, INSTALLATION: session.store.installation})
    if new is None or not isinstance(desired, Run):
        return
    settle(session, but=new.digest)
    record = refuse_if_busy(session, new)
    if record is None:
        run_id = new.run_id or new_run_id(ready.cluster)
        record = session.store.open_job(session.cluster, replace(new, run_id=run_id))
    elif new.watch and not record.watch:
        session.store.set_watch(session.cluster, record.id, new.watch, new.wish)
    if bucket is not None:
        leave_task(bucket, record)
    session.job = record
    session.desired = _known(desired, session.store.installation, session.cluster, record)


def _known(desired: Run, installation: str, cluster: ClusterRecord, record: JobRecord) -> Desired:
    filled = fill(desired, {UID: cluster.uid, RUN_ID: record.run_id, INSTALLATION: installation})
    job = replace(filled.job, id=record.id) if filled.job is not None else None
    return replace(filled, job_id=record.id, job=job)


def _loop(session: Session, *, follow: bool, recorder: list[Action] | None) -> Ending:
    waiter = Waiter(session)
    patience = PATIENCE
    while True:
        session.keeper.hold(patience)
        patience = PATIENCE
        if (early := _overtaken(session) or _made_way(session)) is not None:
            return early
        observed = observe(session)
        if observed.outcome is not None:
            _mind_the_queue(session)
        step = decide(session.desired, observed, session.facts)
        match step:
            case Done() | GiveUp():
                return _finish(session, step)
            case Wait():
                if step.on is WaitFor.JOB and not follow:
                    return _leave(session)
                patience = inf if step.on is WaitFor.JOB else PATIENCE  # who only watches lets all others go first
                waiter.wait(step)
            case _:
                if recorder is not None:
                    recorder.append(step)
                if isinstance(step, Conclude):
                    drain(session)
                act(session, step)
                if isinstance(step, StartJob) and follow and session.world.live and session.memory.trouble is None:
                    watch(session)


def _too_late(store: Store, ready: Ready) -> Ending | None:
    """A job that is gone on with never makes its cluster anew, nor starts it when somebody stopped it.

    When it ended while we waited for the lease, that is its end: it is never opened a second time.
    """
    number = ready.desired.job_id if isinstance(ready.desired, Run) else None
    step = overtaken(store, ready.cluster, ready.of, ready.desired, number)
    cluster = store.cluster(ready.cluster)
    if step is None and cluster is not None and number is not None:
        job = store.job(cluster, number)
        step = result(job) if job.state == "ended" else None
    return Ending(step, (), number) if step is not None else None


def _overtaken(session: Session) -> Ending | None:
    """Another command took the cluster down or stopped it while we did not hold its lease."""
    job = session.job
    number = job.id if job is not None else None
    step = overtaken(session.store, session.cluster.name, session.cluster.uid, session.desired, number)
    if step is None:
        return None
    archive_logs(session)
    past = session.store.ended(session.cluster, job.id) if job is not None else ()
    return Ending(step, (), number, job.run_id if job is not None else "", past)


def _made_way(session: Session) -> Ending | None:
    """Another command wants the cluster down: it gets the lease, and the end that it records for our job is ours.

    Who watches may come to the lease before it does, and must not tell of another end then. None when nobody wants
    that, or when nobody came for the lease, or came and failed: decide() says so.
    """
    until = session.now() + PATIENCE
    while _makes_way(session) and session.now() < until:
        session.keeper.let_go()
        session.world.clock.sleep(TURN)
        session.keeper.hold(inf)
        if (early := _overtaken(session)) is not None:
            return early
    return None


def _makes_way(session: Session) -> bool:
    cluster = session.store.cluster(session.cluster.name)
    if cluster is None or cluster.wanted != "down" or not isinstance(session.desired, Run) or session.job is None:
        return False
    return session.store.job(session.cluster, session.job.id).state != "ended"


def _mind_the_queue(session: Session) -> None:
    """The job is over: its machines stay for the jobs behind it, and the last of those takes them down."""
    desired, job = session.desired, session.job
    if not isinstance(desired, Run) or not desired.create or job is None:
        return
    chosen = after(session.store, session.cluster, session.store.job(session.cluster, job.id), desired.after)
    if chosen is desired.after:
        return
    if chosen is After.KEEP:
        last = behind(session.store, session.cluster, job.id)[-1]
        session.narrator.note(f"'{session.cluster.name}' stays for the queue; job {last.id}, the last, takes it down")
    session.desired = replace(desired, after=chosen)


def _end_queue(store: Store, cluster: ClusterRecord, narrator: Narrator) -> None:
    """Jobs that wait on a cluster that is to go: they must not bring it back."""
    words = f"cluster '{cluster.name}' is taken down"
    count = end_jobs(store, cluster, words, f"orch launch … -c {cluster.name}", waiting=True, begun=False)
    if count:
        narrator.note(f"{count} queued job(s) of '{cluster.name}' are ended too; see: orch events {cluster.name}")


def _detached(session: Session) -> Detached | None:
    """What to say after Ctrl-C when the program runs; None when there is no program yet, or no more."""
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
        f"stopped watching; job {job.id} goes on", next_step=f"{again}\norch cancel {name} {job.id}   to end it"
    )


def _has_no_hosts(session: Session) -> bool:
    """Whether no program can be at work: its slice never was READY, or was last seen to be of no use any more.

    What is only unclear, stopped or starting may hold a program, or the disks of one.
    """
    record = session.store.cluster(session.cluster.name)
    return record is not None and (not record.hosts or record.last_state in _WITHOUT_HOSTS)


def _give_back(session: Session) -> Detached | None:
    """After Ctrl-C while machines are waited for: they are not asked for any more. None when that is not so.

    A request that nobody watches could be granted hours later, and cost. A second Ctrl-C leaves the rest to `down`.
    """
    job, desired, name = session.job, session.desired, session.cluster.name
    current = next((one for one in session.store.intents(session.cluster) if one.state not in FINAL), None)
    if job is None or current is None or not isinstance(desired, Run) or not desired.create:
        return None
    if not _has_no_hosts(session) or current.generation <= session.store.job(session.cluster, job.id).opened_at:
        return None
    session.narrator.note("interrupted while waiting for machines: the request is cancelled (Ctrl-C again: leave it)")
    back = f"orch resume {name}" if desired.checkpoint_uri is not None else ""
    ended = Outcome(Exit.INTERRUPTED, "cancelled", f"job {job.id} was interrupted while it had no machines", "", back)
    session.store.conclude(session.cluster, job.id, ended)
    session.store.want(session.cluster, "down")
    session.job, session.desired = None, Down(name)
    ending = _loop(session, follow=True, recorder=None)
    if not isinstance(ending.step, Done):
        raise OrchError(ending.step.what, ending.step.why, ending.step.next_step)
    left = "nothing is left of it"
    if isinstance(current.candidate.market, CapacityBlock):
        left = f"the {current.candidate.market} stays yours"
    return Detached(f"interrupted; the request for machines was cancelled, {left}", next_step=back)


def _leave(session: Session) -> Ending:
    job = session.job
    assert job is not None  # noqa: S101  # there is a job to leave running
    name = session.cluster.name
    done = Done(f"job {job.id} runs on '{name}'; watch it: orch watch {name}   end it: orch cancel {name}")
    return Ending(done, (), job.id, job.run_id)


def _finish(session: Session, step: Done | GiveUp) -> Ending:
    """The last words: each host's result, the logs into the bucket, the record closed when nothing is left."""
    outcomes = job_outcomes(session)
    if isinstance(session.desired, Cancel) and isinstance(step, Done):
        number = int(session.desired.folder.partition("-")[0])
        cancelled = Outcome(Exit.INTERRUPTED, "cancelled", f"job {number} was cancelled")
        session.store.conclude(session.cluster, number, cancelled)
    if session.job is not None:
        archive_logs(session)
    live = [intent for intent in session.store.intents(session.cluster) if intent.state not in FINAL]
    desired = session.desired
    over = isinstance(step, Done) or not isinstance(desired, Down)
    if isinstance(step, Done):
        _tell_jobs(session)
    if not live and over and _may_close(session):
        session.store.close_cluster(session.keeper.lease, session.cluster)
    job = session.job
    if job is None:
        return Ending(step, outcomes)
    return Ending(step, outcomes, job.id, job.run_id, session.store.ended(session.cluster, job.id))


def _tell_jobs(session: Session) -> None:
    """What the end of this verb means for the jobs of the cluster."""
    store, cluster, name = session.store, session.cluster, session.cluster.name
    match session.desired:
        case Down():
            words = f"cluster '{name}' was taken down"
            end_jobs(store, cluster, words, f"orch resume {name}", waiting=True, begun=True)
        case Stop():
            back = f"orch start {name}   then: orch resume {name}"
            end_jobs(store, cluster, f"cluster '{name}' was stopped", back, waiting=False, begun=True)
            if waiting := behind(store, cluster, 0):
                session.narrator.note(f"{len(waiting)} queued job(s) wait until: orch start {name}")
        case Start():
            store.want(cluster, "up")  # also when it was up already
        case _:
            pass


def _may_close(session: Session) -> bool:
    """Whether nothing more is to come on this record: neither machines nor, for a run, a job that waits."""
    desired, job = session.desired, session.job
    if isinstance(desired, Run) and job is not None and behind(session.store, session.cluster, job.id):
        return False
    if isinstance(desired, Run):
        return desired.create or desired.after is After.DOWN
    return isinstance(desired, Down | Adopt)
