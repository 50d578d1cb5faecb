"""`orch offers --accuracy`: what was estimated for runs when they were launched, beside what was measured."""

from __future__ import annotations

import json
import sys

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.client.base import Document
from orchestrator.client.choose import open_documents
from orchestrator.documents.accuracy import describe_compared
from orchestrator.offers.predictions import Compared


def show_accuracy(output: str) -> None:
    """Show the runs of the store that have ended, the newest first."""
    with open_documents() as documents:
        document = documents.read_accuracy()
        if output == "json":
            write_stdout(json.dumps(document, indent=2))
            return
        rows = [row for run in document["runs"] for row in _list_rows(run)]
        if not rows:
            write_stderr(
                "no run has ended for which an estimate was recorded (the bundled trainer, on known accelerators)"
            )
            return
        write_stdout(*draw_table([("RUN", "MACHINES", "WHAT", "ESTIMATED", "MEASURED", "WITHIN"), *rows], sys.stdout))
        inside, every = document["inside"], document["compared"]
        share = f" ({100 * inside / every:.0f} %)" if every else ""
        write_stderr(
            f"{inside} of {every}{share} are within what was estimated; docs/offers.md says how it is measured"
        )
        write_stderr(*(f"{run['run_id']}: {run['problem']}" for run in document["runs"] if run["problem"]))


def _list_rows(run: Document) -> list[tuple[str, ...]]:
    names = ("quantity", "low", "high", "measured")
    compared = [Compared(**{name: one[name] for name in names}) for one in run["compared"]]
    return [
        (run["run_id"], run["machines"], *describe_compared(one), "yes" if one.is_inside else "no") for one in compared
    ]
