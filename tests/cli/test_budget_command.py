"""`orch budget`, and what a plan and a launch say of budgets, before anything is requested or on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator
from orchestrator.exits import Exit
from orchestrator.store.store import Store

Orch = Callable[..., Any]
TASK = "run: echo hi\nresources: {infra: gcp/us-west4/us-west4-a, accelerators: v5e-8}\n"
SCHEMA = json.loads((Path(orchestrator.__file__).parent / "documents/data/budgets.schema.json").read_text())


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(TASK)
    return "t.yaml"


def test_budgets_are_set_listed_and_removed(orch: Orch) -> None:
    said = orch("budget")
    assert (said.status, said.out) == (0, "") and "orch budget set --per-month DOLLARS" in said.err
    assert orch("budget", "set", "--per-month", "500", "--per-run", "100", "--per-hour", "$40").status == 0
    said = orch("budget", "set", "--project", "vision", "--member", "ada", "--largest-slice", "64", "--markets", "spot",
                "--at-limit", "stop")  # fmt: skip
    assert "budget of member 'ada' in project 'vision': slices up to 64 chips; spot; ends runs" in said.err
    orch("budget", "set", "--per-hour", "none", "--unknown-prices", "allow")
    head, first, *_ = orch("budget").out.splitlines()
    assert head.split()[:4] == ["PROJECT", "MEMBER", "THIS", "MONTH"]
    assert first.split()[:2] == ["all", "all"]
    document = json.loads(orch("budget", "-o", "json").out)
    jsonschema.validate(document, SCHEMA)
    everything, ada = document["budgets"]
    assert everything["limits"] == {
        "dollars_per_month": 500, "dollars_per_run": 100, "dollars_per_hour": None, "largest_slice": None,
        "markets": None,
    }  # fmt: skip
    assert (everything["unknown_prices"], everything["left"]) == ("allow", 500)
    assert (ada["project"], ada["member"], ada["limits"]["markets"]) == ("vision", "ada", ["spot"])
    assert orch("budget", "remove", "--project", "vision", "--member", "ada").status == 0
    assert orch("budget", "remove", "--project", "vision", "--member", "ada").status == Exit.NOT_FOUND
    assert len(json.loads(orch("budget", "-o", "json").out)["budgets"]) == 1


@pytest.mark.parametrize(
    "words",
    [("--per-month", "0"), ("--per-month", "nan"), ("--per-hour", "inf"), ("--largest-slice", "1.5"),
     ("--markets", "auction"), (), ("--member", "a/b", "--per-run", "1")],
)  # fmt: skip
def test_what_is_no_limit_is_refused(orch: Orch, words: tuple[str, ...]) -> None:
    assert orch("budget", "set", *words).status == Exit.USAGE


def test_a_plan_shows_what_is_left_and_the_refusal_of_the_launch(orch: Orch, task: str, home: Path) -> None:
    orch("budget", "set", "--per-month", "500")
    said = orch("plan", task)
    assert said.status == 0 and "note: budget: $500.00 of $500.00 left this month" in said.err
    orch("budget", "set", "--per-hour", "5")
    said = orch("plan", task)
    assert said.status == Exit.BUDGET
    assert "Refused: [budget] the budget of everything does not allow this slice (exit 14)" in said.out
    refusal = json.loads(orch("plan", task, "-o", "json").out)["refusal"]
    assert refusal["code"] == "budget" and refusal["status"] == 14
    said = orch("launch", task, "--yes")
    assert said.status == Exit.BUDGET, "before credentials are needed, which this computer has not"
    assert "error[budget]" in said.err and "$0.00 of $5.00/h is paid now" in said.err
    with Store(home / "state" / "orch.db") as store:
        assert store.clusters() == ()


def test_a_plan_leaves_out_the_places_that_a_budget_does_not_allow(orch: Orch, task: str) -> None:
    Path(task).write_text(
        "run: echo hi\nresources: {accelerators: v5e-8, any_of: [{infra: gcp/us-west4/us-west4-a},"
        " {infra: gcp/us-west4/us-west4-a, use_spot: true}]}\n"
    )
    orch("budget", "set", "--markets", "on-demand")
    said = orch("plan", task, "-o", "json")
    assert said.status == 0
    assert "its market is spot, and the budget allows on-demand" in said.err
    created = [step for step in json.loads(said.out)["steps"] if step["do"] == "create_slice"]
    assert len(created) == 1 and created[0]["spec"]["candidate"]["market"]["kind"] == "on_demand"
