"""What the commands that watch show of a store: which job, which run, which driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan.observed import Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.lookup import find_current_job
from orchestrator.store.records import JobRecord, NewJob
from orchestrator.store.store import Store

Orch = Callable[..., Any]


def record_jobs(store: Store, *jobs: tuple[str, str], name: str = "watched") -> tuple[JobRecord, ...]:
    """Record jobs on a cluster, each of a kind and in a state, and return them."""
    cluster = store.open_cluster(name, "cpu on local")
    for number, (kind, state) in enumerate(jobs, 1):
        job = NewJob(
            kind=kind,
            run_id=f"{name}-run-{number}",
            digest=f"d{number}",
            task="",
            bucket="",
            ranks=None,
            after_end=TeardownPolicy.KEEP,
            queued=state == "queued",
        )
        made = store.queue_job(cluster, job) if state == "queued" else store.open_job(cluster, job)
        if state in ("running", "ended"):
            store.start_attempt(cluster, made.id)
        if state in ("ended", "set up"):
            store.record_outcome(cluster, made.id, Outcome(status=0, code="ok", what="it succeeded"))
    return store.jobs(cluster)


@pytest.mark.parametrize(
    ("jobs", "chosen"),
    [
        ([("launch", "running"), ("exec", "ended")], 1),
        ([("launch", "running"), ("exec", "running")], 1),
        ([("launch", "running"), ("launch", "queued")], 1),
        ([("launch", "ended"), ("exec", "running")], 1),
        ([("launch", "set up"), ("exec", "running")], 2),
        ([("launch", "ended"), ("resume", "ended"), ("exec", "ended")], 2),
        ([("exec", "ended"), ("exec", "ended")], 2),
    ],
)
def test_the_job_that_matters_is_the_running_one_then_the_last_training(
    tmp_path: Path, jobs: list[tuple[str, str]], chosen: int
) -> None:
    with Store(tmp_path / "orch.db") as store:
        found = find_current_job(record_jobs(store, *jobs))
    assert found is not None and found.id == chosen


def test_status_shows_the_training_after_a_command(orch: Orch, home: Path) -> None:
    with Store(home / "state" / "orch.db") as store:
        record_jobs(store, ("launch", "running"), ("exec", "ended"))
    shown = orch("status").out
    assert "1 running" in shown and "2 exit 0" not in shown


def test_a_cluster_in_place_of_a_run_is_said_to_be_one(orch: Orch, filled: Path) -> None:
    said = orch("runs", "mine")
    assert said.status == 3 and "'mine' is a cluster" in said.err and "orch runs -c mine" in said.err


@pytest.mark.parametrize(
    ("words", "near"), [(("runs", "run-aa"), "run-a"), (("runs", "mone"), "mine"), (("runs", "-c", "mone"), "mine")]
)
def test_a_mistyped_run_or_cluster_gets_the_nearest_name(
    orch: Orch, filled: Path, words: tuple[str, ...], near: str
) -> None:
    for form in ((), ("-o", "json")):
        said = orch(*words, *form)
        assert said.status == 3 and f"did you mean {near}?" in said.out + said.err


def test_a_cluster_without_runs_is_named(orch: Orch, filled: Path) -> None:
    said = orch("runs", "-c", "other")
    assert said.status == 0 and "no run of cluster 'other' is on record" in said.err


def test_the_queue_says_how_to_follow_a_command(orch: Orch, filled: Path) -> None:
    jobs = json.loads(orch("queue", "-o", "json").out)["jobs"]
    assert [job["driven_by"] for job in jobs] == ["none (orch logs -f mine 2)"]
