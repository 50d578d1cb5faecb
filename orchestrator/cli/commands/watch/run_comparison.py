"""`orch runs --compare`: runs side by side, as the page of the service shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.client.choose import open_documents
from orchestrator.formatting import format_amount, format_dollars, format_duration

_UNKNOWN = "not known"


def write_comparison(run_ids: Sequence[str], output: str) -> None:
    """Write the comparison of runs.

    Raises:
        UsageError: Fewer than two runs are named.
        OrchError: There are too many, or one is not on record.
    """
    from orchestrator.documents.comparison import list_compared

    if len(set(run_ids)) < 2:
        raise click.UsageError("--compare needs two runs or more: orch runs --compare RUN_ID RUN_ID")
    with open_documents() as documents:
        document = documents.compare_runs(list_compared(run_ids))
        write_stdout(*([json.dumps(document, indent=2)] if output == "json" else _draw(document)))


def _draw(document: dict[str, Any]) -> list[str]:
    runs: list[dict[str, Any]] = document["runs"]
    head = [one["letter"] for one in runs]
    numbers = [["RESULT AND COST", *head], *_number_rows(runs, document["common_loss"])]
    differing = [row for row in document["settings"] if row["differs"]]
    settings = [
        ["SETTING", *head],
        *([row["name"], *(value or "default" for value in row["values"])] for row in differing),
    ]
    same = len(document["settings"]) - len(differing)
    return [
        *draw_list([(one["letter"], one["run"]["run_id"], _describe_result(one)) for one in runs], sys.stdout),
        "",
        *draw_table(numbers, sys.stdout),
        "",
        *(draw_table(settings, sys.stdout) if differing else ["their tasks have the same settings"]),
        *([_describe_same(same)] if differing and same else []),
    ]


def _describe_same(count: int) -> str:
    return f"{count} more setting{'s are' if count != 1 else ' is'} the same; -o json has them"


def _describe_result(one: dict[str, Any]) -> str:
    result, problem = str(one["run"]["result"]), one["bucket_problem"]
    return f"{result}; its bucket cannot be read: {problem}" if problem else result


def _number_rows(runs: Sequence[dict[str, Any]], common_loss: float | None) -> list[list[str]]:
    rows = [
        ["step", *(_format(one["step"], ",") for one in runs)],
        ["last loss", *(_format(one["loss"], ".4f") for one in runs)],
        ["lowest loss", *(_format(one["lowest_loss"], ".4f") for one in runs)],
        ["tokens/s, median", *(_format(one["tokens_per_s"], ",.0f") for one in runs)],
        ["MFU, median", *(_format(one["mfu"], ".1%") for one in runs)],
        ["took", *(format_duration(one["run"]["seconds"]) for one in runs)],
        ["cost", *(_format_cost(one["run"]["dollars"]) for one in runs)],
        ["cost of a million tokens", *(format_dollars(one["dollars_per_million_tokens"]) for one in runs)],
    ]
    if common_loss is not None:
        until = f"until loss {common_loss:.4f}"
        waited = [one["seconds_to_common_loss"] for one in runs]
        rows.append([f"cost {until}", *(format_dollars(one["dollars_to_common_loss"]) for one in runs)])
        rows.append([f"time {until}", *(_UNKNOWN if one is None else format_duration(one) for one in waited)])
    return rows


def _format_cost(dollars: float | None) -> str:
    if dollars is None:
        return _UNKNOWN
    return format_amount(dollars) if dollars else "free"


def _format(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else format(value, form)
