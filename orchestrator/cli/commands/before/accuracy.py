"""`orch offers --accuracy`: what was estimated for runs when they were launched, beside what was measured."""

from __future__ import annotations

import json
import sys
import time

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.documents.accuracy import JudgedRun, accuracy_as_json, count_inside, describe_compared, judge_runs
from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.training.kept_speeds import keep_speeds


def show_accuracy(output: str) -> None:
    """Show the runs of the store that have ended, the newest first."""
    with open_store_reader() as store:
        runs = judge_runs(store, time.time(), open_project_bucket)
    keep_speeds(one.speed for one in runs if one.speed is not None)
    if output == "json":
        write_stdout(json.dumps(accuracy_as_json(runs), indent=2))
        return
    rows = [row for run in runs for row in _list_rows(run)]
    if not rows:
        write_stderr("no run has ended for which an estimate was recorded (the bundled trainer, on known accelerators)")
        return
    write_stdout(*draw_table([("RUN", "MACHINES", "WHAT", "ESTIMATED", "MEASURED", "WITHIN"), *rows], sys.stdout))
    inside, every = count_inside(runs)
    share = f" ({100 * inside / every:.0f} %)" if every else ""
    write_stderr(f"{inside} of {every}{share} are within what was estimated; docs/offers.md says how it is measured")
    write_stderr(*(f"{run.run_id}: {run.problem}" for run in runs if run.problem))


def _list_rows(run: JudgedRun) -> list[tuple[str, ...]]:
    return [
        (run.run_id, run.machines, *describe_compared(one), "yes" if one.is_inside else "no") for one in run.compared
    ]
