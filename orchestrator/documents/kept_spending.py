"""Sums of what machines cost by day, kept by a service between requests, so that history is not summed each time.

What a cluster cost does not change after it was deleted, until a bill or a block is recorded: then everything is summed
again. Clusters that exist are computed at each request.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.documents.ledger import (
    DAY_MS,
    Owned,
    SpendingTable,
    Sums,
    add_charges,
    format_day,
    list_owned_charges,
    make_table,
    refuse_unknown_dimensions,
    summarize_spending,
)
from orchestrator.plan.charges import HOUR_MS, Charge, to_milliseconds
from orchestrator.store.audited import parse_subject
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord

KEPT = frozenset({"owner", "project", "day", "part", "source"})  # tables of the others are as long as history
_CLOSED_SECONDS = 60.0  # after which a deleted cluster is summed for good: clocks of servers differ
_MOST_EVENTS = 5000  # between two requests; after more of them everything is summed again


@dataclass(slots=True)
class _Period:
    """The cost of deleted clusters on one day, or in one hour of it.

    Attributes:
        sums: By owner, project, part and source.
        charges: Of which they are the sums.
        hours: Those of a day by their numbers since 1970, made when a table begins within the day; {} before.
    """

    sums: dict[tuple[str, str, str, str], Sums] = field(default_factory=dict[tuple[str, str, str, str], Sums])
    charges: list[tuple[Owned, Charge]] = field(default_factory=list[tuple[Owned, Charge]])
    hours: dict[int, _Period] = field(default_factory=dict[int, "_Period"])

    def split(self, begin: int) -> dict[int, _Period]:
        """Return the hours of a day that begins at a moment, in milliseconds."""
        if not self.hours:
            for owned, charge in self.charges:
                _add_charge(self.hours, HOUR_MS, owned, charge, (begin, begin + DAY_MS))
        return self.hours


def _add_charge(
    periods: dict[int, _Period], length: int, owned: Owned, charge: Charge, within: tuple[int, int] | None = None
) -> None:
    first, last = (charge.begin, charge.end) if within is None else _intersect((charge.begin, charge.end), within)
    key = (owned.names["owner"], owned.names["project"], charge.part, charge.source)
    for number in range(first // length, -(-last // length)):
        period = periods.setdefault(number, _Period())
        period.sums.setdefault(key, Sums()).add(
            charge, *_intersect((first, last), (number * length, (number + 1) * length))
        )
        period.charges.append((owned, charge))
        period.hours = {}


def _intersect(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


@dataclass(slots=True)
class _Kept:
    """The cost of deleted clusters.

    Attributes:
        seq: The newest event that was regarded; `digest` is its hash.
        summed: The uids of the clusters that are in the sums.
        closing: Those of clusters that are, or may be, deleted, and are not in the sums yet.
        days: By the number of the day since 1970.
    """

    seq: int
    digest: str
    summed: set[str] = field(default_factory=set[str])
    closing: set[str] = field(default_factory=set[str])
    days: dict[int, _Period] = field(default_factory=dict[int, _Period])

    def list_since(self, moment: int) -> tuple[list[tuple[int, _Period]], list[tuple[Owned, Charge]]]:
        """Return the days and hours since a moment, each with its begin, and the charges of the rest of its hour."""
        whole = [(number * DAY_MS, day) for number, day in self.days.items() if number * DAY_MS >= moment]
        begin = moment // DAY_MS * DAY_MS
        if begin == moment or (day := self.days.get(begin // DAY_MS)) is None:
            return whole, []
        hours = {number * HOUR_MS: hour for number, hour in day.split(begin).items()}
        rest = hours.get(moment // HOUR_MS * HOUR_MS) if moment % HOUR_MS else None
        whole += [(at, hour) for at, hour in hours.items() if at >= moment]
        return whole, [] if rest is None else rest.charges


class KeptSpending:
    """The sums of one store. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def summarize(
        self, store: Reader, now: float, *, since: float, by: Sequence[str], project: str = "", owner: str = ""
    ) -> SpendingTable:
        """Return what `ledger.summarize_spending` returns. The arguments are its own; `store` sees every project."""
        refuse_unknown_dimensions(by)
        if not KEPT.issuperset(by):
            return summarize_spending(store, now, since=since, by=by, project=project, owner=owner)
        sums: dict[tuple[str, ...], Sums] = {}
        first, last = to_milliseconds(since), to_milliseconds(now)
        with self._lock:
            store.hold_snapshot()
            kept = self._update(store, now)
            existing = {record.uid for record in store.clusters()} | kept.closing
            found = list(list_owned_charges(store, now, with_runs=False, uids=existing))
            whole, rest = kept.list_since(first)
            for at, period in whole:
                _add_period(sums, at, period, by, (project, owner))
            found += [replace(owned, charges=(charge,)) for owned, charge in rest]
        end_of_hour = (first // HOUR_MS + 1) * HOUR_MS
        for owned in found:
            if _is_chosen((project, owner), owned.names["project"], owned.names["owner"]):
                until = min(last, end_of_hour) if owned.uid in kept.summed else last
                add_charges(sums, owned, by, first, until)
        return make_table(sums, by, since, now)

    def _update(self, store: Reader, now: float) -> _Kept:
        """Bring the sums up to the newest event."""
        head, kept = store.head(), self._kept
        changed = None if kept is None else _list_changed(store, kept)
        if kept is None or changed is None:
            kept, changed = _Kept(head.seq, head.hash), None
        kept.seq, kept.digest = head.seq, head.hash
        kept.closing |= set(changed or ())
        records = store.clusters_by_uid(None if changed is None else kept.closing)
        deleted = {uid: one.deleted for uid, one in records.items() if one.deleted is not None}
        old = {uid for uid, at in deleted.items() if at < now - _CLOSED_SECONDS}
        for owned in list_owned_charges(store, now, with_runs=False, uids=None if changed is None else old):
            if owned.uid in old:
                for charge in owned.charges:
                    _add_charge(kept.days, DAY_MS, owned, charge)
        kept.summed |= old
        kept.closing = deleted.keys() - old
        self._kept = kept
        return kept


def _list_changed(store: Reader, kept: _Kept) -> Collection[str] | None:
    """Return the uids of clusters that changed since; None where the sums do not hold any more."""
    if store.find_hash(kept.seq) != kept.digest:
        return None
    events = store.events_after(kept.seq, _MOST_EVENTS)
    changed = {uid for event in events if (uid := _find_cluster(event)) is not None}
    is_other = any(event.subject.startswith(("bill ", "block ")) for event in events)
    return None if is_other or len(events) == _MOST_EVENTS or changed & kept.summed else changed


def _find_cluster(event: EventRecord) -> str | None:
    """Return the uid of the cluster whose row, or that of one of its slices, an event changed."""
    if not event.subject.startswith(("cluster ", "intent ")):
        return None
    _, key = parse_subject(event.subject)
    return str(key.get("uid") or key.get("cluster_uid"))


def _add_period(
    sums: dict[tuple[str, ...], Sums], at: int, period: _Period, by: Iterable[str], chosen: tuple[str, str]
) -> None:
    day = format_day(at)
    for (owner, project, part, source), found in period.sums.items():
        if _is_chosen(chosen, project, owner):
            about = {"owner": owner, "project": project, "part": part, "source": source, "day": day}
            sums.setdefault(tuple(about[dimension] for dimension in by), Sums()).add_sums(found)


def _is_chosen(chosen: tuple[str, str], project: str, owner: str) -> bool:
    return chosen[0] in ("", project) and chosen[1] in ("", owner)
