"""The pipeline that a person means by a name: its own, or the cluster of its current stage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.lookup import find_pipeline
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

JOB = NewJob(kind="launch", run_id="r", digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP)


def record(store: Store, uid: str, name: str = "pipe", **settings: str) -> None:
    store.open_pipeline(name, ("{}", "{}"), json.dumps({"owner": store.member, **settings}), uid=uid, stage=1)


def find(file: Path, name: str, job: int | None = None) -> str:
    with open_reader_at(file) as reader:
        found = find_pipeline(reader, name, job)
    return "" if found is None else found.uid


def test_its_name_and_the_cluster_of_its_current_stage_mean_it(tmp_path: Path) -> None:
    file = tmp_path / "orch.db"
    with Store(file) as store:
        record(store, "p")
        assert [find(file, name) for name in ("pipe", "pipe-2", "pipe-1", "other")] == ["p", "p", "", ""]
        cluster = store.open_cluster("pipe-2", "")
        store.open_job(cluster, replace(JOB, pipeline="p", stage=1))
        store.open_job(cluster, JOB)
        assert [find(file, "pipe-2", job) for job in (None, 1, 2, 3)] == ["p", "p", "", ""]
        store.open_cluster("pipe", "")
        assert [find(file, name) for name in ("pipe", "pipe-2")] == ["", "p"], "a cluster hides it"
        store.end_pipeline("p", "ended", 0, "")
        assert find(file, "pipe-2") == ""


@pytest.mark.parametrize(("others", "meant"), [({"owner": "someone"}, "mine"), ({"project": "other"}, "mine")])
def test_ones_own_comes_first(tmp_path: Path, others: dict[str, str], meant: str) -> None:
    file = tmp_path / "orch.db"
    with Store(file) as store:
        record(store, "older", **others)
        record(store, "mine")
        record(store, "newer", **others)
    assert find(file, "pipe") == meant
