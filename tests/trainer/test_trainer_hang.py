"""A run that hangs, on real hosts: the hang is detected, and the stacks of every rank show where."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.sshd import Farm, sshd_farm
from trainer_ranks import REPOSITORY, SMALL, Launcher, free_port

from orchestrator.engine.operations.profile import ProfileRequest, record_on_hosts
from orchestrator.hosts import EndedBy, HostJob, JobPhase
from orchestrator.remote import jobs, stacks
from orchestrator.remote.fleet import Fleet

SPY = Path(sys.executable).parent / "py-spy"

# The trainer, with a mistake of its user's: from some step on rank 1 takes a lock twice.
DEADLOCK = """
import os, sys, threading
from trainer.__main__ import exit_process, main
from trainer.data.batches import BatchLoader
take, lock = BatchLoader.take_rows, threading.Lock()
def take_with_a_lock(self, step):
    if os.environ["RANK"] == "1" and os.path.exists(os.environ["ORCH_JOB_DIR"] + "/hang"):
        lock.acquire()
        takes_it_again()
    return take(self, step)
def takes_it_again():
    lock.acquire()
BatchLoader.take_rows = take_with_a_lock
exit_process(main(sys.argv[1:]))
"""


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with sshd_farm(tmp_path / "farm", 2) as farm:
        yield farm


def until(condition: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


def run_text(python: str, program: str, corpus: Path) -> bytes:
    """Start two ranks on each host, as a launcher does for two devices."""
    words = [python, "-c", program, *SMALL, f"data={corpus}", "steps=1000000", "compile=false"]
    ranks = (REPOSITORY / "templates/run/ranks.sh.j2").read_text()
    return f"#!/bin/bash\nset -e -- {shlex.join(words)}\nORCH_RANKS_PER_HOST=2\n{ranks}".encode()


def profiled(fleet: Fleet, farm: Farm, folder: Path) -> None:
    """The stacks of all ranks of all hosts, labelled and on one clock, so that waiting ranks can be matched."""
    for host in farm.hosts:
        trainer = host.rank_folder / "trainer/trainer"
        trainer.mkdir(parents=True)
        (trainer / "profiling.py").touch()  # one that knows profiles
    found = record_on_hosts(
        fleet,
        "hang",
        "p",
        ProfileRequest(cluster="c", steps=4, first_only=False, into=folder, wait=60.0),
        lambda _done, _total: None,
    )
    assert (found.ranks, found.failed) == ((0, 1, 2, 3), ())
    assert found.merged is not None and found.merged.one_clock
    events = json.loads(gzip.decompress(found.merged.file.read_bytes()))["traceEvents"]
    owners = {event["pid"]: event["args"]["name"][:6] for event in events if event["name"] == "process_name"}
    assert set(owners.values()) == {f"rank {rank}" for rank in range(4)}
    spans: dict[str, list[float]] = {}
    for event in events:
        if event["name"] == "c10d::allreduce_" and event["ph"] == "X":
            spans.setdefault(owners[event["pid"]], []).extend((event["ts"], event["ts"] + event["dur"]))
    assert len(spans) == 4
    assert max(map(min, spans.values())) < min(map(max, spans.values())), f"not the same steps: {spans}"


@pytest.mark.promise("P35")
@pytest.mark.slow
def test_deadlock_of_one_rank_is_detected_and_named_by_the_stacks(farm: Farm, corpus: Path, tmp_path: Path) -> None:
    """Run two ranks on each of two hosts, after a profile."""
    python = tmp_path / "bin" / "python"  # the same interpreter by a path with no py-spy beside it
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    names = {
        "ORCH_NUM_HOSTS": "2",
        "ORCH_RUN_ID": "hang",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "ORCH_LOCAL_RANKS_PER_MACHINE": "2",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *(path for path in sys.path if path.endswith("-packages"))]),
    }
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in names.items())

    with Fleet(farm.addresses, deadline=20) as fleet:

        def states() -> list[HostJob]:
            return list(jobs.read_job_status(fleet, "hang").jobs)

        started = jobs.start_job(
            fleet,
            "hang",
            run_text(str(python), DEADLOCK, corpus),
            env=lambda host: f"{lines}export ORCH_RANK={host.rank}\n".encode(),
        )
        assert started.ok, started.failed
        until(lambda: any(state.doing == "starting" and state.step is None for state in states()), 60)
        until(lambda: all(state.doing == "training" for state in states()), 90)
        profiled(fleet, farm, tmp_path / "into")
        (farm.hosts[0].rank_folder / "jobs/hang/hang").touch()
        time.sleep(2)
        steps = [state.step for state in states()]
        first = [state.beat_age for state in states()]
        time.sleep(1.2)
        later = states()
        # It runs, but no rank moves, and no beat thread hides it.
        assert [(state.phase, state.step) for state in later] == [(JobPhase.RUNNING, step) for step in steps]
        assert all(now.beat_age and was and now.beat_age - was > 1 for now, was in zip(later, first, strict=True))

        reported, failed = stacks.collect_stacks(fleet, "hang")
        assert failed == ()
        assert b"in takes_it_again" in reported[0], reported[0].decode()
        waiting = [reported[host].count(b'torch_engine/engine.py"') for host in (0, 1)]  # for rank 1
        assert waiting == [1, 2], reported[1].decode()
        assert "takes_it_again" in (farm.hosts[0].rank_folder / "jobs/hang/stacks-1.txt").read_text()

        for host in farm.hosts if SPY.exists() else ():  # the same again, by py-spy in the environment that setup makes
            link = host.home / ".orch" / "venv" / "bin" / "py-spy"
            link.parent.mkdir(parents=True)
            link.symlink_to(SPY)
        if SPY.exists():
            reported, failed = stacks.collect_stacks(fleet, "hang")
            assert failed == ()
            assert b"takes_it_again (" in reported[0], reported[0].decode()
            assert b"step (trainer/torch_engine/engine.py" in reported[1], reported[1].decode()
        assert [state.phase for state in states()] == [JobPhase.RUNNING] * 2
        assert jobs.kill_job(fleet, "hang", EndedBy.CANCEL, grace=0.5).ok


def test_stack_dump_does_not_disturb_a_run(launch: Launcher, tmp_path: Path) -> None:
    """Request the stacks in the middle of a run; it continues to its end."""
    ranks = launch.toy(1, "steps=400", environment={"ORCH_JOB_DIR": str(tmp_path), "TOY_SECONDS": "0.002"})
    ranks.wait_for("step 20/400")
    pid, _ = map(int, (tmp_path / "stacks-0.pid").read_text().split())
    assert pid == ranks.processes[0].pid
    for _ in range(50):
        ranks.signal(0, signal.SIGQUIT)
        time.sleep(0.005)
    ranks.ok()
    assert "in _steps" in (tmp_path / "stacks-0.txt").read_text()


def test_native_code_that_keeps_the_interpreter_lock_is_shown_by_its_stacks(tmp_path: Path) -> None:
    """Ask a process that no Python thread can run in: only the second signal can answer."""
    job = tmp_path / "jobs/job"
    job.mkdir(parents=True)
    python = tmp_path / "python"  # the same interpreter by a path with no py-spy beside it
    python.symlink_to(Path(sys.executable).resolve())
    text = """
