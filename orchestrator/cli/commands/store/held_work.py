"""The commands to type for each job and pipeline of an older state that was put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.messages import count_noun
from orchestrator.project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from orchestrator.store.state_changes import HeldWork


def describe_held_work(held: HeldWork) -> list[str]:
    """Return the commands that continue or end each job and pipeline; [] for none."""
    if not held.jobs and not held.pipelines:
        return []
    count = f"{count_noun(len(held.jobs), 'job')} and {count_noun(len(held.pipelines), 'pipeline')}"
    lines = [f"no engine continues what this older state has ({count}) until you say so:"]
    for cluster, job in held.jobs:
        project = "" if cluster.project == DEFAULT_PROJECT else f"ORCH_PROJECT={cluster.project} "
        cancel = f"{project}orch cancel {cluster.name} {job.id}"
        watched = job.kind != "exec"  # a command cannot be watched
        lines.append(f"  {project}orch watch {cluster.name} {job.id}   or: {cancel}" if watched else f"  {cancel}")
    for one in held.pipelines:
        project = "" if one.project == DEFAULT_PROJECT else f"ORCH_PROJECT={one.project} "
        ways = f"{project}orch watch {one.name}   or: {project}orch cancel {one.name}"
        lines.append(f"  {ways}   (pipeline, {one.describe_stage()})")
    return lines
