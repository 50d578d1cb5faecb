"""What machines have cost, as a document and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from orchestrator.documents.budgets import summarize_budgets
from orchestrator.documents.kept_spending import KEPT
from orchestrator.documents.ledger import (
    DIMENSIONS,
    SpendingRow,
    SpendingTable,
    refuse_unknown_dimensions,
    spending_as_json,
)
from orchestrator.errors import UserError
from orchestrator.formatting import parse_duration
from orchestrator.service.long_sums import LONG_HISTORY, Question
from orchestrator.service.route import Answer, Call
from orchestrator.store.read import Reader

_MOST_ROWS = 200  # of a page; the document has all
_EVERYTHING = "all"
TIMES = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"), (_EVERYTHING, "all"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """One row of the page.

    Attributes:
        cells: Text and address for each dimension; "" for one without a page.
        share: Of the most expensive row, from 0 to 1.
    """

    cells: tuple[tuple[str, str], ...]
    row: SpendingRow
    share: float


def list_spending(call: Call) -> Answer:
    """Answer with the sums."""
    with call.open_reader() as store:
        by, seconds = _list_dimensions(call), _find_length(call.query["since"])
        if KEPT.issuperset(by) or store.head().seq < LONG_HISTORY:
            return Answer(document=spending_as_json(_read_table(call, store)))
        refuse_unknown_dimensions(by)
        scope = call.read_scope(store).resolve(store)
    project = call.only_project or scope.project
    question = Question(seconds=seconds, by=by, project=project, owner=scope.owner)
    return Answer(text=call.site.long_sums.sum_up(call.site.location, question, call.site.now()))


def read_page(call: Call) -> dict[str, Any]:
    """Return what the page of costs shows: the sums with bars, and the budgets."""
    with call.open_reader() as store:
        table = _read_table(call, store)
        budgets = summarize_budgets(store, call.site.now())
        pages = {record.qualified_name: record.name for record in store.clusters() if record.project == store.project}
    highest = max((row.dollars for row in table.rows), default=0.0)
    rows = [
        ShownRow(
            cells=tuple(_describe_key(name, key, pages) for name, key in zip(table.by, row.key, strict=True)),
            row=row,
            share=max(row.dollars, 0.0) / highest if highest > 0 else 0.0,
        )
        for row in _order(table)
    ]
    return {
        "budgets": budgets, "table": table, "rows": rows[:_MOST_ROWS], "left_out": max(len(rows) - _MOST_ROWS, 0),
        "since": call.query["since"], "times": TIMES, "dimensions": DIMENSIONS,
        "address": partial(_address, call),
    }  # fmt: skip


def _read_table(call: Call, store: Reader) -> SpendingTable:
    now, scope = call.site.now(), call.read_scope(store).resolve(store)
    seconds = _find_length(call.query["since"])
    with call.site.open_reader() as everything:
        return call.site.spending.summarize(
            everything,
            now,
            since=0.0 if seconds is None else max(now - seconds, 0.0),
            by=_list_dimensions(call),
            project=call.only_project or scope.project,
            owner=scope.owner,
        )


def _list_dimensions(call: Call) -> tuple[str, ...]:
    return tuple(one for one in call.query["by"].split(",") if one)


def _find_length(since: str) -> float | None:
    """Return how many seconds a table covers; None for everything on record."""
    if since == _EVERYTHING:
        return None
    try:
        return parse_duration(since)
    except (ValueError, OverflowError):
        raise UserError(f"`since={since[:40]}` is not taken", "it is a duration", "since=30d, or since=all") from None


def _order(table: SpendingTable) -> Sequence[SpendingRow]:
    """Return the rows of a page: days in their order, the newest first; everything else by its cost."""
    return sorted(table.rows, key=lambda row: row.key, reverse=True) if table.by[:1] == ("day",) else table.rows


def _describe_key(dimension: str, key: str, pages: dict[str, str]) -> tuple[str, str]:
    """Return the words of a key and the address of its page."""
    match dimension:
        case "cluster":
            return key, f"/clusters/{quote(pages[key], safe='')}" if key in pages else ""
        case "run":
            return (key, f"/runs/{quote(key, safe='')}") if key else ("no run was at work", "")
        case "owner":
            return (key, f"/?{urlencode({'owner': key})}") if key else ("not on record", "")
        case "project":
            return key, f"/?{urlencode({'project': key})}"
        case _:
            return key, ""


def _address(call: Call, **other: str) -> str:
    """Return the address of this page with other parameters."""
    shown = {"by": "owner", "since": "30d"}
    query = {name: call.query[name] for name in ("by", "since", "project", "owner")} | other
    return f"/spend?{urlencode({name: value for name, value in query.items() if value != shown.get(name, '')})}"
