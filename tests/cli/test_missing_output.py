"""Output that could not be kept here reaches the end of a command, and `orch logs` shows all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from support.orch_process import Orch

pytestmark = pytest.mark.slow

SCHEMA = Path(__file__).parents[2] / "orchestrator" / "cli" / "data" / "ending.schema.json"
LIMIT = 3_000_000  # bytes of a file, above those of the store: a longer log ends as on a full disk
HEAD = """\
name: lots
resources: {infra: local, accelerators: cpu}
num_nodes: 2
"""
RUN = """\
run: |
  if [ "$ORCH_RANK" = 1 ]; then yes "a line of rank 1" | head -c 4000000; fi
  sleep {seconds}
  echo "end of rank $ORCH_RANK"
  exit {code}
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """An orch whose two hosts exist: a limit of the command that makes them would be theirs, too."""
    orch = Orch(tmp_path)
    (tmp_path / "task.yaml").write_text(HEAD)
    orch.ok("launch", "task.yaml", "--yes")
    yield orch
    orch("down", "lots", "--yes", timeout=170)


def write_task(orch: Orch, *, seconds: int, code: int = 0) -> None:
    (orch.folder / "task.yaml").write_text(HEAD + RUN.format(seconds=seconds, code=code))


def on_a_full_disk(orch: Orch) -> Orch:
    return Orch(orch.folder, orch.more, ("prlimit", f"--fsize={LIMIT}", "--"))


def test_a_short_program_does_not_succeed_without_its_output(orch: Orch) -> None:
    write_task(orch, seconds=0)
    done = on_a_full_disk(orch)("launch", "task.yaml", "--yes")
    assert done.returncode == 1, done.stderr
    assert "job 2 on 'lots' succeeded on 2 hosts" in done.stderr
    assert "error[missing-output]: the output of host 1 is incomplete here" in done.stderr
    assert "File too large" in done.stderr and "orch logs lots 2   shows all of it" in done.stderr
    shown = orch.ok("logs", "lots", "2")
    assert "end of rank 1" in shown and shown.count("a line of rank 1") > 4_000_000 // 17 - 1
    assert "the output of host 1 is incomplete here" in orch.ok("events", "lots")


@pytest.mark.parametrize("code", [0, 3])
def test_a_longer_program_is_watched_to_its_end(orch: Orch, code: int) -> None:
    write_task(orch, seconds=8, code=code)
    done = on_a_full_disk(orch)("launch", "task.yaml", "--yes", "-o", "json")
    ending = json.loads(done.stdout)
    jsonschema.validate(ending, json.loads(SCHEMA.read_text()))
    assert done.returncode == ending["status"] == (code or 1), done.stderr
    assert ending["missing_output"]["ranks"] == [1] and ending["missing_output"]["next"] == "orch logs lots 2"
    assert "the output is not followed now" in done.stderr, "said while the program runs"
    assert "end of rank 1" in orch.ok("logs", "lots", "2")
