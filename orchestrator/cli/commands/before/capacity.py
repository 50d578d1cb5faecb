"""`orch offers --capacity`: what own requests for machines say of capacity."""

from __future__ import annotations

import json
import sys

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.client.base import Document
from orchestrator.client.choose import open_documents
from orchestrator.offers.capacity import ENOUGH_HOURS, FEWEST, SHOWN_WAIT

_NOT_KNOWN = "not known"


def show_capacity(output: str) -> None:
    """Show the requests of the last weeks by place, machines and market, of everyone who uses the store."""
    with open_documents() as documents:
        document = documents.read_capacity()
        if output == "json":
            write_stdout(json.dumps(document, indent=2))
            return
        rows = [_row(row) for row in document["rows"]]
        if not rows:
            write_stderr("no machines were requested in the last 84 days")
            return
        head = (
            "PLACE",
            "MACHINES",
            "HOSTS",
            "MARKET",
            "REQUESTS",
            "GOT",
            "WITHIN 1 H",
            "MEDIAN WAIT",
            "LOST",
            "LOSSES/H",
        )
        write_stdout(*draw_table([head, *rows], sys.stdout, optional=("HOSTS",)))
        write_stderr(
            "requests of the last 84 days; a wait is until the program starts, with set-up",
            f"chances and losses weigh half after 14 days; they are not known below {FEWEST} requests",
            f"losses also not before {FEWEST} losses or {ENOUGH_HOURS:.0f} hours of machines; assumed until then",
        )


def _row(row: Document) -> tuple[str, ...]:
    chance, wait, losses = row["chance_within"][str(int(SHOWN_WAIT))], row["median_wait"], row["losses_per_hour"]
    return (
        f"{row['provider']}/{row['place']}".rstrip("/"),
        row["accelerator"],
        str(row["hosts"]),
        row["market"],
        str(row["requests"]),
        str(row["got"]),
        _NOT_KNOWN if chance is None else f"{100 * chance:.0f} %",
        "-" if wait is None else f"{wait / 60:,.0f} min",
        str(row["lost"]),
        _NOT_KNOWN if losses is None else f"{losses:.3f}",
    )
