"""The unattended engine: drives every job that was handed to it, and finishes every interrupted `down`.

It keeps nothing in memory that matters. Killed, it is started again and continues; several of them, on one computer or
on many with one PostgreSQL, share the work by the watch leases of the jobs.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from orchestrator.computer import name_engine
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.loop.queue import is_watched
from orchestrator.engine.loop.watch_lease import watch_lease
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.member_access import list_withdrawals, withdraw_members
from orchestrator.engine.preparation import commands
from orchestrator.engine.services import Services
from orchestrator.engine.state.kept_files import list_used_trees
from orchestrator.engine.state.kept_trees import drop_unused_trees
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.old_output import drop_old_output
from orchestrator.engine.state.opening import open_store, refuse_creation, refuse_other_key
from orchestrator.engine.state.shared_trees import drop_unused_blobs
from orchestrator.engine.state.store_backup import back_up_if_due
from orchestrator.engine.unattended.handover import ENGINE_ENV_NAMES
from orchestrator.engine.unattended.kept_progress import KEPT_SECONDS, ProgressKeeper
from orchestrator.engine.unattended.notifier import notifying
from orchestrator.engine.unattended.orders import attend_order
from orchestrator.engine.unattended.pipeline import (
    attend_pipeline,
    is_unattended,
    missing_pipeline_secret,
)
from orchestrator.engine.unattended.secrets import has_secrets, missing_secret_error, secrets_fingerprint
from orchestrator.engine.unattended.shared_files import SharedOpenFiles
from orchestrator.errors import ConflictError, CredentialsError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.open_files import explain_exhaustion
from orchestrator.paths import Paths
from orchestrator.plan.desired import Desired, Run
from orchestrator.plan.observed import Outcome
from orchestrator.plan.steps import GiveUp
from orchestrator.project import qualify_name
from orchestrator.retries import UNATTENDED_WORK
from orchestrator.store.channel_records import ENGINE
from orchestrator.store.leases import Lease
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord
from orchestrator.store.store import Store

POLL = 1.0  # seconds between two polls of the store
LOGIN_POLL = 15.0  # seconds between two tries with credentials that a cloud does not accept
DROP_EVERY = 3600.0  # seconds between two deletions of files that no job needs
TURN_POLL = 2.0  # seconds between two looks whether another engine of this computer has ended
REPORT_MISSING_AFTER = 10.0  # seconds; the engine that has the secrets may only be starting

Narrators = Callable[[str, int], Narrator]  # of a cluster's name and a job's number


@dataclass
class _Work:
    """One item that a thread works on, or that waits for its next try."""

    thread: threading.Thread | None = None
    tries: int = 0
    not_before: float = 0.0


@dataclass(kw_only=True)
class UnattendedEngine:
    """Drives recorded work, one thread per job, pipeline or interrupted `down`.

    Attributes:
        where: The folders of this installation.
        services: The external services.
        narrators: Makes the narrator of a job.
        stop: Set it to end after the present steps; nothing is interrupted.
        only_secret: Whether to take only work that has secrets, and only when this process has all of them.
        files: What the clusters share of this process's open files.
    """

    where: Paths
    services: Services
    narrators: Narrators
    stop: threading.Event = field(default_factory=threading.Event)
    only_secret: bool = False
    files: SharedOpenFiles = field(default_factory=SharedOpenFiles)
    _progress: ProgressKeeper = field(init=False)
    _works: dict[str, _Work] = field(default_factory=dict[str, _Work])
    _work_expected: bool = False
    _next_drop: float = 0.0
    _reported: dict[str, str] = field(default_factory=dict[str, str])
    _secret_missing_since: dict[str, float] = field(default_factory=dict[str, float])  # since when, by name

    def __post_init__(self) -> None:
        self._progress = ProgressKeeper(open_store=lambda: open_store(self.where, self.services))

    def run(self, *, until_idle: bool) -> None:
        """Work until `stop` is set, or with `until_idle` until nothing is left that an engine could do."""
        try:
            self._work(until_idle=until_idle)
        finally:
            self._progress.close()

    def _work(self, *, until_idle: bool) -> None:
        with open_store(self.where, self.services) as store:
            while not self.stop.is_set():
                idle = self._round(store)
                back_up_if_due(self.where, self.narrators("engine", 0).note)
                if idle and until_idle:
                    self._drop_unused(store)
                    return
                if self.services.clock.now() >= self._next_drop:
                    self._next_drop = self.services.clock.now() + DROP_EVERY
                    self._drop_unused(store)
                self.stop.wait(POLL)

    def _drop_unused(self, store: Store) -> None:
        used = list_used_trees(store, self.services.clock.now())
        drop_unused_trees(self.where, used)
        for bucket, error in drop_unused_blobs(store, used).items():
            if (name := f"unused files in {bucket}") not in self._reported:
                self._record(name, f"{error}; tried again each hour")
        drop_old_output(self.where, store.unfinished_jobs())
        store.drop_progress(KEPT_SECONDS)

    def has_work(self, store: Store) -> bool:
        """Return whether there is work for this engine, now or soon."""
        return bool(self._pending_work(store)) or self._work_expected

    def _round(self, store: Store) -> bool:
        """Start work that no process does, and return whether nothing is left at all."""
        pending = self._pending_work(store)
        for name, work in pending.items():
            self._start_work(name, work)
        for name in [name for name in self._works if name not in pending]:
            thread = self._works[name].thread
            if thread is None or not thread.is_alive():
                del self._works[name]
        return not pending and not self._works and not self._work_expected

    def _pending_work(self, store: Store) -> dict[str, Callable[[], bool]]:
        """Return all that an engine should do, by name."""
        pending: dict[str, Callable[[], bool]] = {}
        self._work_expected = False
        for cluster, job in store.unattended_jobs():
            if cluster.desired_state != "up":
                continue  # being taken down, or stopped: `orch start` resumes its queue
            first = _first_in_line(store, cluster, job)
            if first.id != job.id and _missing_secret(job) is None and (has_secrets(job.task) or not self.only_secret):
                self._work_expected = True  # its turn comes, whoever drives the job in front of it
            watched = partial(is_watched, store, cluster, first)
            if self._may_take(f"job {first.id} of '{cluster.name}'", first.task, _missing_secret(first), watched):
                pending[f"job {cluster.uid}/{first.id}"] = partial(self._drive_job, cluster, first)
        for cluster in () if self.only_secret else store.clusters_going_down():
            pending[f"down {cluster.uid}"] = partial(self._finish_down, cluster)
        for order in () if self.only_secret else store.open_orders():
            pending[f"order {order.uid}"] = partial(self._carry_out_order, order)
        for cluster in () if self.only_secret else list_withdrawals(store, self.services.clock.now()):
            pending[f"access {cluster.uid}"] = partial(self._withdraw_access, cluster)
        for pipeline in store.unended_pipelines():
            if not is_unattended(pipeline):
                continue
            if self._may_take(
                f"pipeline '{pipeline.name}'",
                pipeline.tasks[pipeline.stage],
                missing_pipeline_secret(pipeline, os.environ),
                bool,
            ):
                pending[f"pipeline {pipeline.uid}"] = partial(self._drive_pipeline, pipeline)
        return pending

    def _may_take(self, name: str, task: str, missing: UserError | None, watched: Callable[[], bool]) -> bool:
        """Return whether this engine has the secrets of the work; report those that no engine has, after a while."""
        if missing is None:
            self._secret_missing_since.pop(name, None)
            return has_secrets(task) or not self.only_secret
        if self.only_secret or name in self._reported:
            return False
        now = self.services.clock.now()
        since = self._secret_missing_since.setdefault(name, now)
        if now - since < REPORT_MISSING_AFTER:
            self._work_expected = True
        elif now - since < 2 * REPORT_MISSING_AFTER and not watched():
            self._record(name, f"{missing}, so it is left alone; export it, then: orch watch CLUSTER")
        return False

    def _start_work(self, name: str, work: Callable[[], bool]) -> None:
        state = self._works.setdefault(name, _Work())
        now = self.services.clock.now()
        if (state.thread is not None and state.thread.is_alive()) or now < state.not_before:
            return
        state.tries += 1
        state.not_before = now + UNATTENDED_WORK.pause(state.tries, 0.0)
        state.thread = threading.Thread(target=self._guarded, args=(name, state, work), daemon=True, name=name)
        state.thread.start()

    def _guarded(self, name: str, state: _Work, work: Callable[[], bool]) -> None:
        """Do the work. A failed try is reported and repeated later; a long one resets the pauses."""
        began = self.services.clock.now()
        try:
            if work() or self.services.clock.now() - began > UNATTENDED_WORK.longest:
                state.tries, state.not_before = 0, 0.0
            self._reported.pop(name, None)
        except CredentialsError as error:
            self.services.reopen_providers()
            state.tries, state.not_before = 0, self.services.clock.now() + LOGIN_POLL
            self._record(name, f"{error}; it continues once you have run: {error.next_step}")
        except ConflictError:
            state.tries, state.not_before = 0, self.services.clock.now() + POLL  # another orch works on it
        except OrchError as error:
            self._record(name, f"{error}; tried again later")
        except Exception as error:  # a defect met in one job must not end the others; it is reported and retried
            if (shortage := explain_exhaustion(error)) is not None:
                self._record(name, f"{shortage}; tried again later")
                return
            self._record(name, f"a defect of orch: {type(error).__name__}: {error}; tried again later")

    def _record(self, name: str, message: str) -> None:
        """Report the message in the log and in `orch events`; a repeated message once."""
        if self._reported.get(name) == message:
            return
        self._reported[name] = message
        self.narrators("engine", 0).note(f"{name}: {message}")
        try:
            with open_store(self.where, self.services) as store:
                store.event("", ENGINE, f"{name}: {message}")
        except OrchError as error:
            self.narrators(name, 0).note(f"that could not be recorded: {error}")

    def _drive_job(self, cluster: ClusterRecord, job: JobRecord) -> bool:
        log = self.narrators(cluster.name, job.id)
        narrator = self._progress.narrate(cluster.qualified_name, f"job {job.id}", log)
        with open_store(self.where, self.services) as store, watch_lease(store, cluster, job, narrator) as watcher:
            if not watcher.try_hold():
                return True  # another process watches it already
            _begin(store, cluster, job)
            current = store.job(cluster, job.id)
            if current.state == "ended":
                return True
            again = commands.prepare_continuation(cluster.name, current, project=cluster.project)
            ready = replace(again, continued_uid=cluster.uid)
            with self.files.reserve(_count_hosts(ready.desired)):
                ending = drive_cluster(ready, narrator, services=self.services)
            over = store.job(cluster, job.id).state == "ended"
        if not over and isinstance(ending.step, GiveUp):
            raise ending.step.make_error()
        log.note(f"job {job.id}: status {ending.status}" if over else f"job {job.id}: to be tried again")
        return over

    def _drive_pipeline(self, record: PipelineRecord) -> bool:
        return attend_pipeline(self.where, self.services, record, self.narrators(record.name, record.stage + 1))

    def _carry_out_order(self, order: OrderRecord) -> bool:
        name = qualify_name(order.project, order.cluster)
        narrator = self._progress.narrate(name, f"order {order.uid}", self.narrators(order.cluster, 0))
        attend_order(self.where, self.services, order, narrator)
        return True

    def _withdraw_access(self, cluster: ClusterRecord) -> bool:
        with open_store(self.where, self.services, "access of members", cluster.project) as store:
            withdraw_members(store, self.services, self.where, self.narrators(cluster.name, 0), cluster)
        return True

    def _finish_down(self, cluster: ClusterRecord) -> bool:
        ready = commands.prepare_down(cluster.name, force=True, project=cluster.project)
        ready = replace(ready, forced="")  # whoever announced the teardown is in the audit
        ending = drive_cluster(ready, self.narrators(cluster.name, 0), services=self.services)
        return ending.status == 0


def _count_hosts(desired: Desired) -> int:
    """Return how many hosts a command may connect to at the same time."""
    return max((one.hosts for one in desired.possible), default=0) if isinstance(desired, Run) else 0


def _first_in_line(store: Store, cluster: ClusterRecord, job: JobRecord) -> JobRecord:
    """Return the first unfinished job up to this one: jobs of a cluster run in order, commands (exec) run beside them.

    A command in the foreground may have left the first one, and its end must be observed.
    """
    ahead = [one for one in store.jobs(cluster) if one.id <= job.id and one.state != "ended" and one.kind != "exec"]
    return ahead[0] if ahead else job


def _begin(store: Store, cluster: ClusterRecord, job: JobRecord) -> None:
    """Take the job from the queue; end one that a command in the foreground never started.

    Raises:
        ConflictError: Another command works on the cluster.
    """
    left = not job.watch and not job.started
    if job.state != "queued" and not left:
        return
    lease = store.acquire(f"cluster:{cluster.qualified_name}", "taking a job from the queue")
    if not isinstance(lease, Lease):
        raise ConflictError(f"'{cluster.name}' is being worked on by {lease}", next_step="it is tried again")
    try:
        if left and not store.job(cluster, job.id).started:
            message = f"job {job.id} was never started, and no process works on it; the next one replaces it"
            store.record_outcome(
                cluster, job.id, Outcome(status=Exit.INTERRUPTED, code="abandoned", what=message), lease=lease
            )
        else:
            store.take_from_queue(lease, cluster, job.id)
    finally:
        store.release(lease)


def run_single_engine(engine: UnattendedEngine, *, until_idle: bool) -> bool:
    """Run the engine, one at a time on a computer; return whether it ran.

    With `until_idle` it ends when another one works already: that one has its work too. Otherwise it waits, and takes
    over when the other has ended or was killed.

    A job that arrives while the last engine ends is not lost: its launch records it before it looks for an engine, and
    an ending engine gives its lease back before it looks for jobs a last time.
    """
    name = name_engine(os.environ)
    narrator = engine.narrators("engine", 0)
    with open_store(engine.where, engine.services) as store:
        refuse_creation(store)
        refuse_other_key(store, engine.where)
        with notifying(engine.where, engine.services, narrator, engine.stop) as notifier:
            while not engine.stop.is_set():
                with LeaseKeeper(store, name, "unattended engine", narrator, kind="engine") as keeper:
                    held = keeper.try_hold() or (not until_idle and _await_turn(engine, keeper, narrator))
                    if not held:
                        return not until_idle or _run_for_secrets(engine, store, name)
                    notifier.start()
                    engine.run(until_idle=until_idle)
                if not engine.has_work(store):
                    notifier.deliver_rest()
                    break
    return True


def _await_turn(engine: UnattendedEngine, keeper: LeaseKeeper, narrator: Narrator) -> bool:
    """Wait until the engine that works on this computer is gone; return False when this one was stopped before."""
    narrator.note("an engine works on this computer already; this one takes over when that ends")
    while not engine.stop.wait(TURN_POLL):
        if keeper.try_hold():
            narrator.note("this engine works now")
            return True
    return False


def _run_for_secrets(engine: UnattendedEngine, store: Store, name: str) -> bool:
    """Run beside the computer's engine, for jobs with the secrets that this process was started with, if any."""
    names = [one for one in os.environ.get(ENGINE_ENV_NAMES, "").split(",") if one in os.environ]
    if not names:
        return False
    mine = secrets_fingerprint(store.installation, {one: os.environ[one] for one in names})
    engine.only_secret = True
    narrator = engine.narrators("engine", 0)
    with LeaseKeeper(store, f"{name}/{mine}", "unattended engine", narrator, kind="engine") as keeper:
        if not keeper.try_hold():
            return False
        engine.run(until_idle=True)
    return True


def _missing_secret(job: JobRecord) -> UserError | None:
    trace = str(json.loads(job.launch_request or "{}").get("secrets", ""))
    return missing_secret_error(job.task, job.digest, trace, os.environ)
