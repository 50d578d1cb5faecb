"""Pages of runs, on both databases."""

from __future__ import annotations

import pytest

from orchestrator.documents.runs import summarize_runs
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store


def open_runs(location: Location, count: int) -> None:
    """Record a launch of `run-N` on a cluster of each number, a resume of run-0 after all, and a command."""
    with Store(location) as store:
        for number in range(count):
            open_job(store, f"c{number}", f"run-{number}", "launch")
        open_job(store, "c0", "run-0", "resume")
        open_job(store, "c1", "exec-run", "exec")


def open_job(store: Store, cluster: str, run_id: str, kind: str) -> None:
    record = store.cluster(cluster) or store.open_cluster(cluster, "")
    job = NewJob(kind=kind, run_id=run_id, digest="d", task="", bucket="", ranks=None, after_end=TeardownPolicy.KEEP)
    store.open_job(record, job)


def read_pages(store: Reader, limit: int) -> list[str]:
    found: list[str] = []
    before: float | None = None
    while page := store.newest_runs(limit=limit, before=before):
        found += page
        before = summarize_runs(store, 0.0, page)[-1].last.created
    return found


def test_pages_have_every_run_once_the_newest_job_first(location: Location) -> None:
    open_runs(location, 7)
    with open_reader_at(location) as store:
        expected = ["run-0", *(f"run-{number}" for number in range(6, 0, -1))]
        for limit in (1, 3, 100):
            assert read_pages(store, limit) == expected
        assert [run.run_id for run in summarize_runs(store, 0.0, expected)] == expected
        assert store.newest_runs(limit=9, owner="another") == store.newest_runs(limit=9, project="another") == []
        assert store.newest_runs(limit=9, project="default") == expected


def test_a_run_that_was_resumed_often_hides_no_other(location: Location) -> None:
    open_runs(location, 3)
    with Store(location) as store:
        for _ in range(9):
            open_job(store, "c0", "run-0", "resume")
    with open_reader_at(location) as store:
        assert store.newest_runs(limit=3) == read_pages(store, 1) == ["run-0", "run-2", "run-1"]


def test_chosen_runs_are_summarized_as_among_all(location: Location) -> None:
    open_runs(location, 4)
    with open_reader_at(location) as store:
        among_all = {run.run_id: run for run in summarize_runs(store, 9e9, store.newest_runs(limit=9))}
        for run_id in ("run-0", "run-2"):
            assert summarize_runs(store, 9e9, [run_id]) == [among_all[run_id]]
        assert [job.kind for job in among_all["run-0"].jobs] == ["launch", "resume"]
        assert summarize_runs(store, 9e9, []) == summarize_runs(store, 9e9, ["none"]) == []


@pytest.mark.parametrize("after", [0, 3])
def test_events_after_a_number_are_the_oldest_ones(location: Location, after: int) -> None:
    open_runs(location, 3)
    with open_reader_at(location) as store:
        everything = [event.seq for event in store.all_events()]
        assert [event.seq for event in store.events_after(after, 4)] == [seq for seq in everything if seq > after][:4]
        mine = [event.seq for event in store.all_events() if event.cluster == "c1"]
        assert [event.seq for event in store.events_after(0, 100, "c1")] == mine
