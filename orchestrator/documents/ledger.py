"""Sum what machines cost by our records: by owner, project, cluster, run, day, slice, part or source.

Every moment of every charge is in exactly one row, in whole micro-dollars (plan/charges.py). Bills that were imported
replace the estimates. What has no known price is counted apart, never as 0. Egress and buckets are in it only where a
bill has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import gmtime, strftime
from typing import Any

from orchestrator.catalog.attached import find_attached_prices
from orchestrator.documents.queries import SpendingQuery
from orchestrator.errors import UserError
from orchestrator.formatting import format_utc
from orchestrator.plan.charges import (
    BILL,
    BLOCKS,
    HOUR_MS,
    LIST,
    MACHINES,
    PARTS,
    PREPAID,
    SOURCES,
    SPOT,
    BilledAmount,
    Charge,
    charge_once,
    find_block,
    is_free,
    list_charges,
    to_milliseconds,
)
from orchestrator.store.bill_records import BillRecord, BlockRecord
from orchestrator.store.job_spans import list_job_spans
from orchestrator.store.read import Reader

DIMENSIONS = ("owner", "project", "cluster", "run", "day", "slice", "part", "source")
SOURCE_WORDS = {LIST: "list prices", SPOT: "spot prices seen", PREPAID: "prepaid", BILL: "billed"}
NO_RUN = ""  # the key of machines while no launch or resume was open: commands, idle time, the end
DAY_MS = 24 * HOUR_MS  # days are those of UTC, as on the clouds' bills


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRow:
    """What one key cost.

    Attributes:
        key: One value for each dimension of the table; "" for an owner or a run that is not on record.
        parts: Micro-dollars of each part of charges.PARTS that there is, in its order, by the prices that are known.
        billed: Those micro-dollars that are from bills; the others are estimated.
        hours: Machine hours: the time that slices were billed, times their hosts.
        unknown_hours: Those of `hours` whose price is not known; they are in no sum.
        unpriced: The other parts of which something has no known price.
        intents: The label orch-intent of each slice, sorted, in a table by slice.
        sources: Where the sum is from, some of charges.SOURCES.
    """

    key: tuple[str, ...]
    parts: dict[str, int] = field(default_factory=dict[str, int])
    billed: int = 0
    hours: float = 0.0
    unknown_hours: float = 0.0
    unpriced: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def microdollars(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())

    @property
    def dollars(self) -> float:
        """The sum of all parts, in dollars."""
        return self.microdollars / 1e6

    @property
    def basis(self) -> str:
        """The words for the kind of cost."""
        return describe_sources(self.sources)


def describe_sources(sources: Iterable[str]) -> str:
    """Return which cost it is, in words: that of list prices, of spot prices that were seen, or what was billed."""
    return ", ".join(SOURCE_WORDS[one] for one in sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingTable:
    """Spending of a time.

    Attributes:
        by: The dimensions, some of DIMENSIONS.
        since: Epoch seconds; what was billed before is not counted.
        until: Epoch seconds.
        rows: The most expensive first.
    """

    by: tuple[str, ...]
    since: float
    until: float
    rows: tuple[SpendingRow, ...]

    @property
    def total(self) -> SpendingRow:
        """The sum of all rows, with an empty key."""
        sums = Sums()
        for row in self.rows:
            sums.add_row(row)
        return sums.freeze(())


@dataclass(slots=True)
class Sums:
    """A row to which charges are added. Hours are milliseconds."""

    parts: dict[str, int] = field(default_factory=dict[str, int])
    billed: int = 0
    hours: float = 0
    unknown_hours: float = 0
    unpriced: set[str] = field(default_factory=set[str])
    intents: set[str] = field(default_factory=set[str])
    sources: set[str] = field(default_factory=set[str])

    def add(self, charge: Charge, begin: int, end: int) -> None:
        """Add what a charge costs between two moments in milliseconds."""
        cost, length = charge.measure_cost(begin, end), (end - begin) * charge.hosts
        self.hours += length
        if charge.microdollars is None:
            self.unknown_hours += length
            self.unpriced |= {charge.part} - {MACHINES}
            return
        self.parts[charge.part] = self.parts.get(charge.part, 0) + cost
        self.billed += cost if charge.source == BILL else 0
        self.sources.add(charge.source)

    def add_sums(self, other: Sums) -> None:
        """Add the sums of another row."""
        for part, cost in other.parts.items():
            self.parts[part] = self.parts.get(part, 0) + cost
        self.billed += other.billed
        self.hours += other.hours
        self.unknown_hours += other.unknown_hours
        self.unpriced |= other.unpriced
        self.sources |= other.sources

    def add_row(self, row: SpendingRow) -> None:
        for part, cost in row.parts.items():
            self.parts[part] = self.parts.get(part, 0) + cost
        self.billed += row.billed
        self.hours += row.hours * HOUR_MS
        self.unknown_hours += row.unknown_hours * HOUR_MS
        self.unpriced |= set(row.unpriced)
        self.sources |= set(row.sources)

    def freeze(self, key: tuple[str, ...]) -> SpendingRow:
        return SpendingRow(
            key=key,
            parts={part: self.parts[part] for part in PARTS if part in self.parts},
            billed=self.billed,
            hours=self.hours / HOUR_MS,
            unknown_hours=self.unknown_hours / HOUR_MS,
            unpriced=tuple(part for part in PARTS if part in self.unpriced),
            intents=tuple(sorted(self.intents)),
            sources=tuple(one for one in SOURCES if one in self.sources),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Charges of one slice or block, and whose they are.

    Attributes:
        uid: Of the cluster; "" for a block.
        names: A value for the dimensions that do not change with time.
        intent: The label orch-intent of the slice; "" for a block.
        runs: Run ids with the time that each had the machines, in milliseconds, in order.
    """

    uid: str = ""
    names: dict[str, str]
    charges: tuple[Charge, ...]
    intent: str = ""
    runs: tuple[tuple[str, int, int], ...] = ()


