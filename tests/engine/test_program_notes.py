"""Notes of a plan about a program of one's own: its Python on the image, processes without GPUs, and hangs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.engine.preparation.host_inputs import host_facts
from orchestrator.engine.preparation.limits import build_budgets
from orchestrator.engine.preparation.program_notes import list_program_notes
from orchestrator.providers.local.layout import CLEAN_PATH
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task


def task(resources: str, program: str = "run: python3 train.py") -> Task:
    return parse_task(f"{program}\nresources: {resources}\n", file="t.yaml", env={}).only


def notes(resources: str, program: str = "run: python3 train.py") -> list[str]:
    written = task(resources, program)
    candidate = list_candidates(written)[0]
    return list(list_program_notes(written, host_facts(candidate), candidate.hosts))


@pytest.mark.parametrize(
    ("resources", "python", "other"),
    [
        ("{infra: aws, cpus: 4}", "no `python`, no torch, no JAX; pip needs an environment (PEP 668)", "uv venv"),
        ("{infra: aws, accelerators: 'H100:8'}", "no torch, no JAX; pip needs", "framework: torch"),
        (
            "{infra: aws, accelerators: 'H100:8', accelerator_args: {framework: torch}}",
            "/opt/pytorch/bin/python has torch",
            "uv venv",
        ),
        ("{infra: aws, accelerators: 'Trainium:16'}", "`python` is that of AWS's Neuron environment", "uv venv"),
        ("{infra: gcp, accelerators: v5e-8}", "`python3` is 3.10 of Ubuntu 22.04", "conda"),
        ("{infra: gcp, accelerators: v4-8}", "no `python`", "conda"),
        ("{infra: gcp, cpus: 4}", "`python3` is 3.12 of Ubuntu 24.04", "uv venv"),
        ("{infra: gcp, accelerators: 'L4:1'}", "PEP 668", "uv venv"),
    ],
)
def test_the_plan_names_the_python_of_the_image_and_how_to_get_another(resources: str, python: str, other: str) -> None:
    (note,) = notes(resources)
    assert note.startswith("Python on the hosts: ") and python in note and other in note.partition("Another: ")[2]


def test_the_plan_of_this_computer_names_the_python_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computer with a `python` that every shell finds needs no note."""
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = f"`python3` is {tmp_path}/python3, no `python`. Another: uv venv or conda create in setup"
    expected = [] if shutil.which("python", path=CLEAN_PATH) else [f"Python on the hosts: {words}"]
    assert notes("{infra: local}") == expected
    assert notes("{infra: local}", "run: ./train") == []


def test_no_python_is_named_where_none_is_known_or_used() -> None:
    named = "{infra: aws/us-east-1, cpus: 4, image_id: ami-0123456789abcdef0}"
    assert notes(named) == notes("{infra: local}") == notes("{infra: aws, cpus: 4}", "run: ./train") == []
    assert notes("{infra: gcp, cpus: 4}", "setup: uv venv ~/e\nrun: ~/e/bin/python train.py") == []
    assert notes("{infra: aws, accelerators: 'H100:8', image_id: 'docker:pytorch/pytorch'}") == []
    assert notes("{infra: aws, accelerators: 'H100:8'}", "train: {}") == []


@pytest.mark.parametrize("word", ["export PYTHONPATH=$PWD", "PYTHONPATH=src:lib"])
def test_a_path_that_is_replaced_hides_the_library(word: str) -> None:
    """orch_run is found by PYTHONPATH."""
    bucket = "checkpoint: {bucket: 's3://bucket/r'}\n"
    (note,) = notes("{infra: local}", f"{bucket}run: |\n  {word}; python train.py")
    assert "orch_run" in note and "PYTHONPATH=...:$PYTHONPATH" in note
    assert notes("{infra: local}", f"{bucket}run: PYTHONPATH=src:$PYTHONPATH python train.py") == []
    assert notes("{infra: local}", f"run: {word} python train.py") == [], "no bucket, no library"


@pytest.mark.parametrize(
    "word", ["--nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE", '--nproc-per-node "${SKYPILOT_NUM_GPUS_PER_NODE}"']
)
def test_a_count_of_gpus_is_no_count_of_processes_without_gpus(word: str) -> None:
    program = f"run: |\n  torchrun {word} train.py"
    (note,) = notes("{infra: 'local:2'}", program)
    assert "SKYPILOT_NUM_GPUS_PER_NODE is 0 on local:2" in note and "--nproc-per-node 1" in note
    assert not [one for one in notes("{accelerators: 'H100:8'}", program) if "SKYPILOT" in one]
    assert notes("{infra: local}", "run: torchrun --nproc-per-node 1 train.py") == []


def test_only_the_bundled_trainer_is_known_to_report_its_steps() -> None:
    assert not build_budgets(task("{infra: local}")).reports_steps
    assert build_budgets(task("{infra: local}", "train: {}")).reports_steps


@pytest.mark.parametrize(
    ("run", "hosts", "noted"),
    [
        ("ray start --address $ORCH_COORDINATOR --block", 2, True),
        ("ray start --head \\\n  --port 1 --block", 2, True),
        ("ray start --address $ORCH_COORDINATOR --block || true", 2, True),
        ("ray start --block --head & sleep 9", 2, False),
        ("ray start --head; train --block", 2, False),
        ("ray symmetric-run --address $ORCH_COORDINATOR -- python train.py", 2, False),
        ("ray start --head --block", 1, False),
    ],
)
def test_a_host_that_waits_for_ray_does_not_end(run: str, hosts: int, noted: bool) -> None:
    lines = "".join(f"  {line}\n" for line in run.splitlines())
    found = notes(f"{{infra: 'local:{hosts}'}}", f"run: |\n{lines}")
    assert ["`ray start --block` does not end" in note for note in found] == [True] * noted


@pytest.mark.parametrize(
    ("run", "word"),
    [
        ("torchrun --standalone --nproc-per-node 1 t.py", "--standalone"),
        ("python -m torch.distributed.run --nnodes=1 t.py", "--nnodes=1"),
        ("torchrun --nnodes 1:1 t.py", "--nnodes 1:1"),
        ("accelerate launch --cpu t.py", "--cpu"),
        ("torchrun --nnodes 1:4 t.py", ""),
        ("torchrun --nnodes 10 t.py", ""),
        ("torchrun --standalone-mode t.py", ""),
        ("torchrun t.py --standalone", ""),
        ("accelerate launch \\\n  --cpu \\\n  t.py", "--cpu"),
        ("accelerate launch t.py --cpus 4", ""),
        ("python t.py --cpu", ""),
    ],
)
def test_words_that_keep_hosts_apart_are_noted_on_several_hosts(run: str, word: str) -> None:
    found = [one for one in notes("{infra: 'local:2'}", f"run: {run}") if "an own training" in one]
    assert len(found) == bool(word) and all(f"`{word}`" in one for one in found)
    assert not any("an own training" in one for one in notes("{infra: 'local:1'}", f"run: {run}"))