import itertools, os
from trainer.stacks import enable_stack_dumps
def keeps_the_lock():
    sum(itertools.repeat(0))  # one call into C that never ends
enable_stack_dumps(os.environ, 0)
keeps_the_lock()
"""
    names = {"HOME": str(tmp_path), "ORCH_HOST_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "ORCH_JOB_DIR": str(job)}
    with subprocess.Popen([python, "-c", text], cwd=REPOSITORY, env=names) as hung:
        try:
            until((job / "stacks-0.pid").exists, 20)
            time.sleep(0.5)
            words = ["sh", REPOSITORY / "templates/remote/job-stacks.sh", "job", "30", "100000"]
            shown = subprocess.run(words, env=names, capture_output=True, text=True, timeout=60, check=True).stdout
        finally:
            hung.kill()
    assert "in keeps_the_lock" in shown


def test_without_a_job_folder_the_signal_ends_the_program_as_usual(launch: Launcher) -> None:
    ranks = launch.toy(1, "steps=100000", environment={"TOY_SECONDS": "0.01"})
    ranks.wait_for("step 5/")
    ranks.signal(0, signal.SIGQUIT)
    assert ranks.wait() == [-signal.SIGQUIT]


def test_unwritable_job_folder_is_reported_in_one_line(launch: Launcher, tmp_path: Path) -> None:
    ranks = launch.toy(1, "steps=2", environment={"ORCH_JOB_DIR": str(tmp_path / "absent")}).ok()
    assert ranks.text().count("note: rank 0 offers no stack dumps") == 1


def test_crash_in_native_code_leaves_its_stacks_in_the_log() -> None:
    text = "import os; from trainer.stacks import enable_stack_dumps; enable_stack_dumps({}, 0); os.abort()"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr


def test_new_phase_is_written_to_the_heartbeat_immediately(tmp_path: Path) -> None:
    from trainer.console import Console
    from trainer.environment import World
    from trainer.heartbeat import Heartbeat

    beat = Heartbeat(tmp_path / "beat", World(), Console(World()).print_on_every)
    reported: list[tuple[int | None, str]] = []
    for step, phase in ((None, "starting"), (1, "training"), (2, "training"), (2, "saving")):
        beat.beat(step, phase)
        content = json.loads((tmp_path / "beat").read_text())
        reported.append((content["step"], content["phase"]))
    assert reported == [(None, "starting"), (1, "training"), (1, "training"), (2, "saving")]
