"""`orch runs --compare`: runs side by side, as the page of the service shows them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.cli.parameters.clusters import open_store_reader
from orchestrator.formatting import format_dollars, format_duration
from orchestrator.summaries.runs import format_run_cost

if TYPE_CHECKING:  # `orch runs` needs no buckets
    from orchestrator.summaries.comparison import ComparedRun, Comparison

_UNKNOWN = "not known"


def write_comparison(run_ids: Sequence[str], output: str) -> None:
    """Write the comparison of runs.

    Raises:
        UsageError: Fewer than two runs are named.
        OrchError: There are too many, or one is not on record.
    """
    from orchestrator.cloud_access import read_cloud_access
    from orchestrator.storage.bucket import Bucket
    from orchestrator.summaries.comparison import compare_runs, comparison_as_json
    from orchestrator.summaries.curves import CurveReader

    if len(set(run_ids)) < 2:
        raise click.UsageError("--compare needs two runs or more: orch runs --compare RUN_ID RUN_ID")
    access = read_cloud_access(os.environ)
    with open_store_reader() as store:
        found = compare_runs(store, run_ids, time.time(), lambda uri: Bucket.open(uri, access), CurveReader())
    if output == "json":
        write_stdout(json.dumps(comparison_as_json(found), indent=2))
    else:
        write_stdout(*_draw(found))


def _draw(found: Comparison) -> list[str]:
    head = [one.letter for one in found.runs]
    numbers = [["RESULT AND COST", *head], *_number_rows(found)]
    differing = [row for row in found.settings if row.differs]
    settings = [["SETTING", *head], *([row.name, *(value or "default" for value in row.values)] for row in differing)]
    same = len(found.settings) - len(differing)
    return [
        *draw_list([(one.letter, one.view.run.run_id, _describe_result(one)) for one in found.runs], sys.stdout),
        "",
        *draw_table(numbers, sys.stdout),
        "",
        *(draw_table(settings, sys.stdout) if differing else ["their tasks have the same settings"]),
        *([_describe_same(same)] if differing and same else []),
    ]


def _describe_same(count: int) -> str:
    return f"{count} more setting{'s are' if count != 1 else ' is'} the same; -o json has them"


def _describe_result(one: ComparedRun) -> str:
    if one.view.bucket_problem:
        return f"{one.view.run.result}; its bucket cannot be read: {one.view.bucket_problem}"
    return one.view.run.result


def _number_rows(found: Comparison) -> list[list[str]]:
    runs = found.runs
    rows = [
        ["step", *(f"{one.last.step:,}" if one.last is not None else _UNKNOWN for one in runs)],
        ["last loss", *(_format(one.last.loss if one.last is not None else None, ".4f") for one in runs)],
        ["lowest loss", *(_format(one.lowest_loss, ".4f") for one in runs)],
        ["tokens/s, median", *(_format(one.tokens_per_s, ",.0f") for one in runs)],
        ["MFU, median", *(_format(one.mfu, ".1%") for one in runs)],
        ["took", *(format_duration(one.view.run.seconds) for one in runs)],
        ["cost", *(format_run_cost(one.view.run) for one in runs)],
        ["cost of a million tokens", *(format_dollars(one.view.dollars_per_million_tokens) for one in runs)],
    ]
    if found.common_loss is not None:
        until = f"until loss {found.common_loss:.4f}"
        waited = [one.seconds_to_reach for one in runs]
        rows.append([f"cost {until}", *(format_dollars(one.dollars_to_reach) for one in runs)])
        rows.append([f"time {until}", *(_UNKNOWN if one is None else format_duration(one) for one in waited)])
    return rows


def _format(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else format(value, form)
