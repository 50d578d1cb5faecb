"""`orch runs --compare`: the same summary as the page, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import orchestrator
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

Orch = Callable[..., Any]
SCHEMA = Path(orchestrator.__file__).parent / "documents" / "data" / "comparison.schema.json"


@pytest.fixture
def compared(home: Path) -> None:
    """Record two runs with other learning rates."""
    with Store(home / "state" / "orch.db") as store:
        cluster = store.open_cluster("mine", "cpu on local")
        for run_id, rate in (("slow", "1e-4"), ("fast", "1e-3")):
            task = json.dumps({"train": {"args": {"optim.lr": rate, "steps": "10"}}})
            store.open_job(
                cluster,
                NewJob(
                    kind="launch", run_id=run_id, digest=run_id, task=task, bucket="", ranks=None,
                    after_end=TeardownPolicy.KEEP,
                ),
            )  # fmt: skip


@pytest.mark.usefixtures("compared")
def test_what_differs_is_shown_and_what_is_the_same_is_counted(orch: Orch) -> None:
    said = orch("runs", "--compare", "slow", "fast")
    assert said.status == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    assert ["A", "slow", "pending"] in rows and ["B", "fast", "pending"] in rows
    assert ["train.args.optim.lr", "1e-4", "1e-3"] in rows
    assert "1 more setting is the same" in said.out and "train.args.steps" not in said.out


@pytest.mark.usefixtures("compared")
def test_the_document_has_everything(orch: Orch) -> None:
    document = json.loads(orch("runs", "slow", "fast", "--compare", "-o", "json").out)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert [row["name"] for row in document["settings"]] == ["train.args.optim.lr", "train.args.steps"]


@pytest.mark.usefixtures("compared")
def test_several_runs_are_only_compared_and_one_is_not(orch: Orch) -> None:
    several = orch("runs", "slow", "fast")
    assert several.status == 2 and "--compare" in several.err
    alone = orch("runs", "--compare", "slow")
    assert alone.status == 2 and "needs two runs" in alone.err
    unknown = orch("runs", "--compare", "slow", "fist")
    assert unknown.status == 3 and "did you mean fast" in unknown.err