def read_spending(store: Reader, now: float, query: SpendingQuery) -> dict[str, Any]:
    """Return the document of data/spending.schema.json for what a query sums. Raises as `summarize_spending`."""
    scope, since = query.scope.resolve(store), query.find_begin(now)
    table = summarize_spending(store, now, since=since, by=query.by, project=scope.project, owner=scope.owner)
    return spending_as_json(table)


def summarize_spending(
    store: Reader, now: float, *, since: float, by: Sequence[str], project: str = "", owner: str = ""
) -> SpendingTable:
    """Sum what machines cost.

    Args:
        store: Open.
        now: Epoch seconds; the end of what is still billed.
        since: Epoch seconds; 0 for everything on record.
        by: Of DIMENSIONS, in the order of the keys; none for one row.
        project: Only its clusters; "" for all.
        owner: Only clusters of this member; "" for all.

    Raises:
        UserError: A dimension is unknown, or named twice.
    """
    refuse_unknown_dimensions(by)
    sums: dict[tuple[str, ...], Sums] = {}
    first, last = to_milliseconds(since), to_milliseconds(now)
    for owned in list_owned_charges(store, now, with_runs="run" in by):
        if project not in ("", owned.names["project"]) or owner not in ("", owned.names["owner"]):
            continue
        add_charges(sums, owned, by, first, last)
    return make_table(sums, by, since, now)


def add_charges(sums: dict[tuple[str, ...], Sums], owned: Owned, by: Sequence[str], first: int, last: int) -> None:
    """Add what a slice or block costs between two moments, in milliseconds, to the rows of a table."""
    for charge in owned.charges:
        begin, end = max(charge.begin, first), min(charge.end, last)
        for run, one, other in _cut(begin, end, owned.runs, days="day" in by):
            about = {"run": run, "part": charge.part, "source": charge.source, "day": format_day(one), **owned.names}
            row = sums.setdefault(tuple(about[dimension] for dimension in by), Sums())
            row.add(charge, one, other)
            if "slice" in by:
                row.intents |= {owned.intent} - {""}


def make_table(sums: Mapping[tuple[str, ...], Sums], by: Sequence[str], since: float, now: float) -> SpendingTable:
    """Return the table of rows, the most expensive first."""
    found = [one.freeze(key) for key, one in sums.items()]
    rows = sorted(found, key=lambda row: (-row.microdollars, -row.unknown_hours, -row.hours, row.key))
    return SpendingTable(by=tuple(by), since=since, until=now, rows=tuple(rows))


