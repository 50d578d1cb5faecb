"""The unattended engine: drives every job that was left to it, finishes every `down` that was cut off, again and again.

It keeps nothing in memory that matters. Killed, it is started again and goes on; several of them, on one computer or on
many with one PostgreSQL, share the work by the watch leases of the jobs.
"""

from __future__ import annotations

import json
import os
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from orchestrator.engine import prepare
from orchestrator.engine.background import ALSO_FOR
from orchestrator.engine.drive import drive
from orchestrator.engine.entrusted import has_secrets, lack, trace_of
from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.opening import open_store
from orchestrator.engine.pipeline import attend_pipeline, is_left_to_engines, lacks, sources
from orchestrator.engine.snapshots import drop_unused
from orchestrator.engine.turns import is_watched
from orchestrator.engine.watching import watch_lease
from orchestrator.engine.world import World
from orchestrator.errors import ConflictError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.paths import Paths
from orchestrator.plan.observed import Outcome
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord
from orchestrator.store.store import Store

POLL = 1.0  # seconds between two looks at the store
TELL_LACKING = 10.0  # seconds; the engine that has the secrets may only be starting
FIRST_RETRY = 15.0  # seconds after a try that failed for a reason outside of the job
LAST_RETRY = 600.0

Narrators = Callable[[str, int], Narrator]  # of a cluster's name and a job's number


@dataclass
class _Work:
    """One thing that a thread is at, or that waits for its next try."""

    thread: threading.Thread | None = None
    tries: int = 0
    not_before: float = 0.0


@dataclass
class Attendant:
    """narrators: who hears about which job. stop: set it to end after the present steps; nothing is cut off.

    only_secret: take only what has secrets, and only when all of them are in this process's environment.
    """

    where: Paths
    world: World
    narrators: Narrators
    stop: threading.Event = field(default_factory=threading.Event)
    only_secret: bool = False
    _works: dict[str, _Work] = field(default_factory=dict[str, _Work])
    _expecting: bool = False
    _told: dict[str, str] = field(default_factory=dict[str, str])
    _lacking: dict[str, float] = field(default_factory=dict[str, float])  # since when, by name

    def run(self, *, until_idle: bool) -> None:
        """Work until `stop` is set; until_idle: or until nothing is left that an engine could do."""
        with open_store(self.where, self.world) as store:
            while not self.stop.is_set():
                idle = self._round(store)
                if idle and until_idle:
                    drop_unused(self.where, _kept(store))
                    return
                self.stop.wait(POLL)

    def has_work(self, store: Store) -> bool:
        return bool(self._wanted(store)) or self._expecting

    def _round(self, store: Store) -> bool:
        """Take up what nobody works on; whether nothing is left at all."""
        wanted = self._wanted(store)
        for name, work in wanted.items():
            self._take_up(name, work)
        for name in [name for name in self._works if name not in wanted]:
            thread = self._works[name].thread
            if thread is None or not thread.is_alive():
                del self._works[name]
        return not wanted and not self._works and not self._expecting

    def _wanted(self, store: Store) -> dict[str, Callable[[], bool]]:
        """All that an engine should be at, by name."""
        wanted: dict[str, Callable[[], bool]] = {}
        self._expecting = False
        for cluster, job in store.watchable():
            if cluster.wanted != "up":
                continue  # on its way out, or stopped: `orch start` lets its queue go on
            first = _first_in_line(store, cluster, job)
            if first.id != job.id and _lacks(job) is None and (has_secrets(job.task) or not self.only_secret):
                self._expecting = True  # its turn comes, whoever drives the one in front of it
            watched = partial(is_watched, store, cluster, first)
            if self._can(f"job {first.id} of '{cluster.name}'", first.task, _lacks(first), watched):
                wanted[f"job {cluster.uid}/{first.id}"] = partial(self._drive_job, cluster, first)
        for cluster in () if self.only_secret else store.half_down():
            wanted[f"down {cluster.uid}"] = partial(self._finish_down, cluster)
        for pipeline in store.pipelines():
            if pipeline.state != "running" or not is_left_to_engines(pipeline):
                continue
            if self._can(
                f"pipeline '{pipeline.name}'", pipeline.tasks[pipeline.stage], lacks(pipeline, os.environ), bool
            ):
                wanted[f"pipeline {pipeline.uid}"] = partial(self._drive_pipeline, pipeline)
        return wanted

    def _can(self, name: str, task: str, lacking: UserError | None, watched: Callable[[], bool]) -> bool:
        """Whether this engine has the secrets for it. What nobody has them for is told, after a while."""
        if lacking is None:
            self._lacking.pop(name, None)
            return has_secrets(task) or not self.only_secret
        if self.only_secret or name in self._told:
            return False
        now = self.world.clock.now()
        since = self._lacking.setdefault(name, now)
        if now - since < TELL_LACKING:
            self._expecting = True
        elif now - since < 2 * TELL_LACKING and not watched():
            self._record(name, f"{lacking}, so it is left alone; export it, then: orch watch CLUSTER")
        return False

    def _take_up(self, name: str, work: Callable[[], bool]) -> None:
        state = self._works.setdefault(name, _Work())
        now = self.world.clock.now()
        if (state.thread is not None and state.thread.is_alive()) or now < state.not_before:
            return
        state.tries += 1
        state.not_before = now + min(FIRST_RETRY * 2 ** min(state.tries - 1, 10), LAST_RETRY)
        state.thread = threading.Thread(target=self._guarded, args=(name, state, work), daemon=True, name=name)
        state.thread.start()

    def _guarded(self, name: str, state: _Work, work: Callable[[], bool]) -> None:
        """A try that fails is told and made again later; one that went on for long begins its pauses anew."""
        began = self.world.clock.now()
        try:
            if work() or self.world.clock.now() - began > LAST_RETRY:
                state.tries, state.not_before = 0, 0.0
        except ConflictError:
            state.tries, state.not_before = 0, self.world.clock.now() + POLL  # another orch is at it
        except OrchError as error:
            self._record(name, f"{error}; tried again later")
        except Exception as error:  # a fault of ours in one job must not end the others; it is told, and tried again
            self.narrators(name, 0).note(f"{name}: a fault of orch itself: {type(error).__name__}: {error}")

    def _record(self, name: str, words: str) -> None:
        """In the log and for `orch events`, where people look first; the same words once."""
        if self._told.get(name) == words:
            return
        self._told[name] = words
        self.narrators("engine", 0).note(f"{name}: {words}")
        try:
            with open_store(self.where, self.world) as store:
                store.event("", "engine", f"{name}: {words}")
        except OrchError as error:
            self.narrators(name, 0).note(f"that could not be recorded: {error}")

    def _drive_job(self, cluster: ClusterRecord, job: JobRecord) -> bool:
        narrator = self.narrators(cluster.name, job.id)
        with open_store(self.where, self.world) as store, watch_lease(store, cluster, job, narrator) as watcher:
            if not watcher.try_hold():
                return True  # somebody watches it already
            _begin(store, cluster, job)
            current = store.job(cluster, job.id)
            if current.state == "ended":
                return True
            ready = replace(prepare.go_on(cluster.name, current), of=cluster.uid)
            ending = drive(ready, narrator, world=self.world)
            over = store.job(cluster, job.id).state == "ended"
        narrator.note(f"job {job.id}: status {ending.status}" if over else f"job {job.id}: to be tried again")
        return over

    def _drive_pipeline(self, record: PipelineRecord) -> bool:
        return attend_pipeline(self.where, self.world, record, self.narrators(record.name, record.stage + 1))

    def _finish_down(self, cluster: ClusterRecord) -> bool:
        ending = drive(prepare.down(cluster.name), self.narrators(cluster.name, 0), world=self.world)
        return ending.status == 0


