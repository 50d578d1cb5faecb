"""The unattended engine: drives every job that was left to it, finishes every `down` that was cut off, again and again.

It keeps nothing in memory that matters. Killed, it is started again and goes on; several of them, on one computer or on
many with one PostgreSQL, share the work by the watch leases of the jobs.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.engine import prepare
from orchestrator.engine.background import ENGINE
from orchestrator.engine.drive import drive
from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.opening import open_store
from orchestrator.engine.pipeline import attend_pipeline, is_left_to_engines, sources
from orchestrator.engine.snapshots import drop_unused
from orchestrator.engine.watching import watch_lease
from orchestrator.engine.world import World
from orchestrator.errors import ConflictError, OrchError
from orchestrator.paths import Paths
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord, PipelineRecord
from orchestrator.store.store import Store

POLL = 1.0  # seconds between two looks at the store
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
    """narrators: who hears about which job. stop: set it to end after the present steps; nothing is cut off."""

    where: Paths
    world: World
    narrators: Narrators
    stop: threading.Event = field(default_factory=threading.Event)
    _works: dict[str, _Work] = field(default_factory=dict[str, _Work])

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
        return bool(self._wanted(store))

    def _round(self, store: Store) -> bool:
        """Take up what nobody works on; whether nothing is left at all."""
        wanted = self._wanted(store)
        for name, work in wanted.items():
            self._take_up(name, work)
        for name in [name for name in self._works if name not in wanted]:
            thread = self._works[name].thread
            if thread is None or not thread.is_alive():
                del self._works[name]
        return not wanted and not self._works

    def _wanted(self, store: Store) -> dict[str, Callable[[], bool]]:
        """All that an engine should be at, by name."""
        wanted: dict[str, Callable[[], bool]] = {}
        for cluster, job in store.watchable():
            if job.watch == ENGINE and not _behind_another(store, cluster, job):
                wanted[f"job {cluster.uid}/{job.id}"] = partial(self._drive_job, cluster, job)
        for cluster in store.half_down():
            wanted[f"down {cluster.uid}"] = partial(self._finish_down, cluster)
        for pipeline in store.pipelines():
            if pipeline.state == "running" and is_left_to_engines(pipeline):
                wanted[f"pipeline {pipeline.uid}"] = partial(self._drive_pipeline, pipeline)
        return wanted

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
            self.narrators(name, 0).note(f"{name}: {error}; tried again later")
        except Exception as error:  # a fault of ours in one job must not end the others; it is told, and tried again
            self.narrators(name, 0).note(f"{name}: a fault of orch itself: {type(error).__name__}: {error}")

    def _drive_job(self, cluster: ClusterRecord, job: JobRecord) -> bool:
        narrator = self.narrators(cluster.name, job.id)
        with open_store(self.where, self.world) as store, watch_lease(store, cluster, job, narrator) as watcher:
            if not watcher.try_hold():
                return True  # somebody watches it already
            if job.state == "queued":
                _take_from_queue(store, cluster, job)
            ending = drive(prepare.go_on(cluster.name, store.job(cluster, job.id)), narrator, world=self.world)
            over = store.job(cluster, job.id).state == "ended"
        narrator.note(f"job {job.id}: status {ending.status}" if over else f"job {job.id}: to be tried again")
        return over

    def _drive_pipeline(self, record: PipelineRecord) -> bool:
        return attend_pipeline(self.where, self.world, record, self.narrators(record.name, record.stage + 1))

    def _finish_down(self, cluster: ClusterRecord) -> bool:
        ending = drive(prepare.down(cluster.name), self.narrators(cluster.name, 0), world=self.world)
        return ending.status == 0


def _behind_another(store: Store, cluster: ClusterRecord, job: JobRecord) -> bool:
    """Jobs of a cluster run in the order of their numbers; commands (exec) run beside them."""
    return any(other.id < job.id and other.state != "ended" and other.kind != "exec" for other in store.jobs(cluster))


def _take_from_queue(store: Store, cluster: ClusterRecord, job: JobRecord) -> None:
    lease = store.acquire(f"cluster:{cluster.name}", "taking a job from the queue")
    if not isinstance(lease, Lease):
        raise ConflictError(f"'{cluster.name}' is being worked on by {lease}")
    try:
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
                    return False
                attendant.run(until_idle=until_idle)
            if not attendant.has_work(store):
                break
    return True
