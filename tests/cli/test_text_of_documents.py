"""The text of a read command is drawn from the document of its `-o json`, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.commands.watch.events import draw_event
from orchestrator.cli.drawing.queue_text import draw_queue
from orchestrator.cli.drawing.runs_text import draw_run, draw_runs
from orchestrator.cli.drawing.status_text import draw_cluster, draw_clusters
from orchestrator.clock import SteadyClock
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

Orch = Callable[..., Any]
Draw = Callable[[Mapping[str, Any]], list[str]]
TASK = json.dumps({"git": {"commit": "0123456789abcdef", "branch": "main", "changes": "ffff"}})


def draw_events(document: Mapping[str, Any]) -> list[str]:
    return [draw_event(event) for event in document["events"]]


TEXTS: dict[tuple[str, ...], Draw] = {
    ("status",): partial(draw_clusters, with_project=False),
    ("status", "--all"): partial(draw_clusters, with_project=True),
    ("status", "mine"): draw_cluster,
    ("queue",): partial(draw_queue, with_project=False),
    ("queue", "--all", "--all-projects"): partial(draw_queue, with_project=True),
    ("runs",): partial(draw_runs, with_project=False),
    ("runs", "--all"): partial(draw_runs, with_project=True),
    ("runs", "of-git"): draw_run,
    ("events",): draw_events,
    ("events", "mine"): draw_events,
}


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the records, so that two commands measure the same ages."""
    now = SteadyClock.now
    moments: list[float] = []

    def read(clock: SteadyClock) -> float:
        moments.append(now(clock))
        return moments[0]

    monkeypatch.setattr(SteadyClock, "now", read)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("words", TEXTS, ids=" ".join)
def test_the_text_is_drawn_from_the_document_alone(orch: Orch, filled: Path, words: tuple[str, ...]) -> None:
    with Store(filled / "state" / "orch.db") as store:
        cluster = store.cluster("mine")
        assert cluster is not None
        job = NewJob(
            kind="launch", run_id="of-git", digest="d", task=TASK, bucket="gs://b/runs", ranks=(0,),
            after_end=TeardownPolicy.KEEP,
        )  # fmt: skip
        store.open_job(cluster, job)
        store.open_pipeline("nightly", ("{}", "{}"))
    document, text = orch(*words, "-o", "json"), orch(*words)
    assert (document.status, text.status) == (0, 0), document.err + text.err
    drawn = TEXTS[words](json.loads(document.out))
    assert len(drawn) > 1
    assert "\n".join(drawn) + "\n" == text.out


def test_ages_are_measured_from_the_time_in_the_document(orch: Orch, filled: Path) -> None:
    document = json.loads(orch("status", "-o", "json").out)
    document["now"] = document["clusters"][0]["state_at"].replace("Z", "+00:00")[:10] + "T23:59:59.000Z"
    document["clusters"][0]["state_at"] = document["now"][:10] + "T22:59:59.000Z"
    assert "1 h ago" in draw_clusters(document, with_project=False)[1]
