"""`orch cost`: what machines cost by our records and by bills, by owner, project, cluster, run, day and more."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.cli.parameters.scope import make_scope, scope_options
from orchestrator.client.base import Document
from orchestrator.client.choose import open_documents
from orchestrator.documents.ledger import DIMENSIONS, SOURCE_WORDS, describe_sources
from orchestrator.documents.queries import SpendingQuery
from orchestrator.formatting import format_microdollars, parse_utc
from orchestrator.messages import join_words
from orchestrator.plan.charges import BILL

_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


class Since(click.ParamType["int | None"]):
    """A time before now, such as `12h`, `30d` and `4w`, in seconds; None for `all`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        text = str(value).strip().lower()
        matched = re.fullmatch(r"([0-9]{1,5})([hdw])", text)
        if matched is None and text != "all":
            self.fail(f"cannot read '{value}' as a time; write 12h, 30d, 4w or all", param, ctx)
        return None if matched is None else int(matched[1]) * _SECONDS[matched[2]]


class Dimensions(click.ParamType["tuple[str, ...]"]):
    """A comma list of dimensions; summarize_spending refuses unknown ones."""

    name = "by"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return tuple(word.strip() for word in str(value).split(",") if word.strip())


@click.group(
    "cost",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand(
                    "import",
                    "orchestrator.cli.commands.watch.cost_import:import_bills",
                    "Take what bills say instead of the estimates.",
                ),
            ),
        )
    ],
    examples=[
        ("orch cost", "the last 30 days of this project, by cluster"),
        ("orch cost --by owner,project --all --since all", "everything on record, by person and project"),
        ("orch cost --by part,source", "machines, disks, addresses; estimated or billed"),
        ("orch cost --by day,run --since 7d -o json", ""),
        ("orch cost import november.csv.gz", "a bill of AWS or Google Cloud replaces the estimates"),
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
@click.pass_context
def cost(
    ctx: click.Context, by: tuple[str, ...], since: int | None, all_projects: bool, owner: str, output: str
) -> None:
    """Show what machines cost by the records of orch: dollars, and hours of machines.

    Machines, their disks and addresses are estimated from prices on record, and replaced by what bills say once they
    are imported: BY says which of them a row is. Egress and buckets are in it only where a bill has them. Hours whose
    price is not known have their column. Days are those of UTC.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_documents() as documents:
        query = SpendingQuery(scope=make_scope(owner, all_projects=all_projects), by=by, seconds=since)
        table = documents.read_spending(query)
        if output == "json":
            write_stdout(json.dumps(table, indent=2))
        elif table["rows"]:
            write_stdout(*draw_table(_list_rows(table), sys.stdout))
            write_stderr(*_notes(table["total"]))
        else:
            write_stderr(f"no machine was billed since {_day(table)}; all on record: orch cost --all --since all")


def _list_rows(table: Document) -> list[tuple[str, ...]]:
    """Return the table: its parts have columns where there are several, and what bills say where there are bills."""
    total, by, rows = table["total"], table["by"], table["rows"]
    shown = _Columns(
        parts=tuple(total["parts"]) if len(total["parts"]) > 1 else (),
        basis="source" not in by,
        billed=total["billed_microdollars"] != 0,
        unknown=total["unknown_hours"] > 0,
    )
    if by[:1] == ["day"]:  # days are read in their order
        rows = sorted(rows, key=lambda row: str(row["key"]["day"]), reverse=True)
    last = (*("TOTAL" if at == 0 else "" for at in range(len(by))), *shown.list_sums(total))
    return [shown.list_names(by), *(_row(row, shown) for row in rows), *([last] if by else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Which columns a table has behind its keys and the cost."""

    parts: tuple[str, ...]
    basis: bool
    billed: bool
    unknown: bool

    def list_names(self, by: Sequence[str]) -> tuple[str, ...]:
        more = [*map(str.upper, self.parts), *(["BILLED"] if self.billed else [])]
        names = (name.upper() for name in by)
        basis = ["BY"] if self.basis else []
        return (*names, "COST", *basis, *more, "HOURS", *(["PRICE NOT KNOWN"] if self.unknown else []))

    def list_sums(self, row: Document) -> tuple[str, ...]:
        """Format the sums; a cost that is not known is never shown as 0."""
        cost, billed, unknown = row["microdollars"], row["billed_microdollars"], row["unknown_hours"]
        free = "not known" if unknown or row["unpriced"] else "free"
        return (
            format_microdollars(cost) if cost else free,
            *([describe_sources(row["sources"])] if self.basis else []),
            *(_part(row, part) for part in self.parts),
            *([f"{100 * billed / cost:.0f} %" if cost > 0 else ""] if self.billed else []),
            _hours(row["hours"]),
            *([_hours(unknown) if unknown else ""] if self.unknown else []),
        )


def _part(row: Document, part: str) -> str:
    if part in row["parts"]:
        return format_microdollars(row["parts"][part])
    return "not known" if part in row["unpriced"] else ""


def _row(row: Document, shown: _Columns) -> tuple[str, ...]:
    named = (value or ("no run" if name == "run" else "-") for name, value in row["key"].items())
    return (*named, *shown.list_sums(row))


def _notes(total: Document) -> list[str]:
    """Return what is not in the sums, and where they are from."""
    words = [SOURCE_WORDS[one] for one in total["sources"] if one != BILL]
    source = f"by {join_words(words, 'and')}, recorded when the machines were requested" if words else "by bills"
    source = f"what is not billed is estimated, {source}" if total["billed_microdollars"] and words else source
    missing = f"not in it, as the price is not known: {join_words(total['unpriced'], 'and')} of some slices"
    return [source, *([missing] if total["unpriced"] else [])]


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 0.1 else f"{hours * 60:.1f} min"


def _day(table: Document) -> str:
    return str(table["since"])[:10] if parse_utc(table["since"]) else "the first record"
