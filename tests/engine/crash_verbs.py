"""The commands of the crash matrix: where each begins, what it does, and what must hold after it was repeated."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.driving import Listener
from support.simulated import SimHome, sim_launch, sim_task, simulated
from support.slice_names import slice_name

from orchestrator.engine.operations import sweep
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import ConflictError
from orchestrator.paths import load_paths
from orchestrator.plan.observed import IntentState
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.simulator.programs import Program
from orchestrator.store.leases import Lease
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.task.model import Checkpoint, Recovery, Task

CLUSTER = "c"
ORPHANS = ("lost-1", "lost-2")
FOREIGN = ("theirs", "c-9")  # the second one looks like ours by its name


@dataclass(frozen=True)
class Verb:
    """One command of the matrix.

    Attributes:
        name: Of the command.
        begin: From nothing to the state in which the command starts.
        act: The command, also when it is repeated.
        alive: States of our live slices when it is fulfilled, by name.
        runs: Attempts of the program until then.
        code: Of its result.
        hosts: Of each slice.
    """

    name: str
    begin: Callable[[SimHome], None]
    act: Callable[[SimHome], None]
    alive: dict[str, str]
    runs: int
    code: str = "ok"
    hosts: int = 2


def task() -> Task:
    work = Path(os.environ["ORCH_HOME"]).parent / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "file").write_text("x")
    return sim_task(setup="true", workdir=str(work))


def saving_task() -> Task:
    bucket = Path(os.environ["ORCH_HOME"]).parent / "bucket"
    bucket.mkdir(exist_ok=True)
    return sim_task(checkpoint=Checkpoint(bucket=f"file://{bucket}"), recovery=Recovery(max_failures=0))


def lost_task() -> Task:
    return sim_task(recovery=Recovery(max_preemptions=3, capacity_wait_hours=1.0))


def nothing_yet(home: SimHome) -> None:
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=5.0))
        cloud.set_program("*setup*", Program(seconds=0.5))
        cloud.seed_foreign(FOREIGN[0])
        theirs = {"orch-installation": "another", "orch-cluster": CLUSTER}
        cloud.seed_foreign(FOREIGN[1], theirs, zone=cloud.scenario.zones[1].name)


def launch(home: SimHome, *, hosts: int = 2, spot: bool = False) -> None:
    home.drive(sim_launch(task(), home.candidate(hosts, spot=spot)))


def up(home: SimHome, *, hosts: int = 2, spot: bool = False) -> None:
    nothing_yet(home)
    launch(home, hosts=hosts, spot=spot)


def failed(home: SimHome, *, hosts: int = 2) -> None:
    nothing_yet(home)
    with home.access.open() as cloud:
        cloud.set_program("*", Program(seconds=5.0, exits={"1/*": 3}))
    ending = home.drive(sim_launch(saving_task(), home.candidate(hosts), after=TeardownPolicy.DOWN))
    assert ending.status == 3, ending


def resume(home: SimHome, *, hosts: int = 2) -> None:
    try:
        home.drive(simulated(prepare_resume(CLUSTER, after=TeardownPolicy.KEEP), home.candidate(hosts)))
    except ConflictError as error:  # the kill came after its good end was recorded
        assert "succeeded" in error.what, error


def preempted(home: SimHome, *, hosts: int = 2, spot: bool = True, part: str = "") -> None:
    """part: of a slice in several parts, the one that is lost, such as "-s1"."""
    nothing_yet(home)
    home.drive(sim_launch(lost_task(), home.candidate(hosts, spot=spot)), follow=False)
    with home.access.open() as cloud:
        cloud.preempt(slice_name("c") + part)


def recover(home: SimHome, *, hosts: int = 2, spot: bool = True) -> None:
    """Act as the unattended engine does: resume what is on record."""
    _, job = newest_job()
    if job.state != "ended":
        home.drive(simulated(commands.prepare_continuation(CLUSTER, job), home.candidate(hosts, spot=spot)))


def stop(home: SimHome) -> None:
    home.drive(commands.prepare_stop(CLUSTER))


def stopped(home: SimHome, *, hosts: int = 2) -> None:
    up(home, hosts=hosts)
    stop(home)


def start(home: SimHome) -> None:
    home.drive(commands.prepare_start(CLUSTER))


def down(home: SimHome) -> None:
    with open_reader() as reader:
        left = reader.cluster(CLUSTER)
    if left is not None:
        home.drive(commands.prepare_down(CLUSTER))


def with_orphans(home: SimHome, *, hosts: int = 2) -> None:
    up(home, hosts=hosts)
    with open_reader() as reader:
        ours = reader.installation()
    for name in ORPHANS:
        home.orphan(name, ours or "")
        close_record(home, name)
    home.pass_time(5.0)


def close_record(home: SimHome, name: str) -> None:
    """Record an orphan as deleted: only then is it known to be one."""
    with open_store(load_paths(), home.services()) as store:
        cluster = store.open_cluster(f"of-{name}", "")
        lease = store.acquire(f"cluster:of-{name}", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, name, home.candidate(), f"token-{name}", "")
        store.update_intent(lease, cluster, name, IntentState.DELETED)
        store.close_cluster(lease, cluster)
        store.release(lease)


def reap(home: SimHome) -> None:
    world, where = home.services(), load_paths()
    with home.points.commits(), open_store(where, world) as store:
        found = sweep.judge_owned_slices(store, world, [home.provider_name])
        assert all(finding.problem is None for finding in found), found
        done = sweep.end_orphans(store, world, Listener(), found)
    assert all(one.problem is None for one in done), done


def newest_job() -> tuple[ClusterRecord, JobRecord]:
    with open_reader() as reader:
        cluster = reader.cluster(CLUSTER) or reader.deleted_cluster(CLUSTER)
        assert cluster is not None
        return cluster, reader.jobs(cluster)[-1]


READY, STOPPED = {"c-1": "ready"}, {"c-1": "stopped"}
VERBS = (
    Verb("launch", nothing_yet, launch, READY, 1),
    Verb("resume", failed, resume, READY, 2),
    Verb("recover", preempted, recover, {"c-2": "ready"}, 2),
    Verb("stop", up, stop, STOPPED, 1),
    Verb("start", stopped, start, READY, 1),
    Verb("down", up, down, {}, 1),
    Verb("reap", with_orphans, reap, READY, 1),
)


@contextmanager
def matrix_folder(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Use a folder in memory if there is one: the disk's own speed is not under test."""
    monkeypatch.setenv("ORCH_HOME", "")
    monkeypatch.setenv("ORCH_STORE", "")
    memory = Path("/dev/shm")  # a separate folder is made in it
    root = Path(tempfile.mkdtemp(prefix="orch-matrix-", dir=memory if os.access(memory, os.W_OK) else None))
    gc.collect()
    gc.freeze()  # children that are forked share what is there
    yield root
    gc.unfreeze()
    shutil.rmtree(root, ignore_errors=True)
