"""The examples of docs/own-programs.md: a host is lost, and the last loss is that of an unbroken run."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch

pytestmark = [pytest.mark.slow, pytest.mark.rotating("own-programs"), pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "own-programs"


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "tmp").mkdir()
    shutil.copytree(EXAMPLES, tmp_path / "examples" / "own-programs")
    yield Orch(tmp_path, {"TMPDIR": str(tmp_path / "tmp")})


def rehearse(orch: Orch, name: str, *words: str) -> tuple[dict[str, Any], str]:
    """Return the report and the line that the program ends with."""
    given = ["--env", f"PYTHON={sys.executable}", "--env", "OMP_NUM_THREADS=1", *words, "-o", "json"]
    done = orch("rehearse", f"examples/own-programs/{name}.yaml", *given, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = re.findall(r"done: step .*", done.stderr)
    assert len(ends) == 1, done.stderr
    return json.loads(done.stdout), ends[0]


@pytest.mark.parametrize(("name", "step"), [("torch-loop", 33), ("torch-dcp", 25), ("jax-loop", 33)])
def test_a_lost_host_costs_no_more_than_the_steps_since_the_last_checkpoint(orch: Orch, name: str, step: int) -> None:
    _, whole = rehearse(orch, name)
    report, ended = rehearse(orch, name, "--env", "STEP_SECONDS=0.2", "--preempt", f"step={step}")
    assert ended == whole, "the same last loss, to the last bit"
    (resume,) = report["resumes"]
    assert report["resumed"] is True and resume["cause"] == "preempted" and resume["found_saved"]
    assert resume["resumed_step"] is not None and resume["resumed_step"] >= 10


def test_steps_of_a_program_without_heartbeats_come_from_its_log(orch: Orch) -> None:
    program = "for i in $(seq 1 60); do echo step $i; sleep 0.1; done"
    (orch.folder / "task.yaml").write_text(f"name: plain\nresources: {{infra: 'local:1'}}\nrun: {program}\n")
    done = orch("rehearse", "task.yaml", "--preempt", "step=10", "--step-pattern", r"^step (\d+)", timeout=300)
    assert "steps         from the log, by --step-pattern" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 13 and "your program does not resume" in done.stderr
    for wrong in ("step [0-9]+", "step (", "(s)tep (1)"):
        refused = orch("rehearse", "task.yaml", "--step-pattern", wrong)
        assert refused.returncode == 2 and "--step-pattern" in refused.stderr
