"""The records of a store for a copy elsewhere: the events after one, the rows that they changed, and who is at work.

What is sent is decided in store/replicated.py. Texts are masked as `orch events` and `orch status` mask them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from orchestrator.documents.events import is_about_entry, mask_columns
from orchestrator.documents.output_progress import list_progress
from orchestrator.store.audited import KEYS, Head, parse_subject
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord
from orchestrator.store.replicated import EVENTS, SENT
from orchestrator.store.version import OLDEST_READER, SCHEMA_VERSION

MOST_EVENTS = 1000  # of one document
_TABLES = tuple(name for name in SENT if name != EVENTS)
_PATHS: Mapping[str, object] = {
    "identity_file": "",
    "known_hosts": "",
    "host_key": None,
    "jump": None,
    "proxy": [],
    "own": None,
}


def records_as_json(store: Reader, after: int, member: str, limit: int = MOST_EVENTS) -> dict[str, object]:
    """Return the records as in data/records.schema.json, of one state of the store.

    Args:
        store: Open. It reads this one state from here on.
        after: The newest event that the copy has; 0 for none.
        member: Who asks.
        limit: The most events.
    """
    store.hold_snapshot()
    head = store.head()
    found = store.events_after(after, limit)
    until = Head(found[-1].seq, found[-1].hash) if found else Head(after, store.find_hash(after))
    if store.only_project and len(found) < limit and until.seq < head.seq:
        until = head  # the others are of other projects
    complete = until.seq >= head.seq
    return {
        "version": 1,
        "kind": "records",
        "tables": SCHEMA_VERSION,
        "min_reader": OLDEST_READER,
        "installation": "/".join(filter(None, (store.installation() or "", store.only_project))),  # else begun again
        "incarnation": store.incarnation,
        "member": member,
        "engine_works": store.engine_works(),
        "after": {"seq": after, "hash": store.find_hash(after)},
        "until": {"seq": until.seq, "hash": until.hash},
        "complete": complete,
        "columns": {name: list(columns) for name, columns in SENT.items()},
        "events": [_list_values(EVENTS, list_event_columns(event)) for event in found],
        "rows": _list_rows(store, found, with_open=complete),
        "progress": list_progress(store) if complete else {},
        "leases": [
            {"name": row["name"], "machine": row["machine"], "pid": row["pid"], "doing": row["doing"]}
            for row in store.held_leases()
            if not str(row["name"]).startswith("engine:")  # `engine_works` says what a copy needs
        ],
    }


def _list_rows(store: Reader, events: Sequence[EventRecord], *, with_open: bool) -> dict[str, list[list[object]]]:
    """Return the present rows that events changed, and all open clusters, which change without events, too."""
    keys: dict[str, dict[tuple[object, ...], None]] = {name: {} for name in _TABLES}
    for event in events:
        with suppress(ValueError):  # no row, or one of a table that only a newer orch knows
            table, key = parse_subject(event.subject)
            if table in keys:
                keys[table][tuple(key[column] for column in KEYS[table])] = None
    if with_open:
        keys["clusters"].update({(record.uid,): None for record in store.clusters()})
    return {
        name: [_list_values(name, reduce_row(name, row)) for row in store.find_rows(name, list(changed))]
        for name, changed in keys.items()
    }


def _list_values(table: str, row: Mapping[str, Any]) -> list[object]:
    return [row[column] for column in SENT[table]]


def list_event_columns(event: EventRecord) -> dict[str, object]:
    """Return the columns of an event, masked as `orch events` shows it."""
    row: dict[str, object] = {column: getattr(event, column) for column in SENT[EVENTS]}
    if is_about_entry(event):
        return row | {"before": None, "after": None}
    return row | {"before": _mask(event.before), "after": _mask(event.after)}


def _mask(text: str | None) -> str | None:
    return None if text is None else json.dumps(mask_columns(json.loads(text)))


def reduce_row(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what replicated.REDUCED leaves out."""
    return {**row} | {column: reduce(str(row[column])) for column, reduce in REDUCERS.get(table, {}).items()}


def _reduce_hosts(text: str) -> str:
    """Return the addresses alone; of a text that is none, one that a reader refuses as it would refuse that."""
    try:
        hosts = cast("list[dict[str, Any]]", json.loads(text or "[]"))
        return json.dumps([{**_PATHS, **{name: host[name] for name in _ADDRESS}} for host in hosts])
    except (ValueError, TypeError, KeyError):
        return "null"


def _reduce_task(text: str) -> str:
    try:
        task = cast("dict[str, Any]", json.loads(text or "{}"))
        return json.dumps({"git": task["git"]}) if isinstance(task.get("git"), dict) else ""
    except (ValueError, AttributeError):
        return ""


def _reduce_tasks(text: str) -> str:
    return json.dumps([""] * len(json.loads(text)))


def _reduce_request(text: str) -> str:
    try:
        settings = cast("dict[str, Any]", json.loads(text or "{}"))
        return json.dumps({name: settings[name] for name in ("project", "owner") if name in settings})
    except (ValueError, TypeError):
        return "{}"


_ADDRESS = ("rank", "alias", "host", "port", "user", "internal_ip")
REDUCERS: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "clusters": {"hosts": _reduce_hosts, "held": lambda _text: "{}"},
    "jobs": {"task": _reduce_task, "wish": lambda _text: ""},
    "pipelines": {"tasks": _reduce_tasks, "wish": _reduce_request},
}
