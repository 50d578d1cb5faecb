"""P9: an older state that was put back proves nothing about what is to run now: no engine continues it by itself."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.promise("P9"), pytest.mark.slow, pytest.mark.timeout(400)]

TASK = """
name: {name}
resources: {{infra: "local:1"}}
checkpoint: {{bucket: "{bucket}"}}
run: |
  echo "{name} $ORCH_ATTEMPT" >> "$MARKS"
  [ -e "$MARKS.go" ] || sleep 600
"""
STAGES = """
name: pipe
---
name: first
resources: {infra: "local:1"}
run: |
  echo "pipe $ORCH_ATTEMPT" >> "$MARKS"
  [ -e "$MARKS.go" ] || sleep 600
---
name: second
resources: {infra: "local:1"}
run: echo "second" >> "$MARKS"
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    bucket = (tmp_path / "bucket").as_uri()
    for name in ("one", "next"):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, bucket=bucket))
    (tmp_path / "pipe.yaml").write_text(STAGES)
    orch = Orch(tmp_path, {"MARKS": str(tmp_path / "marks")})
    yield orch
    for name in ("one", "pipe-1", "pipe-2"):
        orch("down", name, "--yes")
    kill_engines(orch)


def kill_engines(orch: Orch) -> None:
    orch.kill_engines()
    until("no engine works", lambda: not orch.engines(), 40)


def marks(orch: Orch) -> list[str]:
    file = orch.folder / "marks"
    return file.read_text().splitlines() if file.exists() else []


def copy_store(orch: Orch, to: Path) -> None:
    with closing(sqlite3.connect(orch.state / "orch.db")) as old, closing(sqlite3.connect(to)) as new:
        old.backup(new)


def put_back(orch: Orch, copy: Path) -> None:
    for file in orch.state.glob("orch.db*"):
        file.unlink()
    shutil.copy(copy, orch.state / "orch.db")


def test_nothing_that_was_taken_down_is_rented_again_until_a_person_says_so(orch: Orch) -> None:
    env = ("--env", "MARKS")
    orch.ok("launch", "one.yaml", "--detach", *env)
    orch.ok("launch", "next.yaml", "-c", "one", "--detach", *env)
    orch.ok("launch", "pipe.yaml", "--detach", *env)
    until("both programs run", lambda: sorted(marks(orch)) == ["one 1", "pipe 1"])
    copy_store(orch, orch.folder / "older.db")
    kill_engines(orch)
    orch.ok("down", "one", "pipe-1", "--yes")
    put_back(orch, orch.folder / "older.db")

    restored = orch("store", "restored", "--yes")
    assert restored.returncode == 0, restored.stderr
    orch.ok("serve", "--engine-only", "--until-idle", timeout=45)
    assert sorted(marks(orch)) == ["one 1", "pipe 1"]
    assert "orch watch one 1   or: orch cancel one 1" in restored.stderr, restored.stderr
    assert "orch watch one 2   or: orch cancel one 2" in restored.stderr, restored.stderr
    assert "orch watch pipe   or: orch cancel pipe   (pipeline, stage 1 of 2" in restored.stderr, restored.stderr

    jobs = {(job["cluster"], job["id"]): job for job in json.loads(orch.ok("queue", "-o", "json"))["jobs"]}
    assert [job["driven_by"] for job in jobs.values() if job["cluster"] == "one"] == [
        "none (orch watch one)", "queued behind job 1",
    ]  # fmt: skip

    (orch.folder / "marks.go").touch()
    orch.ok("cancel", "one", "1")
    orch.ok("watch", "one", "2")
    assert "next 1" in marks(orch)
    orch.ok("launch", "pipe.yaml", "--detach", *env)
    until("the pipeline is handed over again and succeeds", lambda: "second" in marks(orch))
    orch.ok("events", "--verify")
