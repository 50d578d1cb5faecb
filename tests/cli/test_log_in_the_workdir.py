"""A command whose output goes to a file in the workdir that it sends: the file grows while the command works."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until

TASK = """\
name: mine
workdir: .
resources: {infra: local}
run: wc -c launch.log && cat word
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "word").write_text("sent as planned\n")
    (work / "t.yaml").write_text(TASK)
    orch = Orch(tmp_path)
    yield orch
    orch("down", "mine", "--yes")
    orch.kill_engines()


def pipe(orch: Orch, *words: str) -> str:
    """Run a command in the workdir as `orch ... 2>&1 | tee launch.log`; return what it printed."""
    command = f"set -o pipefail; {shlex.join(orch.command(*words))} 2>&1 | tee launch.log"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=orch.folder / "work",
        env=orch.env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_launch_whose_output_goes_into_its_workdir(orch: Orch) -> None:
    printed = pipe(orch, "launch", "t.yaml", "--yes")
    assert "sent as planned\n" in printed
    assert printed.count("sent as planned, without what was added since then: launch.log\n") == 1, printed
    pipe(orch, "launch", "t.yaml", "--yes")
    pipe(orch, "exec", "mine", "--yes", "--", "true")


def test_a_detached_launch_whose_output_goes_into_its_workdir(orch: Orch) -> None:
    pipe(orch, "launch", "t.yaml", "--yes", "--detach")
    until("the program has ended", lambda: "sent as planned" in orch("logs", "mine").stdout)
