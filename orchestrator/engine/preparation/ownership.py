"""Whose a cluster is. In a team all trust each other: this guards against mistakes, not against a member."""

from __future__ import annotations

from itertools import count

from orchestrator.errors import ConflictError
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task

_LONGEST_BASE = 36  # leaves space for a suffix within the 40 characters of a cluster's name


def refuse_other_owner(record: ClusterRecord | None, member: str, *, force: bool | None = None) -> ConflictError | None:
    """Return why `member` does not change a cluster, or None where it is theirs, or where `force` is given.

    With None for `force`, another name is proposed: two people who launch one file do not mean the same cluster.
    """
    if record is None or force or not is_of_another_member(record, member):
        return None
    name = record.name
    if force is None:
        why = "launching under its name would use or replace its machines"
        return ConflictError(f"cluster '{name}' belongs to {record.owner}", why, f"another name: -c {name}-{member}")
    return ConflictError(
        f"cluster '{name}' belongs to {record.owner}",
        f"you are {member}",
        "if that is meant: the same with --force",
    )


def is_of_another_member(record: ClusterRecord, member: str) -> bool:
    """Return whether another member opened the cluster. One whose owner is not known counts as one's own."""
    return record.owner not in ("", member)


def describe_forced_change(record: ClusterRecord, member: str, verb: str, *, force: bool) -> str:
    """Return what the audit says when a member changes the cluster of another one, or ""."""
    if not force or not is_of_another_member(record, member):
        return ""
    return f"{member} gave {verb} --force for the cluster of {record.owner}"


def choose_default_name(reader: Reader, base: str, task: Task) -> tuple[str, str]:
    """Return the name of a cluster that the command line does not name, and a note where it is not `base`.

    NAME-2, NAME-3 and so on stand in for a name that another member has. The same command again finds the cluster that
    it made, also when the other member's has been taken down since.

    Args:
        reader: An open store.
        base: The name by the task.
        task: The task of the command.
    """
    first = reader.cluster(base)
    stem = base[:_LONGEST_BASE].rstrip("-")
    if first is None or not is_of_another_member(first, reader.member):
        second = reader.cluster(f"{stem}-2") if first is None else None
        if (
            second is None
            or is_of_another_member(second, reader.member)
            or not any(_is_job_of(job, task) for job in reader.jobs(second))
        ):
            return base, ""
        return second.name, f"this command runs on '{second.name}', which it made when '{base}' was taken"
    for number in count(2):
        record = reader.cluster(name := f"{stem}-{number}")
        if record is None or not is_of_another_member(record, reader.member):
            return name, f"cluster '{base}' belongs to {first.owner}, so this one is called '{name}'"
    raise AssertionError  # the count has no end


def _is_job_of(job: JobRecord, task: Task) -> bool:
    """Return whether the job was launched from this task, by this orch or an earlier one with fewer fields."""
    try:
        return bool(job.task) and Task.from_json(job.task).to_compared() == task.to_compared()
    except TaskError:  # of a later orch, whose fields are not known here
        return False
