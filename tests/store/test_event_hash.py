"""The events of a store on PostgreSQL: they rebuild every value, a forged one is found, and none is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Table
from support.postgres import PostgresServer
from test_store_audit import audit_of, tables_of

from orchestrator.store.audited import clean_text, hash_event
from orchestrator.store.change import EventDetails, insert_row, update_row
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.records import ClusterRecord, EventRecord
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.schema import clusters, leases, meta
from orchestrator.store.schema import events as events_table
from orchestrator.store.store import Store

pytestmark = [pytest.mark.promise("P25")]

_any = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
_float = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture(scope="module")
def opened(postgres: PostgresServer) -> Iterator[tuple[Store, str, ClusterRecord]]:
    address = postgres.new_store()
    with Store(address) as store:
        yield store, address, store.open_cluster("c", "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(summary=_any, created=_float, deleted=st.none() | _float)
@example(summary="\\u0000 \\ \" ' \0", created=1e23, deleted=0.1)
@example(summary="", created=-0.0, deleted=5e-324)
@example(summary="x", created=123456789012345680.0, deleted=1e22)
def test_events_rebuild_any_value(
    opened: tuple[Store, str, ClusterRecord], summary: str, created: float, deleted: float | None
) -> None:
    store, address, cluster = opened
    details = EventDetails(cluster="c", kind="remark", what=summary)
    values = {"summary": summary, "created": created, "gone": deleted}
    change = update_row(clusters, {"uid": cluster.uid}, values, details)
    store.change(change, at=created)
    assert store.change(change, at=created) == (False,)
    real = tables_of(address)
    assert real["clusters"][cluster.uid,]["created"] == created
    assert real["clusters"][cluster.uid,]["gone"] == deleted
    assert real["clusters"][cluster.uid,]["summary"] == clean_text(summary)
    events, head = audit_of(address)
    assert verify_chain(events, head) is None
    assert rebuild_tables(events) == real


def test_a_forged_event_is_found() -> None:
    plain = {"at": 1.5, "cluster": "c", "actor": "ann@x:1", "kind": "remark", "what": "é", "subject": "", "cause": "y"}
    events: list[EventRecord] = []
    last = ""
    for seq in (1, 2, 3):
        event = plain | {"seq": seq, "before": None, "after": None}
        last, before = hash_event(event, last), last
        events.append(EventRecord(**event, prev_hash=before, hash=last))
    assert verify_chain(events) is None
    for index in range(3):
        forged = [replace(event, what="z") if n == index else event for n, event in enumerate(events)]
        fault = verify_chain(forged)
        assert fault is not None
        assert fault.seq == index + 1


@pytest.mark.parametrize("table", [events_table, meta, leases], ids=lambda table: table.name)
def test_a_table_that_is_not_audited_is_not_changed_with_an_event(
    opened: tuple[Store, str, ClusterRecord], table: Table
) -> None:
    store, address, _ = opened
    details = EventDetails(cluster="", kind="remark", what="x")
    with pytest.raises(LookupError, match="is not audited"):
        store.change(insert_row(table, {"key": "x"}, details), at=1.0)
    assert find_store_faults(address) == ()


@pytest.mark.parametrize("statement", ["UPDATE events SET what = 'x'", "DELETE FROM events", "TRUNCATE events"])
def test_not_even_the_owner_of_the_store_changes_an_event_by_mistake(
    opened: tuple[Store, str, ClusterRecord], statement: str
) -> None:
    import psycopg

    with psycopg.connect(opened[1], autocommit=True) as raw, pytest.raises(psycopg.Error, match="only added"):
        raw.execute(statement.encode())
