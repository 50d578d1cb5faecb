"""`orch offers --capacity`: what own requests for machines say of capacity."""

from __future__ import annotations

import json
import sys
import time

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.documents.capacity import capacity_as_json, read_capacity, sort_capacity
from orchestrator.offers.capacity import ENOUGH_HOURS, FEWEST, SHOWN_WAIT, CapacityFigures, CapacityKey

_NOT_KNOWN = "not known"


def show_capacity(output: str) -> None:
    """Show the requests of the last weeks by place, machines and market, of everyone who uses the store."""
    with open_store_reader() as store:
        found = read_capacity(store, time.time())
    if output == "json":
        write_stdout(json.dumps(capacity_as_json(found), indent=2))
        return
    rows = [_row(key, one) for key, one in sort_capacity(found)]
    if not rows:
        write_stderr("no machines were requested in the last 84 days")
        return
    head = ("PLACE", "MACHINES", "HOSTS", "MARKET", "REQUESTS", "GOT", "WITHIN 1 H", "MEDIAN WAIT", "LOST", "LOSSES/H")
    write_stdout(*draw_table([head, *rows], sys.stdout, optional=("HOSTS",)))
    write_stderr(
        "requests of the last 84 days; a wait is until the program starts, with set-up",
        f"chances and losses weigh half after 14 days; they are not known below {FEWEST} requests",
        f"losses also not before {FEWEST} losses or {ENOUGH_HOURS:.0f} hours of machines; assumed until then",
    )


def _row(key: CapacityKey, one: CapacityFigures) -> tuple[str, ...]:
    chance, losses = one.chance_within(SHOWN_WAIT), one.losses_per_hour
    return (
        f"{key.provider}/{key.place}".rstrip("/"),
        key.accelerator,
        str(key.hosts),
        key.market,
        str(one.requests),
        str(one.got),
        _NOT_KNOWN if chance is None else f"{100 * chance:.0f} %",
        "-" if one.median_wait is None else f"{one.median_wait / 60:,.0f} min",
        str(one.lost),
        _NOT_KNOWN if losses is None else f"{losses:.3f}",
    )
