"""The text of `orch queue`, from the document that `-o json` prints and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from orchestrator.cli.drawing.stages_text import count_stage
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.formatting import format_duration, parse_utc


def draw_queue(document: Mapping[str, Any], *, with_project: bool) -> list[str]:
    """Return the lines of the tables of jobs and pipelines; none without any."""
    jobs, pipelines, now = document["jobs"], document["pipelines"], parse_utc(document["now"])
    lines: list[str] = []
    if jobs:
        project = ["PROJECT"] if with_project else []
        rows: list[tuple[str, ...]] = [("CLUSTER", *project, "JOB", "KIND", "STATE", "RUN", "AGE", "DRIVEN BY")]
        rows += [_make_row(job, now, with_project=with_project) for job in jobs]
        lines += draw_table(rows, sys.stdout, optional=("RUN",))
    if pipelines:
        stages = [("PIPELINE", "STAGE", "CLUSTER", "STATE", "RESULT", "DRIVEN BY")]
        stages += [
            (
                one["name"],
                count_stage(one).removeprefix("stage "),
                one.get("cluster") or "",
                one["state"],
                one["what"] or "",
                one.get("driven_by") or "",
            )
            for one in pipelines
        ]
        lines += draw_table(stages, sys.stdout, optional=("CLUSTER",))
    return lines


def _make_row(job: Mapping[str, Any], now: float, *, with_project: bool) -> tuple[str, ...]:
    state = job["state"] + (f", attempt {job['attempt']}" if job["attempt"] > 1 else "")
    if job["state"] == "ended":
        state = f"exit {job['status']}"
    ended = now if job["ended"] is None else parse_utc(job["ended"])
    age = format_duration(ended - parse_utc(job["created"]))
    project = [job["project"]] if with_project else []
    return (job["cluster"], *project, str(job["id"]), job["kind"], state, job["run_id"], age, job["driven_by"] or "")
