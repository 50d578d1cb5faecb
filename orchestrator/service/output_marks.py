"""The state of a job and its output at a moment, by which a later one is found to be another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.engine.operations.output_copies import OutputCopies
from orchestrator.paths import load_paths
from orchestrator.store.records import JobRecord

JobKey: TypeAlias = "tuple[str, int]"  # the uid of its cluster, and its number
Sizes: TypeAlias = "tuple[tuple[str, int], ...]"


@dataclass(frozen=True, slots=True)
class OutputMark:
    """The state of a job and its output when they were read.

    Attributes:
        sizes: Of its files, with the steps of the copies that are made of it.
        state: Of the job on record.
    """

    job: JobKey
    sizes: Sizes
    state: tuple[str, int]


def mark_output(job: JobRecord, copies: OutputCopies) -> OutputMark:
    """Return what changes when there is more output of a job, or when it ends."""
    key = (job.cluster_uid, job.id)
    return OutputMark(key, measure_output(key, copies), read_state(job))


def read_state(job: JobRecord) -> tuple[str, int]:
    """Return the state of a job on record."""
    return job.state, job.attempt


def measure_output(job: JobKey, copies: OutputCopies) -> Sizes:
    """Return the sizes of the files of a job."""
    sizes: dict[str, int] = {"": copies.count_steps(*job)}
    for file in load_paths().logs(*job).glob("*/*.log"):
        try:
            sizes[f"{file.parent.name}/{file.name}"] = file.stat().st_size
        except FileNotFoundError:
            continue
    return tuple(sorted(sizes.items()))
