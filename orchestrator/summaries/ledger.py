"""Sum what machines cost by our records: by owner, project, cluster, run or day.

Every billed hour is in exactly one row. The prices are those that were recorded when the machines were requested: list
prices of machines, without disks, addresses, egress and buckets. Hours without a price are counted apart, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import gmtime, strftime

from orchestrator.errors import UserError
from orchestrator.formatting import format_utc
from orchestrator.plan.observed import Intent
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.summaries.spending import list_job_spans

DIMENSIONS = ("owner", "project", "cluster", "run", "day")
NO_RUN = ""  # the key of machines while no launch or resume was open: commands, idle time, the end
_HOUR = 3600.0
_DAY = 86400.0  # days are those of UTC, as on the clouds' bills


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRow:
    """What one key cost.

    Attributes:
        key: One value for each dimension of the table; "" for an owner or a run that is not on record.
        dollars: By the prices that are known.
        hours: Machine hours: the time that slices were billed, times their hosts.
        unknown_hours: Those of `hours` whose price is not known; they are not in `dollars`.
    """

    key: tuple[str, ...]
    dollars: float
    hours: float
    unknown_hours: float


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
        return SpendingRow(
            key=(),
            dollars=sum(row.dollars for row in self.rows),
            hours=sum(row.hours for row in self.rows),
            unknown_hours=sum(row.unknown_hours for row in self.rows),
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Time of one slice that has one key in every dimension."""

    run_id: str
    begin: float
    end: float


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
    _refuse_unknown(by)
    clusters, jobs = store.clusters_by_uid(), store.jobs_by_uid() if "run" in by else {}
    sums: dict[tuple[str, ...], list[float]] = {}
    for uid, intents in store.intents_by_uid().items():
        cluster = clusters.get(uid)
        if cluster is None or project not in ("", cluster.project) or owner not in ("", cluster.owner):
            continue
        spans = list_job_spans(jobs.get(uid, ()), now)
        for intent in intents:
            for piece in _split(intent, spans, since, now, days="day" in by):
                key = tuple(_name(dimension, cluster, piece) for dimension in by)
                _add(sums.setdefault(key, [0.0, 0.0, 0.0]), intent, piece)
    found = [SpendingRow(key=key, dollars=one[0], hours=one[1], unknown_hours=one[2]) for key, one in sums.items()]
    rows = sorted(found, key=lambda row: (-row.dollars, -row.unknown_hours, -row.hours, row.key))
    return SpendingTable(by=tuple(by), since=since, until=now, rows=tuple(rows))


def _refuse_unknown(by: Sequence[str]) -> None:
    wrong = [one for one in by if one not in DIMENSIONS]
    if wrong:
        raise UserError(f"cannot sum by '{wrong[0]}'", f"known: {', '.join(DIMENSIONS)}", "orch cost --by owner,day")
    twice = [one for number, one in enumerate(by) if one in by[:number]]
    if twice:
        raise UserError(f"'{twice[0]}' is named twice", "each is a column of the table", "orch cost --by owner,day")


def _name(dimension: str, cluster: ClusterRecord, piece: _Piece) -> str:
    match dimension:
        case "owner":
            return cluster.owner
        case "project":
            return cluster.project
        case "cluster":
            return cluster.qualified_name
        case "run":
            return piece.run_id
        case _:
            return strftime("%Y-%m-%d", gmtime(piece.begin))


def _add(sums: list[float], intent: Intent, piece: _Piece) -> None:
    """Add a piece to dollars, hours and hours without a price."""
    hours, price = (piece.end - piece.begin) / _HOUR, intent.candidate.price_per_hour
    sums[0] += hours * (price or 0.0)
    sums[1] += hours * intent.candidate.hosts
    sums[2] += hours * intent.candidate.hosts if price is None else 0.0


def _split(
    intent: Intent, spans: Sequence[tuple[JobRecord, float, float]], since: float, now: float, *, days: bool
) -> Iterator[_Piece]:
    """Yield the billed time of a slice, cut where the run changes, and at midnight where days are asked for."""
    if intent.billed_from is None:
        return
    begin, until = max(intent.billed_from, since), min(intent.billed_until or now, now)
    for piece in _cut_by_run(begin, until, spans):
        yield from _cut_by_day(piece) if days else [piece]


def _cut_by_run(begin: float, until: float, spans: Sequence[tuple[JobRecord, float, float]]) -> Iterator[_Piece]:
    for job, opened, ended in spans:
        first, last = max(opened, begin), min(ended, until)
        if last <= first:
            continue
        if first > begin:
            yield _Piece(NO_RUN, begin, first)
        yield _Piece(job.run_id, first, last)
        begin = last
    if until > begin:
        yield _Piece(NO_RUN, begin, until)


def _cut_by_day(piece: _Piece) -> Iterator[_Piece]:
    begin = piece.begin
    while begin < piece.end:
        midnight = (begin // _DAY + 1) * _DAY
        yield _Piece(piece.run_id, begin, min(midnight, piece.end))
        begin = midnight


def spending_as_json(table: SpendingTable) -> dict[str, object]:
    """Return a table as in data/spending.schema.json."""
    return {
        "version": 1,
        "kind": "spending",
        "by": list(table.by),
        "since": format_utc(table.since),
        "until": format_utc(table.until),
        "rows": [
            {"key": {name: value or None for name, value in zip(table.by, row.key, strict=True)}, **_sums_json(row)}
            for row in table.rows
        ],
        "total": _sums_json(table.total),
    }


def _sums_json(row: SpendingRow) -> dict[str, float]:
    return {
        "dollars": round(row.dollars, 4),
        "hours": round(row.hours, 4),
        "unknown_hours": round(row.unknown_hours, 4),
    }
