"""The requests for machines that the events record, of everyone who uses the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.formatting import format_utc
from orchestrator.offers.capacity import (
    ANYWHERE,
    WINDOW,
    CapacityFigures,
    CapacityKey,
    CapacityRequest,
    make_key,
    summarize_capacity,
)
from orchestrator.plan.causes import SLICE_LOSSES, EndCause
from orchestrator.plan.refusals import Refusal
from orchestrator.plan.spending_budget import name_market
from orchestrator.slices import Owned
from orchestrator.store.failures import StoreError
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord, candidate_from_json

_HOUR = 3600.0
_CAPACITY = "capacity"  # the code of a refusal that says that there are no machines
_SHOWN_WAITS = (600, 3600, 6 * 3600)


@dataclass(slots=True)
class _Request:
    """A request whose events are still read. Times are epoch seconds."""

    key: CapacityKey
    at: float
    accepted: bool = False
    ran: float | None = None
    ended: float | None = None
    cause: str = ""
    why: str = ""


def read_capacity(store: Reader, now: float) -> dict[str, Any]:
    """Return the document of data/capacity.schema.json."""
    return capacity_as_json(find_capacity(store, now), now)


def find_capacity(store: Reader, now: float) -> dict[CapacityKey, CapacityFigures]:
    """Return what the requests of the last weeks say of capacity.

    Args:
        store: Open.
        now: Epoch seconds.
    """
    return summarize_capacity(list_requests(store.events_of_kinds(("intent", "job"), now - WINDOW), now), now)


def list_requests(events: Iterable[EventRecord], now: float) -> Iterator[CapacityRequest]:
    """Yield the requests that events record, oldest first. Own machines are none.

    Args:
        events: Of the kinds "intent" and "job", oldest first.
        now: The end of what lasts still, in epoch seconds.
    """
    found: dict[str, _Request] = {}
    newest: dict[str, _Request] = {}  # of each cluster
    for event in events:
        kind, _, name = event.subject.partition(" ")
        after = json.loads(event.after or "{}")
        if kind == "job":
            one = newest.get(name.partition("/")[0])
            if after.get("started") is True and one is not None and one.ran is None and one.accepted:
                one.ran = event.at if one.ended is None else None
        elif event.before is None and "candidate" in after:
            if (made := _begin(after, event.at)) is not None:
                found[name] = newest[name.partition("/")[0]] = made
        elif name in found:
            _advance(found[name], after, event.at)
    for one in found.values():
        yield _conclude(one, now)


def _begin(after: dict[str, str], at: float) -> _Request | None:
    try:
        candidate = candidate_from_json(after["candidate"])
    except StoreError:  # of a newer orch
        return None
    if isinstance(candidate.market, Owned) or candidate.price_per_hour == 0:
        return None
    return _Request(key=make_key(candidate, name_market(candidate.market)), at=at)


def _advance(one: _Request, after: dict[str, str], at: float) -> None:
    state = after.get("state", "")
    one.accepted |= state == "accepted"
    one.cause, one.why = after.get("cause") or one.cause, after.get("why") or one.why
    if state in ("refused", "ending", "gone") and one.ended is None:
        one.ended = at


def _conclude(one: _Request, now: float) -> CapacityRequest:
    until = now if one.ended is None else one.ended
    if one.ran is not None:
        lost = one.cause in {cause.value for cause in SLICE_LOSSES}
        hours = max(0.0, until - one.ran) / _HOUR
        return CapacityRequest(key=one.key, at=one.at, wait=one.ran - one.at, got=True, hours=hours, lost=lost)
    refused = one.cause == EndCause.REFUSED.value and Refusal.parse(one.why).code == _CAPACITY
    return CapacityRequest(key=one.key, at=one.at, wait=max(0.0, until - one.at), got=False if refused else None)


def capacity_as_json(found: Mapping[CapacityKey, CapacityFigures], now: float) -> dict[str, Any]:
    """Return the history: the places of each machine and market together, those with the most requests first."""
    ordered = sorted(
        found.items(), key=lambda item: (item[0].accelerator, item[0].market, -item[1].requests, item[0].place)
    )
    return {
        "version": 1,
        "kind": "capacity",
        "now": format_utc(now),
        "rows": [_row_as_json(key, one) for key, one in ordered if key.place != ANYWHERE],
        "anywhere": [_row_as_json(key, one) for key, one in ordered if key.place == ANYWHERE],
    }


def _row_as_json(key: CapacityKey, one: CapacityFigures) -> dict[str, Any]:
    return {
        "provider": key.provider,
        "place": key.place,
        "accelerator": key.accelerator,
        "hosts": key.hosts,
        "market": key.market,
        "requests": one.requests,
        "got": one.got,
        "refused": one.refused,
        "lost": one.lost,
        "median_wait": one.median_wait,
        "chance_within": {str(seconds): one.chance_within(seconds) for seconds in _SHOWN_WAITS},
        "losses_per_hour": one.losses_per_hour,
        "waits": [list(wait) for wait in one.waits],
    }


def capacity_from_json(document: Mapping[str, Any]) -> dict[CapacityKey, CapacityFigures]:
    """Return the figures of a document."""
    return {
        CapacityKey(
            provider=row["provider"], place=row["place"], accelerator=row["accelerator"], hosts=row["hosts"],
            market=row["market"],
        ): CapacityFigures(
            requests=row["requests"], got=row["got"], refused=row["refused"], median_wait=row["median_wait"],
            losses_per_hour=row["losses_per_hour"], lost=row["lost"],
            waits=tuple((weight, wait, got) for weight, wait, got in row["waits"]),
        )
        for row in (*document["rows"], *document["anywhere"])
    }  # fmt: skip
