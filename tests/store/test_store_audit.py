"""P25: every change has an event with actor, cause, before and after; events rebuild the tables; the chain holds."""

from __future__ import annotations

import inspect
import json
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_history import LOCAL, METHODS, NOT_A_ROW, READS, Step, forging, histories, play
from support.postgres import PostgresServer

from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.store import schema
from orchestrator.store.audited import (
    KEYS,
    NOT_AUDITED,
    TABLES_NOT_AUDITED,
    Head,
    format_subject,
    parse_subject,
)
from orchestrator.store.integrity import find_store_faults, read_audited_tables
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import EventRecord, NewJob
from orchestrator.store.replay import Tables, rebuild_tables, verify_chain
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P25")


def tables_of(location: Location) -> Tables:
    """What the database really holds, without the columns that are not audited."""
    with open_reader_at(location) as reader:
        return read_audited_tables(reader)


def audit_of(location: Location) -> tuple[list[EventRecord], Head]:
    with open_reader_at(location) as reader:
        return list(reader.all_events()), reader.head()


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest) -> Callable[[], Location]:
    """Makes an empty store's place for each example of a property test."""
    if request.param == "sqlite":
        return lambda: Path(tempfile.mkdtemp(dir=request.getfixturevalue("tmp_path"))) / "orch.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_store


def test_the_random_history_knows_every_changing_method_of_the_store() -> None:
    public = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert public - READS - NOT_A_ROW == set(METHODS)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(METHODS))
def test_the_events_of_any_history_rebuild_the_real_tables(fresh: Callable[[], Location], history: list[Step]) -> None:
    location = fresh()
    with Store(location) as store:
        for step in history:
            play(store, step)
        real = tables_of(location)
    events, head = audit_of(location)
    assert rebuild_tables(events) == real
    assert verify_chain(events, head) is None
    assert all(event.actor and event.cause and event.kind for event in events)


def test_every_table_and_column_is_audited_or_named_with_a_reason() -> None:
    assert set(schema.metadata.tables) == set(KEYS) | set(TABLES_NOT_AUDITED)
    for table, columns in NOT_AUDITED.items():
        assert set(columns) < {column.name for column in schema.metadata.tables[table].columns}
        assert all(columns.values())


@pytest.mark.parametrize("table", KEYS)
@given(key=st.lists(st.text() | st.sampled_from(["/", "%", "%2F", "%25", "a/b/", ""]), min_size=4, max_size=4))
def test_every_key_comes_back_from_its_subject(table: str, key: list[str]) -> None:
    numbers = {"generation", "id", "job_id", "attempt"}
    row = {column: number if column in numbers else key[number] for number, column in enumerate(KEYS[table])}
    assert parse_subject(format_subject(table, row)) == (table, row)


def test_an_event_names_its_row_its_actor_its_cause_and_both_values(location: Location) -> None:
    with Store(location, lambda: 1000.0) as store:
        _story(store)
        cluster = store.cluster("c")
    assert cluster is not None
    events, _ = audit_of(location)
    moved = events[-1]
    assert moved.subject == f"intent {cluster.uid}/1"
    assert moved.cause == "preempted: taken back"
    assert json.loads(moved.before or "") == {"state": "accepted", "cause": None, "why": ""}
    assert json.loads(moved.after or "") == {"state": "ending", "cause": "preempted", "why": "taken back"}
    assert "@" in moved.actor
    assert {event.at for event in events} == {1000.0}
    assert next(event for event in events if event.kind == "intent").cause == "launch"  # what the lease was taken for


def test_a_change_that_is_repeated_leaves_no_second_event(location: Location) -> None:
    counts: list[int] = []
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        assert store.open_cluster("c", "") == cluster
        lease = store.acquire("cluster:c", "launch")
        assert isinstance(lease, Lease)
        job = store.queue_job(
            cluster, NewJob(kind="exec", run_id="", digest="d", task="", bucket="", ranks=None, after_end="keep")
        )
        for _ in range(2):
            store.set_desired_state(cluster, "down")
            store.set_limits(cluster, {"max_cost": 5})
            store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
            store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.REQUESTED, "x")
            if not counts:
                store.take_from_queue(lease, cluster, job.id)  # raises when the job is ended
            store.set_watch(cluster, job.id, "engine")
            store.end_attempt(cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="x", generation=1))
            store.next_attempt(
                cluster, job.id, EndedAttempt(attempt=1, cause=EndCause.PROGRAM, why="x", generation=1), 2
            )
            store.record_outcome(cluster, job.id, Outcome(status=3, code="program-failed", what="it failed"))
            store.record_outcome(cluster, job.id, Outcome(status=0, code="", what="another outcome comes too late"))
            store.open_pipeline("p", ("a", "b"), uid="p1")
            store.advance_pipeline("p1", 1)
            store.end_pipeline("p1", "ended", 0, "all done")
            store.close_cluster(lease, cluster)
            counts.append(len(audit_of(location)[0]))
        assert store.job(cluster, job.id).status == 3
    assert counts[0] == counts[1]


def test_the_end_of_a_slice_is_recorded_in_words_and_stored_as_before(location: Location) -> None:
    with Store(location) as store:
        cluster = store.open_cluster("c", "")
        lease = store.acquire("cluster:c", "launch")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.REQUESTED, "down")
        store.update_intent(lease, cluster, "c-1", IntentState.DELETED)
    events = [event for event in audit_of(location)[0] if "c-1: " in event.what][1:]
    assert [event.what for event in events] == ["c-1: planned -> ending (requested: down)", "c-1: ending -> deleted"]
    assert '"asked"' in events[0].after and '"gone"' in events[1].after


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[EventRecord], Head]:
    location = tmp_path_factory.mktemp("story") / "orch.db"
    with Store(location) as store:
        _story(store)
        for number in range(5):
            store.event("c", "remark", f"remark {number}")
    return audit_of(location)


