"""Whose a cluster is. In a team all trust each other: this guards against mistakes, not against a member."""

from __future__ import annotations

from orchestrator.errors import ConflictError
from orchestrator.store.records import ClusterRecord


def refuse_other_owner(record: ClusterRecord | None, member: str, *, force: bool | None = None) -> ConflictError | None:
    """Return why `member` does not change a cluster, or None where it is theirs, or where `force` is given.

    With None for `force`, another name is proposed: two people who launch one file do not mean the same cluster.
    """
    if record is None or force or record.owner in ("", member):
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
