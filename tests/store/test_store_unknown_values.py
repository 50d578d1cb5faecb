"""Values that this orch does not know are refused when a row is read, never replaced by a default."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_history import LOCAL

from orchestrator.distribution import install_command
from orchestrator.exits import Exit
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt
from orchestrator.store.failures import StoreError
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import Reader, open_reader_at
from orchestrator.store.records import ClusterRecord, NewJob, candidate_from_json, candidate_to_json
from orchestrator.store.store import Store

JOB = NewJob(kind="launch", run_id="r", digest="d", task="{}", bucket="", ranks=None, after_end="keep", watch="engine")
CANDIDATE = candidate_to_json(LOCAL)


def _one_of_each(location: Location) -> ClusterRecord:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        lease = store.acquire("cluster:c", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        job = store.open_job(cluster, JOB)
        store.end_attempt(cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="it failed"))
        store.open_pipeline("p", ("a",), uid="p1")
        store.release(lease)
        return cluster


def _overwrite(location: Location, table: str, column: str, value: str) -> None:
    """Do what a newer orch would do: write a value that this one does not have."""
    query = f"UPDATE {table} SET {column} = "
    if isinstance(location, Path):
        raw = sqlite3.connect(location)
        raw.execute(query + "?", (value,))
        raw.commit()
        raw.close()
        return
    import psycopg

    with psycopg.connect(location) as server:
        server.execute((query + "%s").encode(), (value,))


def _market(*words: str) -> str:
    return CANDIDATE.replace('["on-demand"]', str(list(words)).replace("'", '"'))


def _read_unended_pipelines(store: Any, _cluster: ClusterRecord) -> object:
    return store.pipelines(ended=False) if isinstance(store, Reader) else store.unended_pipelines()


READS: dict[str, tuple[Callable[[Any, ClusterRecord], object], ...]] = {
    "clusters": (lambda store, cluster: store.cluster("c"),),
    "intents": (lambda store, cluster: store.intents(cluster),),
    "jobs": (lambda store, cluster: store.jobs(cluster), lambda store, cluster: store.find_run("r")),
    "attempts": (lambda store, cluster: store.ended_attempts(cluster, 1),),
    "pipelines": (_read_unended_pipelines, lambda store, cluster: store.pipeline("p1")),
}
UNKNOWN = [
    ("clusters", "wanted", "hibernated"),
    ("clusters", "last_state", "hibernated"),
    ("clusters", "hosts", '[{"rank": 0, "teleport": "x"}]'),
    ("intents", "state", "suspended"),
    ("intents", "cause", "meteor"),
    ("intents", "candidate", _market("auction", "0.10")),
    ("intents", "candidate", _market("reservation")),
    ("intents", "candidate", CANDIDATE.replace("{", '{"colocated": true, ', 1)),
    ("intents", "candidate", "[]"),
    ("jobs", "state", "suspended"),
    ("jobs", "kind", "serve"),
    ("jobs", "after_end", "hibernate"),
    ("jobs", "watch", "somewhere"),
    ("jobs", "ranks", "zz"),
    ("jobs", "ranks", '{"0": 1}'),
    ("clusters", "held", "[1]"),
    ("clusters", "held", "zz"),
    ("attempts", "cause", "meteor"),
    ("pipelines", "state", "suspended"),
]


@pytest.mark.parametrize(("table", "column", "value"), UNKNOWN)
def test_an_unknown_value_is_refused_with_its_row_and_the_next_step(
    location: Location, table: str, column: str, value: str
) -> None:
    cluster = _one_of_each(location)
    _overwrite(location, table, column, value)
    opened: tuple[Callable[[Location], Store | Reader], ...] = (Store, open_reader_at)
    for open_it in opened:
        for read in READS[table]:
            with open_it(location) as store, pytest.raises(StoreError) as refused:
                read(store, cluster)
            assert refused.value.exit_status == Exit.FAILURE
            assert refused.value.code == "store"
            assert f"{table[:-1]} " in refused.value.what
            assert column in refused.value.why
            assert install_command("", "--upgrade") in refused.value.next_step


@pytest.mark.parametrize("change", ["take_from_queue", "start_attempt", "cancel_job"])
def test_a_job_in_an_unknown_state_is_not_changed(location: Location, change: str) -> None:
    cluster = _one_of_each(location)
    _overwrite(location, "jobs", "state", "suspended")
    with Store(location) as store:
        lease = store.acquire("cluster:c", "test")
        assert isinstance(lease, Lease)
        act: dict[str, Callable[[], None]] = {
            "take_from_queue": lambda: store.take_from_queue(lease, cluster, 1),
            "start_attempt": lambda: store.start_attempt(cluster, 1, lease=lease),
            "cancel_job": lambda: store.cancel_job(cluster, 1),
        }
        with pytest.raises(StoreError, match="suspended"):
            act[change]()


@pytest.mark.parametrize(
    "market", ['["auction"]', '["spot", "0.5"]', '["flex-start", "soon"]', '"spot"', "[]", "null", '["flex-start"]']
)
def test_an_unknown_market_is_never_read_as_on_demand(market: str) -> None:
    with pytest.raises(StoreError, match="market"):
        candidate_from_json(CANDIDATE.replace('["on-demand"]', market))