def _story(store: Store) -> None:
    cluster = store.open_cluster("c", "local:4")
    lease = store.acquire("cluster:c", "launch")
    assert isinstance(lease, Lease)
    store.open_job(
        cluster, NewJob(kind="exec", run_id="", digest="d", task="", bucket="", ranks=None, after_end="keep")
    )
    store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
    store.update_intent(lease, cluster, "c-1", IntentState.ACCEPTED)
    store.update_intent(lease, cluster, "c-1", IntentState.ENDING, EndCause.PREEMPTED, "taken back")
    store.release(lease)


CHANGES: dict[str, Any] = {
    "at": 1.0, "cluster": "x", "actor": "x", "kind": "x", "what": "x", "subject": "cluster x", "cause": "x",
    "before": '{"x": 1}', "after": '{"x": 1}', "prev_hash": "0" * 64, "hash": "0" * 64,
}  # fmt: skip


@pytest.mark.parametrize("column", sorted(CHANGES))
def test_a_changed_column_of_any_event_is_found(story: tuple[list[EventRecord], Head], column: str) -> None:
    events, head = story
    for index, event in enumerate(events):
        forged = [*events[:index], replace(event, **{column: CHANGES[column]}), *events[index + 1 :]]
        fault = verify_chain(forged, head)
        assert fault is not None
        assert fault.seq in {event.seq, event.seq + 1, 0}


def test_a_removed_event_is_found_also_at_the_end(story: tuple[list[EventRecord], Head]) -> None:
    events, head = story
    for index in range(len(events)):
        assert verify_chain([*events[:index], *events[index + 1 :]], head) is not None


@given(st.data())
def test_events_in_another_order_are_found(story: tuple[list[EventRecord], Head], data: st.DataObject) -> None:
    events, head = story
    order = data.draw(st.permutations(range(len(events))))
    fault = verify_chain([events[index] for index in order], head)
    assert (fault is None) == (list(order) == sorted(order))


def test_an_event_that_was_put_between_two_is_found(story: tuple[list[EventRecord], Head]) -> None:
    events, head = story
    for index in range(len(events)):
        assert verify_chain([*events[:index], events[index], *events[index:]], head) is not None


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE jobs SET status = 0, state = 'ended'", "was changed by another program: state, status"),
        ("DELETE FROM intents", "was removed by another program"),
        ("INSERT INTO pipelines VALUES ('u', 'n', '[]', 0, 'running', NULL, '', 0, NULL, '')", "pipeline u was added"),
        ("UPDATE events SET actor = 'another owner' WHERE seq = 2", "the audit was changed: event 2"),
        ("DELETE FROM events WHERE seq = 3", "the audit was changed: event 4"),
    ],
)
def test_what_was_changed_behind_the_stores_back_is_found_by_the_check(
    location: Location, statement: str, said: str
) -> None:
    with Store(location) as store:
        _story(store)
        assert find_store_faults(location) == ()
        with forging(store) as tx:
            tx.exec_driver_sql(statement)
            tx.commit()
    (fault,) = find_store_faults(location)
    assert said in fault


def test_an_absent_store_has_no_faults(tmp_path: Path) -> None:
    assert find_store_faults(tmp_path / "none.db") == ()


def test_events_cut_off_the_end_are_noticed_at_the_next_start(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    with Store(database) as store:
        _story(store)
    with sqlite3.connect(database) as raw:
        raw.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
    with pytest.raises(Exception, match="events were lost or changed"):
        Store(database)


def test_an_event_that_contradicts_the_rows_before_it_is_refused(story: tuple[list[EventRecord], Head]) -> None:
    events, _ = story
    changed = [event for event in events if event.before is not None]
    with pytest.raises(ValueError, match="differs from the state"):
        rebuild_tables([*events, changed[0]])
    with pytest.raises(ValueError, match="exists already"):
        rebuild_tables([*events, events[0]])


def _numbers() -> Iterator[float]:
    at = 0.0
    while True:
        at += 1.0
        yield at


def test_all_times_that_are_written_come_from_the_clock_that_was_given(location: Location) -> None:
    ticks = _numbers()
    with Store(location, lambda: next(ticks)) as store:
        _story(store)
        cluster = store.cluster("c")
        assert cluster is not None
        store.note_state(cluster, "ready")
        (intent,) = store.intents(cluster)
        (job,) = store.jobs(cluster)
        noted = store.cluster("c")
        assert noted is not None
        written = [cluster.created, intent.since, intent.last_sent, job.created, noted.last_seen]
    events, _ = audit_of(location)
    assert max(*written, *(event.at for event in events)) < 100.0
    assert [event.at for event in events] == sorted(event.at for event in events)


def test_a_store_that_is_being_written_is_verified_as_it_is_at_one_moment(fresh: Callable[[], Location]) -> None:
    location = fresh()
    over = threading.Event()

    def write() -> None:
        with Store(location) as store:
            while not over.is_set():
                store.event("", "test", "another event")

    with Store(location) as store:
        for _ in range(200):  # reading them takes a while, in which others come
            store.event("", "test", "an event")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert [find_store_faults(location) for _ in range(20)] == [()] * 20
    finally:
        over.set()
        writer.join()
