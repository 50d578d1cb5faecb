"""Stale holders of an accelerator end before the program starts; those of a job that runs are left alone.

A plain file in a folder of the test replaces the device node; the processes that hold it are real.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from render_support import HOST, run_script
from support.host_folders import write_claim

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import Holders, RunInputs, render_run

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

NODES: list[tuple[Backend, str]] = [
    ("xla", "accel0"),
    ("xla", "vfio/3"),
    ("jax", "accel7"),
    ("jax", "vfio/0"),
    ("neuron", "neuron11"),
]
Hold = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Start a process that has `node` open. stubborn: it ignores TERM."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(node: str, *, stubborn: bool = False, job: str = "") -> subprocess.Popen[bytes]:
        device = tmp_path / "dev" / node
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
        trap = "trap '' TERM;" if stubborn else ""
        command = f"{trap} exec 9<'{device}'; echo held; exec sleep 60"
        env = {"PATH": "/usr/bin:/bin", **({"ORCH_JOB_DIR": str(_job_folder(tmp_path, job))} if job else {})}
        process = subprocess.Popen(["bash", "-c", command], env=env, stdout=subprocess.PIPE, start_new_session=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start_program(backend: Backend, tmp_path: Path, *, holders: Holders = "end") -> tuple[int, str, str]:
    env = {**HOST, "ORCH_DEV_DIR": str(tmp_path / "dev"), "ORCH_LIBTPU_LOCKFILE": str(tmp_path / "lock")}
    script = render_run(RunInputs(backend=backend, user_run="echo started", holders=holders))
    done = run_script(script, tmp_path / "home", {**env, "ORCH_RANKS_PER_HOST": "1"})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("backend", "node"), NODES)
def test_a_stale_holder_is_ended_before_the_program_starts(
    backend: Backend, node: str, tmp_path: Path, hold: Hold
) -> None:
    holder = hold(node)
    status, out, _ = start_program(backend, tmp_path)
    assert status == 0
    assert out.splitlines() == [f"SIGTERM to processes that still hold the accelerator: {holder.pid}", "started"]
    assert holder.wait(5) == -15


@pytest.mark.slow
def test_a_holder_that_ignores_term_gets_time_and_then_kill(tmp_path: Path, hold: Hold) -> None:
    holder = hold("accel0", stubborn=True)
    (tmp_path / "lock").touch()
    begin = time.monotonic()
    status, out, _ = start_program("xla", tmp_path)
    assert (status, out.splitlines()[-1]) == (0, "started")
    assert holder.wait(5) == -9
    assert time.monotonic() - begin >= 10
    assert not (tmp_path / "lock").exists()


def test_the_lock_goes_only_when_a_chip_is_here(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert start_program("xla", tmp_path)[0] == 0
    assert (tmp_path / "lock").exists()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    assert start_program("xla", tmp_path)[0] == 0
    assert not (tmp_path / "lock").exists()


def _job_folder(tmp_path: Path, job: str) -> Path:
    return tmp_path / "home/.orch/host/jobs" / job


def test_a_job_that_still_runs_keeps_its_chips_and_its_lock(tmp_path: Path, hold: Hold) -> None:
    holder = hold("accel0", job="7-a1")
    stale = hold("accel1", job="6-a1")
    write_claim(_job_folder(tmp_path, "7-a1") / "claim")
    (tmp_path / "lock").touch()
    status, out, err = start_program("xla", tmp_path)
    assert (status, out.splitlines()[-1]) == (0, "started")
    assert f"in use by another job: {holder.pid}" in err
    assert holder.poll() is None
    assert (tmp_path / "lock").exists()
    assert stale.wait(5) == -15
    (_job_folder(tmp_path, "7-a1") / "claim/1").write_text("")
    assert start_program("xla", tmp_path)[0] == 0
    assert holder.wait(5) == -15
    assert not (tmp_path / "lock").exists()


def test_a_command_beside_a_job_clears_nothing(tmp_path: Path, hold: Hold) -> None:
    holder = hold("accel0")
    assert start_program("xla", tmp_path, holders="leave") == (0, "started\n", "")
    assert holder.poll() is None


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_other_backends_clear_nothing(backend: Backend, tmp_path: Path, hold: Hold) -> None:
    holder = hold("accel0")
    assert start_program(backend, tmp_path)[0] == 0
    assert holder.poll() is None
