"""Events of the audit as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.documents.queries import ChosenScope, EventsQuery
from orchestrator.formatting import format_utc
from orchestrator.project import qualify_name, split_name
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord
from orchestrator.task.likely_secrets import hide_likely_secret, mask_likely_secrets
from orchestrator.values import MASK

_ENTRIES = frozenset({"token", "session", "invitation", "sign_in", "trust_rule"})


def read_events(store: Reader, now: float, query: EventsQuery) -> dict[str, Any]:
    """Return the document of data/events.schema.json for the newest events that a query chooses.

    Raises:
        NotFoundError: There is no cluster of this name; the nearest names are suggested.
    """
    qualified = qualify_name(store.project, query.cluster) if query.cluster else None
    scope = query.scope.resolve(store)
    recent = store.events(qualified, after=query.after, before=query.before, limit=query.limit)
    found = [event for event in recent if _is_shown(event, scope)]
    if query.cluster and not found and not query.after and query.before is None:
        find_cluster(store, query.cluster)
    until = recent[-1].seq if recent else query.after
    return {**events_as_json(found, now), "from": recent[0].seq if recent else None, "until": until}


def _is_shown(event: EventRecord, scope: ChosenScope) -> bool:
    """Return whether an event is of the project and the member. Those of no cluster are of all projects."""
    return scope.includes(
        split_name(event.cluster)[0] if event.cluster else scope.project, event.actor.partition("@")[0]
    )


def events_as_json(found: Sequence[EventRecord], now: float) -> dict[str, Any]:
    """Return events as in data/events.schema.json; with -o jsonl each line is one item of `events`."""
    return {"version": 1, "kind": "events", "now": format_utc(now), "events": [event_as_json(event) for event in found]}


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
        "before": None if is_about_entry(event) else _columns_json(event.before),
        "after": None if is_about_entry(event) else _columns_json(event.after),
        "hash": event.hash,
    }


def is_about_entry(event: EventRecord) -> bool:
    """Whether an event is about who may enter: its columns have digests and ids of people, and `what` says enough."""
    return event.subject.partition(" ")[0] in _ENTRIES


def _columns_json(text: str | None) -> dict[str, object] | None:
    return None if text is None else mask_columns(json.loads(text))


def mask_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Return changed columns; in tasks, variables that are likely secrets are masked. Masked ones stay as they are."""
    masked = dict(columns)
    if "task" in columns:
        masked["task"] = _mask_task(columns["task"])
    if "tasks" in columns:  # of a pipeline: a list as JSON
        masked["tasks"] = json.dumps([_mask_task(one) for one in json.loads(columns["tasks"])])
    if "arguments" in columns:  # of an order
        masked["arguments"] = _mask_arguments(columns["arguments"])
    return masked


def _mask_task(task: str) -> str:
    try:
        return mask_likely_secrets(task)
    except (ValueError, AttributeError):  # no task of ours: one row must not hide all events, nor show a secret
        return MASK


def _mask_arguments(text: str) -> str:
    try:
        arguments: dict[str, Any] = json.loads(text)
        masked = dict(arguments)
        if "task" in arguments:
            masked["task"] = _mask_task(arguments["task"])
        if "env" in arguments:  # of an exec
            given: dict[str, str] = arguments["env"]
            masked["env"] = {name: hide_likely_secret(name, value).preview() for name, value in given.items()}
            masked["command"] = hide_likely_secret("", arguments["command"]).preview()
        return json.dumps(masked) if masked != arguments else text
    except (ValueError, TypeError, LookupError, AttributeError):
        return MASK
