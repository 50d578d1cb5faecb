"""A program under a launcher, which ends with its own status: the status of the program decides and is reported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch

TASK = """\
name: mine
resources: {{infra: local}}
recovery: {{restart_on_exit_codes: [3]}}
run: {torchrun} --nproc-per-node 1 {program}
"""
FAILS_ONCE = """
import pathlib, sys
starts = pathlib.Path(__file__).with_name("starts")
with starts.open("a") as file:
    file.write("x")
sys.exit(3 if starts.read_text() == "x" else 0)
"""
KILLED = """
import os
print("step 12", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    yield orch
    orch("down", "mine", "--yes")
    orch.kill_engines()


def write_task(orch: Orch, program: str) -> None:
    file = orch.folder / "train.py"
    file.write_text(program)
    torchrun = Path(sys.executable).with_name("torchrun")
    (orch.folder / "t.yaml").write_text(TASK.format(torchrun=torchrun, program=file))


@pytest.mark.slow
def test_the_status_of_a_process_under_torchrun_counts_for_a_restart(orch: Orch) -> None:
    write_task(orch, FAILS_ONCE)
    done = orch("launch", "t.yaml", "--yes", timeout=300)
    assert done.returncode == 0, done.stderr
    assert (orch.folder / "starts").read_text() == "xx"


@pytest.mark.slow
def test_a_kill_of_a_process_under_torchrun_is_named(orch: Orch) -> None:
    write_task(orch, KILLED)
    done = orch("launch", "t.yaml", "--yes", timeout=300)
    assert done.returncode == 137, done.stderr
    assert "error[signal]: job 1 was ended on head (rank 0) by KILL, which orch did not send" in done.stderr
    assert "step 12\n  next:" in done.stderr and "sudo dmesg" in done.stderr, done.stderr
