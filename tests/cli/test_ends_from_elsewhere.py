"""Programs that a signal from elsewhere ended, and programs that had ended by themselves before they were cancelled."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until

TASK = """\
name: mine
resources: {{infra: 'local:{hosts}'}}
run: |
  echo $$ > {folder}/pid-$ORCH_RANK
  echo begun
  until [ -e {folder}/end ]; do sleep 0.1; done
  exit {code}
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    yield orch
    orch("down", "mine", "--yes")
    orch.kill_engines()


def write_task(orch: Orch, *, code: int = 0, hosts: int = 1) -> None:
    (orch.folder / "t.yaml").write_text(TASK.format(folder=orch.folder, code=code, hosts=hosts))


def has_begun(orch: Orch) -> bool:
    file = orch.folder / "pid-0"
    return file.exists() and file.read_text().endswith("\n")


def run_of(orch: Orch) -> dict[str, Any]:
    return dict(json.loads(orch.ok("runs", "-o", "json"))["runs"][0])


def end_unwatched(orch: Orch) -> None:
    """Launch a program that ends by itself after the command that watched it was killed."""
    process = orch.start("launch", "t.yaml", "--yes")
    until("it runs", lambda: has_begun(orch))
    process.kill()
    process.communicate(timeout=30)
    pid = int((orch.folder / "pid-0").read_text())
    (orch.folder / "end").touch()
    until("it has ended", lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "TERM"), (signal.SIGKILL, "KILL")], ids=["TERM", "KILL"])
def test_a_signal_from_elsewhere_is_named(orch: Orch, number: signal.Signals, name: str) -> None:
    write_task(orch)
    process = orch.start("launch", "t.yaml", "--yes")
    until("it runs", lambda: has_begun(orch))
    os.kill(int((orch.folder / "pid-0").read_text()), number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert f"error[signal]: job 1 was ended on head (rank 0) by {name}, which orch did not send" in said
    assert run_of(orch)["status"] == 128 + number


@pytest.mark.parametrize(
    ("code", "result"), [(0, "job 1 succeeded on 1 host"), (3, "job 1 failed on head (rank 0): exit 3")]
)
def test_a_cancel_leaves_its_own_result_to_a_job_that_had_ended(orch: Orch, code: int, result: str) -> None:
    write_task(orch, code=code)
    end_unwatched(orch)
    done = orch("cancel", "mine", "1", "--yes")
    assert done.returncode == 0 and f"{result}; it had ended before the cancel" in done.stderr, done.stderr
    assert (run_of(orch)["status"], run_of(orch)["state"]) == (code, "ended")


def test_a_cancel_of_a_program_that_runs_unwatched_is_a_cancel(orch: Orch) -> None:
    write_task(orch)
    process = orch.start("launch", "t.yaml", "--yes")
    until("it runs", lambda: has_begun(orch))
    process.kill()
    process.communicate(timeout=30)
    orch.ok("cancel", "mine", "1", "--yes")
    assert run_of(orch)["status"] == 130
