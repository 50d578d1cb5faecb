"""Runs side by side: what differs comes first, and what a result cost counts from what was paid until it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.service_site import PRICE, record_run, write_points

from orchestrator.documents.comparison import Comparison, compare_runs, list_settings
from orchestrator.documents.curves import CurveReader
from orchestrator.errors import NotFoundError, UserError
from orchestrator.storage.bucket import Bucket
from orchestrator.store.read import Reader
from orchestrator.store.store import Store

HOUR = 3600.0


def write_task(**settings: object) -> str:
    return json.dumps({"train": {"args": settings}, "checkpoint": {"keep": 3}})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Reader]:
    """Runs `fast` and `slow` with curves over one hour, and `bare`, without a bucket."""
    bucket = tmp_path / "bucket"
    with Store(tmp_path / "orch.db") as opened:
        record_run(opened, "first", "fast", f"file://{bucket}", ended=False, task=write_task(lr="1e-3", steps="10"))
        record_run(opened, "second", "slow", f"file://{bucket}", ended=False, task=write_task(lr="1e-4", steps="10"))
        record_run(opened, "third", "bare", ended=False, task=write_task(lr="1e-4", steps="10", seed="7"))
        begun = opened.jobs(opened.clusters()[0])[0].created
        write_points(bucket, "fast", 1, [(step, begun + step * 360, 5 - step * 0.4) for step in range(1, 11)])
        write_points(bucket, "slow", 1, [(step, begun + step * 360, 5 - step * 0.2) for step in range(1, 11)])
    with Reader(tmp_path / "orch.db") as reader:
        yield reader


def compare(store: Reader, *run_ids: str) -> Comparison:
    now = store.jobs(store.clusters()[0])[0].created + HOUR
    return compare_runs(store, run_ids, now, Bucket.open, CurveReader())


def test_settings_that_differ_come_first_and_what_is_not_named_is_none(store: Reader) -> None:
    found = compare(store, "fast", "bare")
    assert [(row.name, row.values, row.differs) for row in found.settings] == [
        ("train.args.lr", ("1e-3", "1e-4"), True),
        ("train.args.seed", (None, "7"), True),
        ("checkpoint.keep", ("3", "3"), False),
        ("train.args.steps", ("10", "10"), False),
    ]


def test_the_cost_of_a_result_is_what_was_paid_until_all_had_reached_it(store: Reader) -> None:
    found = compare(store, "fast", "slow", "bare")
    fast, slow, bare = found.runs
    assert found.common_loss == pytest.approx(3.0), "slow has reached no lower one"
    assert (fast.reached.step, slow.reached.step) == (5, 10) if fast.reached and slow.reached else False
    assert fast.dollars_to_reach == pytest.approx(PRICE / 2, abs=0.01)
    assert slow.dollars_to_reach == pytest.approx(PRICE, abs=0.01)
    assert slow.seconds_to_reach == pytest.approx(HOUR, abs=5)
    assert (bare.reached, bare.dollars_to_reach, bare.tokens_per_s) == (None, None, None)


def test_one_curve_alone_has_nothing_to_be_compared_with(store: Reader) -> None:
    assert compare(store, "fast", "bare").common_loss is None


def test_a_run_that_is_named_twice_is_shown_once(store: Reader) -> None:
    assert [one.letter for one in compare(store, "fast", "fast", "slow").runs] == ["A", "B"]


def test_too_many_runs_and_unknown_ones_are_refused(store: Reader) -> None:
    with pytest.raises(UserError, match="9 runs are too many"):
        compare(store, *map(str, range(9)))
    with pytest.raises(NotFoundError, match="no run 'fist'"):
        compare(store, "fast", "fist")


def test_secrets_are_masked_and_scripts_differ_by_their_digests() -> None:
    task = {"envs": {"HF_TOKEN": "hf_0123456789abcdefghij", "SEED": "1"}, "run": "echo one\necho two\n"}
    found = dict(list_settings(json.dumps(task)))
    assert "0123456789" not in str(found) and found["envs.SEED"] == "1"
    assert found["run"].startswith("echo one… (18 characters, sha256:")
    other = dict(list_settings(json.dumps({**task, "run": "echo one\necho 2\n"})))
    assert other["run"] != found["run"]
    assert list(list_settings("")) == []
