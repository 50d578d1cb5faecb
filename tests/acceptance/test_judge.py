"""What must hold after a step: each rule alone makes it fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.acceptance.judge import find_problem
from orchestrator.acceptance.process import Output
from orchestrator.acceptance.steps import SENT_TEXT, Expectation


def listing(*clusters: str, problem: str | None = None, answered: bool = True, provider: str = "gcp") -> str:
    slices = [{"name": f"{name}-{number}", "cluster": name} for number, name in enumerate(clusters)]
    places: list[dict[str, Any]] = [{"provider": provider, "asked": answered, "problem": problem, "slices": slices}]
    return json.dumps({"places": places})


def judge(folder: Path, *, status: int = 0, out: str = "", problem: str = "", now: str = "s-1", **expected: Any) -> str:
    output = Output(status=status, seconds=1.0, out=out, err="", problem=problem)
    expects = Expectation(meaning="x", **expected)
    return find_problem(expects, output, folder=folder, cloud="gcp", before={"a": "s-1"}, now={"a": now})


ONE_EACH = (("a", 1), ("b", 1))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        ({"problem": "it took too long"}, "it took too long"),
        ({"status": 5}, "exit status 5, not 0"),
        ({"status": 137, "statuses": (137,)}, ""),
        ({"status": 0, "statuses": (137,)}, "exit status 0, not 137"),
        ({"out": "all 42 here", "pattern": r"\d+ here"}, ""),
        ({"out": "none here", "pattern": r"\d+ here"}, r"the output does not match \d+ here"),
        ({"same_slice": "a"}, ""),
        ({"same_slice": "a", "now": "s-2"}, "a is served by s-2, not by s-1"),
        ({"out": listing("a", "b"), "listed": ONE_EACH}, ""),
        ({"out": listing("a", "b", "b"), "listed": ONE_EACH}, "b has 2 slices in the cloud, not 1: b-1, b-2"),
        ({"out": listing("a"), "listed": ONE_EACH}, "b has 0 slices in the cloud, not 1: none"),
        ({"out": listing(), "listed": (("a", 0),)}, ""),
        ({"out": listing("a"), "listed": (("a", 0),)}, "a has 1 slices in the cloud, not 0: a-0"),
        ({"out": listing(problem="no answer"), "listed": (("a", 0),)}, "no answer"),
        ({"out": listing(answered=False), "listed": (("a", 0),)}, "the output has no listing of gcp"),
        ({"out": listing(provider="aws"), "listed": (("a", 0),)}, "the output has no listing of gcp"),
        ({"out": "broken", "listed": (("a", 0),)}, "the output has no listing of gcp"),
    ],
)
def test_each_rule_is_checked(given: dict[str, Any], why: str, tmp_path: Path) -> None:
    assert judge(tmp_path, **given) == why


def test_a_file_must_come_back_unchanged(tmp_path: Path) -> None:
    assert "not what was sent" in judge(tmp_path, received="back.txt")
    (tmp_path / "back.txt").write_text(SENT_TEXT[:-1])
    assert "not what was sent" in judge(tmp_path, received="back.txt")
    (tmp_path / "back.txt").write_text(SENT_TEXT)
    assert judge(tmp_path, received="back.txt") == ""
