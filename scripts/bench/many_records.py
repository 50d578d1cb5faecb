"""Stores with as many records as a team has after years: copies of a few records, whose chain of events is whole."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.service_site import record_run

from orchestrator.plan.observed import IntentState
from orchestrator.store.audited import Head, hash_event
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.store import Store

_TIMES = frozenset({"at", "created", "gone", "ended", "since", "touched", "born", "last_seen", "started_at"})
_TABLES = ("clusters", "intents", "jobs", "attempts", "pipelines")
_BATCH = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """One copy of the records: what its names end with, and how many seconds earlier it happened."""

    number: int
    uids: Mapping[str, str]
    seconds: float

    def change(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of this copy."""
        return {column: self._change_value(column, value) for column, value in row.items()}

    def _change_value(self, column: str, value: object) -> object:
        if isinstance(value, str):
            return self._rename(value)
        return value - self.seconds if isinstance(value, int | float) and column in _TIMES else value

    def _rename(self, text: str) -> str:
        for old, new in self.uids.items():
            text = text.replace(old, new)
        if text.startswith("{"):
            return json.dumps(self.change(json.loads(text)), sort_keys=True)
        return text


def record_runs(database: Path, runs: int, seconds: float = 300.0) -> None:
    """Record runs whose machines are deleted, one every `seconds`, the newest a minute ago."""

    def record(store: Store) -> list[str]:
        cluster = record_run(store, "zero-cluster", "zero-run")
        _close(store, "zero-cluster")
        return [cluster.uid]

    _fill(database, record, runs, seconds)


def record_open_clusters(database: Path, clusters: int) -> None:
    """Record clusters that are open, each with an ended run."""
    _fill(database, lambda store: [record_run(store, "zero-cluster", "zero-run").uid], clusters, 30.0)


def record_ended_pipelines(database: Path, pipelines: int) -> None:
    """Record pipelines of three stages that have ended."""

    def record(store: Store) -> list[str]:
        made = store.open_pipeline("zero-pipeline", ("{}",) * 3)
        store.end_pipeline(made.uid, "ended", 0, "it succeeded")
        return [made.uid]

    _fill(database, record, pipelines, 30.0)


def _close(store: Store, name: str) -> None:
    cluster, lease = store.cluster(name), store.acquire(f"cluster:{name}", "down")
    assert cluster is not None and isinstance(lease, Lease)
    store.update_intent(lease, cluster, f"{name}-1", IntentState.DELETED)
    store.close_cluster(lease, cluster)
    store.release(lease)


def _fill(database: Path, record: Callable[[Store], list[str]], number: int, seconds: float) -> None:
    """Record something once, an hour before now, and copy it until it is there so often, the oldest first."""
    moments = count(time.time() - 3600, 30)
    with Reader(database) as reader:
        before = reader.head().seq
    with Store(database, lambda: next(moments)) as store:
        names = record(store)
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous=OFF")
        rows = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in _TABLES}
        events = [dict(row) for row in connection.execute("SELECT * FROM events WHERE seq > ? ORDER BY seq", (before,))]
        kept = [dict(row) for row in connection.execute("SELECT * FROM events WHERE seq <= ? ORDER BY seq", (before,))]

        def copy(found: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
            copies = (_name_copy(names, index, seconds) for index in range(number - 1, 0, -1))
            return (one.change(row) for one in copies for row in found)

        for name in _TABLES:
            _insert(connection, name, copy(rows[name]))
        connection.execute("DELETE FROM events")
        renamed = copy(events)
        head = Head()
        linked = _link(chain(kept, renamed, events))
        while batch := list(islice(linked, _BATCH)):
            _insert(connection, "events", batch)
            head = Head(batch[-1]["seq"], batch[-1]["hash"])
        connection.execute("UPDATE meta SET value = ? WHERE key = 'chain'", (str(head),))
    for witness in database.parent.glob("store-head.json"):
        witness.unlink()  # it has seen the first events


def _name_copy(names: Iterable[str], index: int, seconds: float) -> _Copy:
    uids = {name: f"{index:0{len(name)}x}" for name in names}
    uids |= {"zero-": f"n{index}-"}
    return _Copy(number=index, uids=uids, seconds=index * seconds)


def _link(events: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the events with their new numbers and hashes."""
    last = ""
    for seq, event in enumerate(events, 1):
        linked = {**event, "seq": seq, "prev_hash": last}
        last = linked["hash"] = hash_event(linked, last)
        yield linked


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        names = list(batch[0])
        marks = ", ".join("?" * len(names))
        query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"  # constant names
        connection.executemany(query, [tuple(row.values()) for row in batch])
