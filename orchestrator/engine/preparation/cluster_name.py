"""The name of a cluster: the one that was given, or one made of the task."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.task.model import Task

LONGEST_CLUSTER_NAME = 40


def choose_cluster_name(task: Task, requested: str | None) -> str:
    """Return the name the user gave, or the task's name, or "train" or "task", made valid.

    Raises:
        UserError: It cannot be made valid, or the name that the user gave is not valid as it is: another one could be
            that of a cluster that runs.
    """
    name = (requested or task.name or ("train" if task.train is not None else "task")).lower()
    clean = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name).strip("-")
    if requested and len(clean) > LONGEST_CLUSTER_NAME:
        raise UserError(
            f"'{clean}' is too long for a cluster's name",
            f"it has {len(clean)} characters; at most {LONGEST_CLUSTER_NAME} are allowed",
            f"give a shorter one: -c {clean[:LONGEST_CLUSTER_NAME].rstrip('-')}",
        )
    clean = clean[:LONGEST_CLUSTER_NAME].rstrip("-")
    if requested and clean and clean[0].isalpha() and clean != requested:
        raise UserError(
            f"'{requested}' cannot be a cluster's name",
            "it starts with a letter and holds lower-case letters, digits and dashes",
            f"give another one: -c {clean}",
        )
    if not clean or not clean[0].isalpha():
        raise UserError(
            f"'{requested or task.name}' cannot be a cluster's name",
            "it starts with a letter and holds letters, digits and dashes",
            "give one: -c NAME",
        )
    return clean
