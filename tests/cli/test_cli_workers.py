"""Choosing hosts the way gcloud does: --worker 1,3-5, --worker all, and `orch ssh NAME 3`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "0-1"),
        (("--worker", "all"), "0-1"),
        (("--worker=1",), "1"),
        (("--host", "0"), "0"),
        (("--worker", "0,1"), "0-1"),
    ],
)
def test_exec_runs_on_the_chosen_workers(orch: Callable[..., Any], words: tuple[str, ...], expected: str) -> None:
    said = orch("exec", "mine", *words, "--dry-run", "-o", "json", "--", "true")
    assert said.status == 0, said.err
    (started,) = (step for step in json.loads(said.out)["steps"] if step["do"] == "start_job")
    assert started["hosts"]["ranks"] == expected


@pytest.mark.usefixtures("filled")
def test_a_worker_that_is_not_there_is_refused(orch: Callable[..., Any]) -> None:
    said = orch("exec", "mine", "--worker", "7", "--dry-run", "--", "true")
    assert said.status == 2
    assert "has no host 7" in said.err
    said = orch("exec", "mine", "--worker", "some", "--dry-run", "--", "true")
    assert said.status == 2
    assert "or all" in said.err


def test_ssh_goes_to_the_worker_of_that_number(orch: Callable[..., Any], filled: Path) -> None:
    assert filled.is_dir()
    for words, port in (((), 2200), (("0",), 2200), (("1",), 2201)):
        said = orch("ssh", "--print", "mine", *words)
        assert said.status == 0, said.err
        assert str(port) in said.out.split()
    said = orch("ssh", "--print", "mine", "3")
    assert said.status == 2
    assert "has no host 3" in said.err
