"""What a plan says of the regions of EC2: those that orch does not know, and those where it does not look by itself."""

from __future__ import annotations

from difflib import get_close_matches

from orchestrator.catalog.ec2_regions import opt_in, regions
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.engine.candidates import candidates
from orchestrator.spec.infra import Where
from orchestrator.spec.task import Task


def ec2_notes(task: Task) -> list[str]:
    """One note for each region that is new or mistyped, and one for each type that more regions have."""
    notes: list[str] = []
    for choice in task.choices:
        machine, named = choice.machine, choice.infra.region
        if choice.infra.provider is not Where.AWS or not isinstance(machine, Ec2Instance):
            continue
        if named and named not in regions():
            near = get_close_matches(named, list(regions()), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notes.append(f"orch knows no region {named}{hint}")
        tried = {one.region for one in candidates(task) if one.accelerator == machine.name}
        others = sorted(set(machine.regions) - tried, key=lambda region: (region in opt_in(), region))
        if not named and others:
            notes.append(f"{machine.name} is also in {', '.join(others)}: --infra aws/{others[0]}   looks there")
    return list(dict.fromkeys(notes))