def list_owned_charges(
    store: Reader, now: float, *, with_runs: bool, with_bills: bool = True, uids: Collection[str] | None = None
) -> Iterator[Owned]:
    """Yield what every slice and block on record costs until now.

    Args:
        store: Open.
        now: Epoch seconds.
        with_runs: Whether the times of runs are needed.
        with_bills: Whether bills replace the estimates.
        uids: Of the clusters whose slices are meant; None for all.
    """
    clusters, jobs = store.clusters_by_uid(uids), store.jobs_by_uid(uids) if with_runs else {}
    stopped, blocks = store.stopped_times(now, None if uids is None else clusters.values()), store.blocks()
    billed = group_bills(store.bills(uids)) if with_bills else {}
    bought = {one.block_id for one in blocks}
    for uid, intents in store.intents_by_uid(uids).items():
        cluster = clusters.get(uid)
        if cluster is None:
            continue
        spans = list_job_spans(jobs.get(uid, ()), now)
        runs = tuple((job.run_id, to_milliseconds(begin), to_milliseconds(end)) for job, begin, end in spans)
        names = {"owner": cluster.owner, "project": cluster.project, "cluster": cluster.qualified_name}
        for intent in intents:
            charges = list_charges(
                intent,
                now,
                stopped=stopped.get(uid, ()),
                attached=None if is_free(intent) else find_attached_prices(intent.candidate),
                billed=billed.get(intent.token, ()),
                is_prepaid=find_block(intent) in bought,
            )
            yield Owned(uid=uid, names={**names, "slice": intent.name}, charges=charges, intent=intent.token, runs=runs)
    yield from map(_charge_block, blocks)


def group_bills(bills: Iterable[BillRecord]) -> dict[str, list[BilledAmount]]:
    """Return what bills say by the token of the slice."""
    found: dict[str, list[BilledAmount]] = {}
    for one in bills:
        found.setdefault(one.token, []).append(one.amount)
    return found


def _charge_block(block: BlockRecord) -> Owned:
    """Return the price of a block: paid whole when it was bought, whether it was used or not."""
    name = f"block {block.block_id}"
    names = {"owner": block.member, "project": block.project, "cluster": name, "slice": name}
    return Owned(
        names=names, charges=(charge_once(BLOCKS, PREPAID, to_milliseconds(block.bought), block.microdollars),)
    )


def refuse_unknown_dimensions(by: Sequence[str]) -> None:
    """Raise UserError for a dimension that is unknown, or named twice."""
    wrong = [one for one in by if one not in DIMENSIONS]
    if wrong:
        raise UserError(f"cannot sum by '{wrong[0]}'", f"known: {', '.join(DIMENSIONS)}", "orch cost --by owner,day")
    twice = [one for number, one in enumerate(by) if one in by[:number]]
    if twice:
        raise UserError(f"'{twice[0]}' is named twice", "each is a column of the table", "orch cost --by owner,day")


def format_day(moment: int) -> str:
    """Return the day of a moment in milliseconds, such as 2026-11-30."""
    return strftime("%Y-%m-%d", gmtime(moment // 1000))


def _cut(begin: int, end: int, runs: Sequence[tuple[str, int, int]], *, days: bool) -> Iterator[tuple[str, int, int]]:
    """Yield a time with its run, cut where the run changes, and at midnight where days are asked for."""
    for run, first, last in _cut_by_run(begin, end, runs):
        at = first
        while days and (midnight := (at // DAY_MS + 1) * DAY_MS) < last:
            yield run, at, midnight
            at = midnight
        yield run, at, last


def _cut_by_run(begin: int, end: int, runs: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    for run, opened, ended in runs:
        first, last = max(opened, begin), min(ended, end)
        if last <= first:
            continue
        if first > begin:
            yield NO_RUN, begin, first
        yield run, first, last
        begin = last
    if end > begin:
        yield NO_RUN, begin, end


def spending_as_json(table: SpendingTable) -> dict[str, Any]:
    """Return a table as in data/spending.schema.json."""
    return {
        "version": 2,
        "kind": "spending",
        "now": format_utc(table.until),
        "by": list(table.by),
        "since": format_utc(table.since),
        "until": format_utc(table.until),
        "rows": [
            {
                "key": {name: value or None for name, value in zip(table.by, row.key, strict=True)},
                **_sums_json(row),
                **({"intents": list(row.intents)} if "slice" in table.by else {}),
            }
            for row in table.rows
        ],
        "total": _sums_json(table.total),
    }


def _sums_json(row: SpendingRow) -> dict[str, object]:
    return {
        "dollars": round(row.dollars, 4),
        "microdollars": row.microdollars,
        "parts": dict(row.parts),
        "billed_microdollars": row.billed,
        "hours": round(row.hours, 4),
        "unknown_hours": round(row.unknown_hours, 4),
        "unpriced": list(row.unpriced),
        "sources": list(row.sources),
    }
