"""Events of the audit as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.formatting import format_utc
from orchestrator.project import split_name
from orchestrator.store.records import EventRecord
from orchestrator.task.likely_secrets import mask_likely_secrets


def events_as_json(found: Sequence[EventRecord]) -> dict[str, object]:
    """Return events as in data/events.schema.json; with -o jsonl each line is one item of `events`."""
    return {"version": 1, "kind": "events", "events": [event_as_json(event) for event in found]}


def event_as_json(event: EventRecord) -> dict[str, object]:
    """Return one event as an item of data/events.schema.json."""
    project, name = split_name(event.cluster)
    return {
        "seq": event.seq,
        "at": format_utc(event.at),
        "cluster": name,
        "project": project if event.cluster else None,
        "actor": event.actor,
        "kind": event.kind,
        "what": event.what,
        "subject": event.subject or None,
        "cause": event.cause or None,
        "before": _columns_json(event.before),
        "after": _columns_json(event.after),
        "hash": event.hash,
    }


def _columns_json(text: str | None) -> dict[str, object] | None:
    """Return the changed columns; in tasks, variables that are likely secrets are masked."""
    if text is None:
        return None
    columns: dict[str, Any] = json.loads(text)
    if "task" in columns:
        columns["task"] = mask_likely_secrets(columns["task"])
    if "tasks" in columns:  # of a pipeline: a list as JSON
        columns["tasks"] = json.dumps([mask_likely_secrets(one) for one in json.loads(columns["tasks"])])
    return columns
