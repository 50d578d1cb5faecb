"""`orch cost import`: what bills say replaces what was estimated."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.execution.served_commands import ON_SERVICE, refuse_option
from orchestrator.client.local import open_own_reader
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount, format_microdollars
from orchestrator.messages import count_noun, escape_controls, join_some

if TYPE_CHECKING:
    from orchestrator.documents.bill_comparison import ComparedPart
    from orchestrator.engine.operations.import_bills import ReadBills
    from orchestrator.store.bill_records import BillChange

_MOST_UNKNOWN = 100


@click.command(
    "import",
    cls=OrchCommand,
    examples=[
        ("orch cost import s3://bills/orch/data/BILLING_PERIOD=2026-11/", "a month of AWS: CUR 2.0, gzip and CSV"),
        ("orch cost import gs://bills/2026-11/", "a month of Google Cloud: the usage cost export, as JSON lines"),
        ("orch cost import november.csv.gz --dry-run", "what it would change"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Read and compare; record nothing.")
@click.option("--replace", "shorter", is_flag=True, help="Also where a bill lacks lines that it had before.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def import_bills(files: tuple[str, ...], dry_run: bool, shorter: bool, output: str) -> None:
    """Take what bills say of slices instead of the estimates, by the label orch-intent.

    FILE is a file or folder here, or in a bucket. A bill of a month is replaced whole: name all its files in one
    command. The same files again change nothing. Lines without the label are counted, and are no one's cost.
    """
    from orchestrator.documents.bill_comparison import compare_with_bills
    from orchestrator.engine.operations.import_bills import read_bills, refuse_partial_bills
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths
    from orchestrator.store.bill_records import compare_bills

    refuse_option("cost", "import", "the records are those of the service's computer", os.environ, ON_SERVICE)
    where = load_paths()
    with open_store(where, real_services(where), "orch cost import") as store:
        found = read_bills(files, frozenset(token for token, _ in store.all_intents()))
        if not found.rows:
            raise UserError(f"{join_some(files)}: no rows", "an export has a row for each charge", "export it again")
        known = store.bills()
        if not shorter:
            refuse_partial_bills(found, known)
        change = compare_bills(known, found.list_records(), found.months)
        if not dry_run:
            store.import_bills(found.list_records(), found.months)
    with open_own_reader() as reader:
        compared = compare_with_bills(reader, time.time(), change.result)
    if output == "json":
        write_stdout(json.dumps(_as_json(found, change, compared), indent=2))
        return
    write_stderr(*_describe(found, change, dry_run=dry_run))
    if compared:
        write_stdout(*draw_table(list_compared_rows(compared), sys.stdout))


def list_compared_rows(compared: tuple[ComparedPart, ...]) -> list[tuple[str, ...]]:
    """Return the table of what was estimated and what bills say."""
    rows: list[tuple[str, ...]] = [("PART", "ESTIMATED", "BILLED", "BILLED / ESTIMATED", "SLICES")]
    for one in compared:
        known = "not known" if one.estimated is None else format_microdollars(one.estimated)
        ratio = f"{one.billed / one.estimated:.2f}" if one.estimated else "-"
        rows.append((one.part, known, format_microdollars(one.billed), ratio, str(one.slices)))
    return rows


def _describe(found: ReadBills, change: BillChange, *, dry_run: bool) -> list[str]:
    bills = [f"{month} of {account} ({source})" for source, account, month in sorted(found.months)]
    done = f"{len(change.new):,} new, {len(change.changed):,} changed{'; nothing was recorded' if dry_run else ''}"
    ours = f"{count_noun(len(found.days), 'line')} of slices on record"
    lines = [f"read {count_noun(found.rows, 'row')} of {join_some(bills)}: {ours}; {done}"]
    if found.unlabelled:
        dollars = format_amount(found.unlabelled_dollars)
        lines.append(
            f"{count_noun(found.unlabelled, 'row')} without the label orch-intent ({dollars}) are no one's cost here"
        )
    if found.unknown:
        names = join_some([escape_controls(name[:60]) for name in sorted(found.unknown)])
        dollars = format_amount(sum(found.unknown.values()))
        lines.append(
            f"{count_noun(len(found.unknown), 'slice')} not on record here ({dollars}) are no one's cost here: {names}"
        )
    if not found.days:
        lines.append(
            "no row has a label of a slice on record; docs/cost.md says which label to activate for the export"
        )
    return lines


def _as_json(found: ReadBills, change: BillChange, compared: tuple[ComparedPart, ...]) -> dict[str, object]:
    from orchestrator.documents.bill_comparison import comparison_as_json

    bills = [{"source": one[0], "account": one[1], "month": one[2]} for one in sorted(found.months)]
    return {
        "version": 1,
        "kind": "bills",
        "bills": bills,
        "rows": found.rows,
        "lines": len(found.days),
        "new": len(change.new),
        "changed": len(change.changed),
        "unlabelled": {"rows": found.unlabelled, "dollars": float(found.unlabelled_dollars)},
        "unknown": {name: float(found.unknown[name]) for name in sorted(found.unknown)[:_MOST_UNKNOWN]},
        "compared": comparison_as_json(compared),
    }
