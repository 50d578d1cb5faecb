"""Step and loss of programs that report none: read from their output on real hosts, shown, and never decided by."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch

SCHEMAS = Path(__file__).parents[2] / "orchestrator" / "documents" / "data"
HUGGING_FACE = r"""
for step in 100 200; do
    printf '\r %d%%|####5     | %d/1000 [00:45<00:55, 10.00it/s]\n' $((step / 10)) $step
    echo "{'loss': 2.$step, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.45}"
done
printf '\r 21%%|##        | 210/1000 [00:46<00:54, 10.00it/s]'
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path, {"COLUMNS": "200"})
    yield orch
    orch("down", "mine", "--yes")
    orch.kill_engines()


def launch(orch: Orch, run: str, more: str = "") -> None:
    script = "".join(f"  {line}\n" for line in run.strip().splitlines())
    (orch.folder / "task.yaml").write_text(f"name: mine\nresources: {{infra: 'local:2'}}\nrun: |\n{script}{more}")
    orch.ok("launch", "task.yaml", "--yes")


def read_document(orch: Orch, *words: str) -> Any:
    document = json.loads(orch.ok(*words, "-o", "json"))
    jsonschema.validate(document, json.loads((SCHEMAS / f"{words[0]}.schema.json").read_text()))
    return document


def test_a_trainer_that_knows_nothing_of_orch_has_step_and_loss_in_runs_and_status(orch: Orch) -> None:
    launch(orch, HUGGING_FACE)
    head, row = orch.ok("runs").splitlines()
    assert "FROM OUTPUT" in head and "step 210, loss 2.200" in row
    run_id = row.split()[0]
    assert "progress  step 210, loss 2.200   from output, tqdm" in orch.ok("runs", run_id)
    assert "step 210, loss 2.200" in orch.ok("status") and "FROM OUTPUT" in orch.ok("status")
    assert "progress  step 210, loss 2.200   from output, tqdm" in orch.ok("status", "mine")
    expected = {"step": 210, "loss": 2.2, "form": "tqdm", "text": "step 210, loss 2.200"}
    assert read_document(orch, "runs")["runs"][0]["from_output"] == expected
    assert read_document(orch, "status")["clusters"][0]["from_output"] == expected
    shutil.rmtree(orch.state / "logs")
    assert "FROM OUTPUT" not in orch.ok("runs") + orch.ok("status")
    assert read_document(orch, "runs")["runs"][0]["from_output"] is None


def test_a_pattern_of_the_task_file_is_the_only_form(orch: Orch) -> None:
    pattern = "metrics: {pattern: 'it={step} {} obj={loss}'}\n"
    launch(orch, "echo 'it=7 lr 3 obj=nan'; echo 'step 9 loss 1.0'", pattern)
    assert "progress  step 7, loss nan   from output, metrics.pattern" in orch.ok("status", "mine")
    document = read_document(orch, "runs")
    assert document["runs"][0]["from_output"] == {
        "step": 7,
        "loss": None,
        "form": "metrics.pattern",
        "text": "step 7, loss nan",
    }


def test_a_regular_expression_as_pattern_is_refused_with_what_to_write(orch: Orch) -> None:
    (orch.folder / "task.yaml").write_text(
        r"{resources: {infra: local}, run: 'true', metrics: {pattern: 'loss (?P<loss>(a+)+)'}}"
    )
    done = orch("launch", "task.yaml", "--dry-run")
    assert done.returncode == 2
    assert "`metrics.pattern` names no number" in done.stderr and "iter {step} {} loss={loss}" in done.stderr
