"""`orch cost`: what machines cost by our records, by owner, project, cluster, run or day."""

from __future__ import annotations

import json
import re
import sys
import time

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.formatting import format_utc
from orchestrator.summaries.ledger import (
    DIMENSIONS,
    SpendingRow,
    SpendingTable,
    spending_as_json,
    summarize_spending,
)

_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class Since(click.ParamType[float]):
    """A time before now, such as `12h`, `30d` and `4w`, in seconds; infinity for `all`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        matched = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
        if matched is None and text != "all":
            self.fail(f"cannot read '{value}' as a time; write 12h, 30d, 4w or all", param, ctx)
        return float("inf") if matched is None else int(matched[1]) * _SECONDS[matched[2]]


class Dimensions(click.ParamType["tuple[str, ...]"]):
    """A comma list of dimensions; summarize_spending refuses unknown ones."""

    name = "by"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return tuple(word.strip() for word in str(value).split(",") if word.strip())


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch cost", "the last 30 days of this project, by cluster"),
        ("orch cost --by owner,project --all --since all", "everything on record, by person and project"),
        ("orch cost --by day,run --since 7d -o json", ""),
    ],
)
@click.option(
    "--by",
    type=Dimensions(),
    default="cluster",
    show_default=True,
    metavar="LIST",
    help=f"Some of {','.join(DIMENSIONS)}.",
)
@click.option(
    "--since", type=Since(), default="30d", show_default=True, metavar="TIME", help="How far back: 12h, 30d, 4w, all."
)
@scope_options("--all")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def cost(by: tuple[str, ...], since: float, all_projects: bool, owner: str, output: str) -> None:
    """Show what machines cost by the records of orch: dollars, and hours of machines.

    These are list prices of machines, without disks, addresses, egress and buckets. Hours whose price is not known
    have their column. Days are those of UTC.
    """
    now = time.time()
    with open_store_reader() as store:
        scope = make_scope(store, owner, all_projects=all_projects)
        table = summarize_spending(
            store, now, since=max(now - since, 0.0), by=by, project=scope.project, owner=scope.owner
        )
    if output == "json":
        write_stdout(json.dumps(spending_as_json(table), indent=2))
    elif table.rows:
        write_stdout(*draw_table(_list_rows(table), sys.stdout))
    else:
        write_stderr(f"no machine was billed since {_day(table.since)}; all on record: orch cost --all --since all")


def _list_rows(table: SpendingTable) -> list[tuple[str, ...]]:
    unknown = table.total.unknown_hours > 0
    head = (*(name.upper() for name in table.by), "COST", "HOURS", *(["PRICE NOT KNOWN"] if unknown else []))
    rows = table.rows
    if table.by[:1] == ("day",):  # days are read in their order
        rows = tuple(sorted(rows, key=lambda row: row.key[0], reverse=True))
    total = (*("TOTAL" if at == 0 else "" for at in range(len(table.by))), *_sums(table.total, unknown=unknown))
    return [head, *(_row(table, row, unknown=unknown) for row in rows), *([total] if table.by else [])]


def _row(table: SpendingTable, row: SpendingRow, *, unknown: bool) -> tuple[str, ...]:
    named = (value or ("no run" if name == "run" else "-") for name, value in zip(table.by, row.key, strict=True))
    return (*named, *_sums(row, unknown=unknown))


def _sums(row: SpendingRow, *, unknown: bool) -> tuple[str, ...]:
    """Format the sums; a cost that is not known is never shown as 0."""
    free = "not known" if row.unknown_hours else "free"
    dollars = f"${row.dollars:,.2f}" if row.dollars else free
    return (dollars, _hours(row.hours), *([_hours(row.unknown_hours) if row.unknown_hours else ""] if unknown else []))


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 0.1 else f"{hours * 60:.1f} min"


def _day(moment: float) -> str:
    return format_utc(moment)[:10] if moment else "the first record"
