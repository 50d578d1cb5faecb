"""A job ends in its time on a host with thousands of processes, and the look-up of its processes costs one pass."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.hosts import EndedBy
from orchestrator.remote import jobs
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.scripts import shell_source
from tests.support.orch_process import Orch, until
from tests.support.sshd import sshd_farm

MANY = 3000
GRACE = 2.0
KILL_BOUND = 30.0  # seconds after the grace in which 3,000 processes are gone, on two busy cores
STARTS_MANY = f"""#!/bin/bash
trap '' TERM
for ((i = 0; i < {MANY}; i++)); do sleep 600 & done
env -u ORCH_JOB_DIR setsid --fork sleep 601
set -m
env -u ORCH_JOB_DIR sleep 602 &
echo ready
while :; do sleep 0.5; done
"""
IGNORES_TERM = """import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")]


@pytest.fixture(scope="module")
def crowd() -> Iterator[int]:
    """Start 3,000 processes that belong to no job; returns their process group."""
    command = f"for ((i = 0; i < {MANY}; i++)); do sleep 900 & done; echo ready; wait"
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == b"ready\n"
        yield crowd.pid
        os.killpg(crowd.pid, signal.SIGKILL)


def test_three_thousand_processes_that_ignore_term_are_killed_after_the_grace(tmp_path: Path) -> None:
    """Also who left the group and dropped the mark, as long as the session is the job's."""
    with sshd_farm(tmp_path, 1) as farm, Fleet(farm.addresses, deadline=20) as fleet:
        assert jobs.start_job(fleet, "many", STARTS_MANY.encode()).ok
        limit = time.monotonic() + 90
        while jobs.read_job_status(fleet, "many").jobs[0].last_line != "ready":
            assert time.monotonic() < limit
            time.sleep(0.2)
        left_session = [pid for pid in farm.hosts[0].user_pids() if _words(pid) == ["sleep", "601"]]
        began = time.monotonic()
        result = jobs.kill_job(fleet, "many", EndedBy.CANCEL, grace=GRACE)
        seconds = time.monotonic() - began
        assert result.ok, result.failed
        assert GRACE <= seconds < GRACE + KILL_BOUND
        until("the wrapper's own end", lambda: set(farm.hosts[0].user_pids()) <= set(left_session), 10)
        for pid in left_session:  # without mark, group and session nothing shows that it is the job's
            os.kill(pid, signal.SIGKILL)
        assert jobs.read_job_status(fleet, "many").jobs[0].exit_code == 137


@pytest.mark.usefixtures("crowd")
def test_one_look_costs_no_more_than_reading_each_process_once_or_twice() -> None:
    """The ratio of CPU seconds: the look-up, and a program that reads the same files and does nothing with them."""
    read_all = "cd /proc && printf '%s\\0' [0-9]*/environ [0-9]*/stat | xargs -0 cat >/dev/null 2>&1"
    look = shell_source("end-processes.sh") + "\nmark=ORCH_JOB_DIR=/nowhere group=$$\nmembers >/dev/null"
    reading = min(_cpu_seconds(read_all) for _ in range(3))
    looking = min(_cpu_seconds(look) for _ in range(3))
    assert looking < 3 * reading


def test_cancel_kills_a_program_that_ignores_term_while_others_have_thousands(tmp_path: Path, crowd: int) -> None:
    """Through the command line; the processes of others stay."""
    orch = Orch(tmp_path)
    (tmp_path / "program.py").write_text(IGNORES_TERM)
    (tmp_path / "task.yaml").write_text(
        f"name: stubborn\nresources:\n  infra: local\nrun: exec python3 {tmp_path}/program.py\n"
    )
    try:
        orch.ok("launch", "task.yaml", "-c", "stubborn", "--yes", "--detach")
        limit = time.monotonic() + 60
        while "ready" not in orch("logs", "stubborn", "--tail", "5").stdout:
            assert time.monotonic() < limit
            time.sleep(0.5)
        orch.ok("cancel", "stubborn", "--yes")
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        assert not [pid for pid in pids if f"{tmp_path}/program.py" in _words(pid)]
        os.killpg(crowd, 0)
    finally:
        orch("down", "stubborn", "--yes")
        orch.kill_engines()


def _cpu_seconds(command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["/bin/sh", "-c", command], check=False)  # processes end meanwhile
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []
