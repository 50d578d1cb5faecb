"""The text of `orch runs`, from the document that `-o json` prints and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from orchestrator.cli.drawing.stages_text import describe_stage, format_stage
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.formatting import format_duration, format_local_time, format_run_cost, parse_utc

_REASON = 60  # characters of a reason in a table


def draw_runs(document: Mapping[str, Any], *, with_project: bool) -> list[str]:
    """Return the lines of a table of runs."""
    runs = document["runs"]
    output = ["FROM OUTPUT"] if any(run["from_output"] for run in runs) else []
    project = ["PROJECT"] if with_project else []
    staged = ["PIPELINE"] if any(run.get("stage") for run in runs) else []
    commit = ["COMMIT"] if any(run["commit"] for run in runs) else []
    head = ("RUN", "CLUSTER", *staged, *project, "OWNER", *commit, "STARTED", "TOOK", "COST", *output, "RESULT")
    rows: list[tuple[str, ...]] = [head]
    for run in runs:
        started = format_local_time(parse_utc(run["created"]))[5:16]
        whose = (
            *([format_stage(run.get("stage"))] if staged else []),
            *([run["project"]] if project else []),
            run["owner"] or "-",
            *([_format_commit(run)] if commit else []),
        )
        progress = [run["from_output"]["text"] if run["from_output"] else "-"] if output else []
        cost = (started, format_duration(run["seconds"]), format_run_cost(run["dollars"]))
        rows.append((run["run_id"], run["cluster"], *whose, *cost, *progress, _describe_result(run)))
    optional = ("CLUSTER", "COMMIT", "OWNER", "TOOK", "FROM OUTPUT", "PIPELINE")
    return draw_table(rows, sys.stdout, optional=optional, least={"RESULT": 24})


def _describe_result(run: Mapping[str, Any]) -> str:
    """Return the result in a table: of a failed run the begin of its reason, which `orch runs RUN` shows whole."""
    if not run["status"] or not run["why"]:
        return str(run["result"])
    why = str(run["why"])
    return f"exit {run['status']}: {why if len(why) <= _REASON else why[: _REASON - 1] + '…'}"


def draw_run(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of the first run of a document."""
    run = document["runs"][0]
    facts = [
        ("run", run["run_id"]),
        ("cluster", run["cluster"]),
        ("owner", run["owner"] or "not on record"),
        ("started", format_local_time(parse_utc(run["created"]))),
        ("took", format_duration(run["seconds"])),
        ("cost", f"{format_run_cost(run['dollars'])} by list price, without disks and buckets"),
        ("result", run["result"]),
        ("commit", _describe_commit(run)),
        ("bucket", f"{run['bucket']}/{run['run_id']}/" if run["bucket"] else "none"),
    ]
    if run.get("stage") is not None:
        facts.append(("pipeline", describe_stage(run["stage"])))
    if run["from_output"] is not None:
        facts.append(("progress", f"{run['from_output']['text']}   from output, {run['from_output']['form']}"))
    if run["why"]:
        facts.append(("reason", run["why"]))
    if run["bucket"]:
        facts.append(("resume", f"orch resume {run['run_id']} --bucket {run['bucket']}"))
    rows = [("JOB", "KIND", "STATE", "ATTEMPTS", "STARTED", "RESULT"), *map(_make_job_row, run["jobs"])]
    return [*draw_list(facts, sys.stdout), "", *draw_table(rows, sys.stdout)]


def _make_job_row(job: Mapping[str, Any]) -> tuple[str, ...]:
    started = format_local_time(parse_utc(job["created"]))
    result = f"exit {job['status']}" if job["status"] is not None else ""
    return (str(job["id"]), job["kind"], job["state"], str(job["attempts"]), started, result)


def _format_commit(run: Mapping[str, Any]) -> str:
    """Format the commit of a run's workdir, with a star where files were changed since; "-" when not known."""
    return (run["commit"] or "-")[:9] + ("*" if run["changes"] else "")


def _describe_commit(run: Mapping[str, Any]) -> str:
    if run["commit"] is None:
        return "the workdir is of none"
    branch = f" of {run['branch']}" if run["branch"] else ""
    changed = f", with changes since (SHA-256 {run['changes'][:9]})" if run["changes"] else ""
    return f"{run['commit']}{branch}{changed}"