def _first_in_line(store: Store, cluster: ClusterRecord, job: JobRecord) -> JobRecord:
    """Jobs of a cluster run in the order of their numbers; commands (exec) run beside them.

    The one in front may have been left by a command in the foreground: somebody has to see its end.
    """
    ahead = [one for one in store.jobs(cluster) if one.id <= job.id and one.state != "ended" and one.kind != "exec"]
    return ahead[0] if ahead else job


def _begin(store: Store, cluster: ClusterRecord, job: JobRecord) -> None:
    """Take it from the queue; what a command in the foreground never started is given up. Raises ConflictError."""
    left = not job.watch and not job.started
    if job.state != "queued" and not left:
        return
    lease = store.acquire(f"cluster:{cluster.name}", "taking a job from the queue")
    if not isinstance(lease, Lease):
        raise ConflictError(f"'{cluster.name}' is being worked on by {lease}")
    try:
        if left and not store.job(cluster, job.id).started:
            words = f"job {job.id} was never started, and nobody is at it; the next one takes its place"
            store.conclude(cluster, job.id, Outcome(Exit.INTERRUPTED, "abandoned", words), lease=lease)
        else:
            store.take_from_queue(lease, cluster, job.id)
    finally:
        store.release(lease)


def _kept(store: Store) -> set[str]:
    """Digests of the snapshots that jobs may still need."""
    used: set[str] = set()
    for _, job in store.watchable():
        for source in json.loads(job.wish or "{}").get("trees", {}).values():
            used.add(Path(source).parent.name)
    for pipeline in store.pipelines():
        used |= sources(pipeline) if pipeline.state == "running" else set()
    return used


def only_one(attendant: Attendant, *, until_idle: bool) -> bool:
    """Run it unless another engine of this computer is at work; False then.

    A job that comes while the last engine ends is not forgotten: its launch puts it on record before it looks for an
    engine, and an engine that ends gives its lease back before it looks for jobs a last time.
    """
    name = platform.node()
    narrator = attendant.narrators("engine", 0)
    with open_store(attendant.where, attendant.world) as store:
        while not attendant.stop.is_set():
            with LeaseKeeper(store, name, "unattended engine", narrator, kind="engine") as keeper:
                if not keeper.try_hold():
                    return _beside(attendant, store, name, until_idle=until_idle)
                attendant.run(until_idle=until_idle)
            if not attendant.has_work(store):
                break
    return True


def _beside(attendant: Attendant, store: Store, name: str, *, until_idle: bool) -> bool:
    """Beside the computer's engine: one more for jobs with the secrets that this process was started with, if any."""
    names = [one for one in os.environ.get(ALSO_FOR, "").split(",") if one in os.environ]
    if not names:
        return False
    mine = trace_of(store.installation, {one: os.environ[one] for one in names})
    attendant.only_secret = True
    narrator = attendant.narrators("engine", 0)
    with LeaseKeeper(store, f"{name}/{mine}", "unattended engine", narrator, kind="engine") as keeper:
        if not keeper.try_hold():
            return False
        attendant.run(until_idle=until_idle)
    return True


def _lacks(job: JobRecord) -> UserError | None:
    trace = str(json.loads(job.wish or "{}").get("secrets", ""))
    return lack(job.task, job.digest, trace, os.environ)
