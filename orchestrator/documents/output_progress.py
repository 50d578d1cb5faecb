"""Step and loss of jobs whose program reports none, from the end of the output that this computer has kept.

Nothing is decided by it, so no restart depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.documents.output_forms import OutputProgress, read_output
from orchestrator.paths import load_paths
from orchestrator.remote.output import find_last_state
from orchestrator.store.records import JobRecord
from orchestrator.task.output_pattern import OutputPattern, parse_pattern

if TYPE_CHECKING:  # both are given
    from orchestrator.documents.clusters import ClusterSummary
    from orchestrator.documents.runs import RunSummary

_MOST_BYTES = 256 * 1024  # of the end of a log: a bar is redrawn many times between two losses
_MOST_LINES = 200
_MOST_HOSTS = 8  # whose logs are read: with pipeline stages the last one prints the loss


def add_output(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs with what the output of each says, of its newest job that says anything."""
    return [replace(run, output=_find_newest(run.jobs)) for run in runs]


def add_cluster_output(clusters: Sequence[ClusterSummary]) -> list[ClusterSummary]:
    """Return the clusters with what the output of each one's current job says."""
    return [
        replace(one, output=find_progress(one.current_job)) if one.current_job is not None else one for one in clusters
    ]


def find_progress(job: JobRecord) -> OutputProgress | None:
    """Return what the kept output of a job's newest attempt says; None where it says nothing."""
    if job.kind == "exec" or not job.started:
        return None
    folder = load_paths().logs(job.cluster_uid, job.id) / f"attempt-{job.attempt:04d}"
    with suppress(OSError):
        logs = sorted((log for log in folder.glob("*.log") if log.stem.isdigit()), key=lambda log: int(log.stem))
        own = _read_own_pattern(job) if logs else None
        for log in logs[:_MOST_HOSTS]:
            if (found := read_output(_read_last_lines(log), own)) is not None:
                return found
    return None


def _find_newest(jobs: Sequence[JobRecord]) -> OutputProgress | None:
    return next((found for job in reversed(jobs) if (found := find_progress(job)) is not None), None)


def _read_own_pattern(job: JobRecord) -> OutputPattern | None:
    """Return the pattern of the job's task; None without one, or for one that this orch does not understand."""
    try:
        task: Any = json.loads(job.task or "{}")
        pattern: Any = task["metrics"]["pattern"]
        return parse_pattern(pattern) if isinstance(pattern, str) and pattern else None
    except (ValueError, KeyError, TypeError):
        return None


def _read_last_lines(log: Path) -> Iterator[str]:
    """Yield the last lines of a log, the newest first, each without what a carriage return overwrote."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _MOST_BYTES, 0))
        lines = file.read(_MOST_BYTES).split(b"\n")
    for line in reversed(lines[-_MOST_LINES:]):
        yield find_last_state(line).decode("utf-8", "replace")
