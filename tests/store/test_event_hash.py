"""The hash of an event is the same in Python and in PostgreSQL, and so are the columns that an event records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support.postgres import PostgresServer
from test_store_audit import audit_of, tables_of

from orchestrator.store.audited import clean_text, hash_event
from orchestrator.store.change import EventDetails, update_row
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.records import ClusterRecord, EventRecord
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.schema import clusters, intents
from orchestrator.store.store import Store

pytestmark = [pytest.mark.promise("P25")]

_any = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
_float = st.floats(allow_nan=False, allow_infinity=False)
COLUMNS = ("prev_hash", "seq", "at", "cluster", "actor", "kind", "what", "subject", "cause", "before", "after")


@pytest.fixture(scope="module")
def opened(postgres: PostgresServer) -> Iterator[tuple[Store, str, ClusterRecord]]:
    address = postgres.new_store()
    with Store(address) as store:
        yield store, address, store.open_cluster("c", "")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(_any, min_size=7, max_size=7), optional=st.lists(st.none() | _any, min_size=2, max_size=2),
       seq=st.integers(1, 2**31 - 1), at=_float)  # fmt: skip
@example(
    texts=["", "\\", "'", '"', "%I $1 %s", "\x01\x1f\x7f\u2028\0", "\ud800é😀"], optional=[None, ""], seq=1, at=-0.0
)
@example(texts=["1:a", "-", "2:", "a", "", "", ""], optional=["-", None], seq=1, at=1e22)
@example(texts=[""] * 7, optional=[None, None], seq=1, at=5e-324)
def test_both_sides_compute_the_same_hash(
    opened: tuple[Store, str, ClusterRecord], texts: list[str], optional: list[str | None], seq: int, at: float
) -> None:
    prev, *named = map(clean_text, texts)
    values = (prev, seq, at, *named, *map(clean_text, optional))
    event = dict(zip(COLUMNS, values, strict=True))
    query = text(f"SELECT orch_event_hash({', '.join(f':{name}' for name in COLUMNS)})")
    with opened[0]._database.reading() as tx:
        assert tx.execute(query, event).scalar_one() == hash_event(event, prev)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(summary=_any, created=_float, deleted=st.none() | _float)
@example(summary="\\u0000 \\ \" ' \0", created=1e23, deleted=0.1)
@example(summary="", created=-0.0, deleted=5e-324)
@example(summary="x", created=123456789012345680.0, deleted=1e22)
def test_the_events_that_the_server_writes_rebuild_any_value(
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


def test_a_table_that_is_not_audited_cannot_be_changed_by_the_function(
    opened: tuple[Store, str, ClusterRecord],
) -> None:
    import json

    from orchestrator.store.failures import StoreError

    store, address, _ = opened
    for table in ("events", "meta", "leases", "pg_authid"):
        spec = {"verb": "insert", "table": table, "key": {}, "values": {"key": "x"}}
        request = {"id": "i", "at": 1.0, "client": "x", "guards": [], "changes": [spec]}
        with pytest.raises(StoreError, match="not audited"), store._database.calling() as tx:
            tx.execute(text("SELECT orch_change(CAST(:r AS json))"), {"r": json.dumps(request)})
    assert intents.name in rebuild_tables(audit_of(address)[0])
    assert find_store_faults(address) == ()
