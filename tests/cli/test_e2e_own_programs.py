"""The examples of docs/own-programs.md: a host is lost, and the last loss is that of an unbroken run."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_program_rehearsal import check_lost_host, orch_with_examples
from support.orch_process import Orch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    return orch_with_examples(tmp_path)


@pytest.mark.parametrize(("name", "step"), [("torch-loop", 33), ("torch-dcp", 25), ("jax-loop", 33)])
def test_a_lost_host_costs_no_more_than_the_steps_since_the_last_checkpoint(orch: Orch, name: str, step: int) -> None:
    check_lost_host(orch, name, step)


def test_steps_of_a_program_without_heartbeats_come_from_its_log(orch: Orch) -> None:
    program = "for i in $(seq 1 60); do echo step $i; sleep 0.1; done"
    (orch.folder / "task.yaml").write_text(f"name: plain\nresources: {{infra: 'local:1'}}\nrun: {program}\n")
    done = orch("rehearse", "task.yaml", "--preempt", "step=10", "--step-pattern", r"^step (\d+)", timeout=300)
    assert "steps         from the log, by --step-pattern" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 13 and "your program does not resume" in done.stderr
    for wrong in ("step [0-9]+", "step (", "(s)tep (1)"):
        refused = orch("rehearse", "task.yaml", "--step-pattern", wrong)
        assert refused.returncode == 2 and "--step-pattern" in refused.stderr
