"""Notes of a plan about EC2 regions."""

from __future__ import annotations

from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.task.parse import parse_task


def notes(resources: str) -> list[str]:
    task = parse_task(f"run: echo\nresources: {resources}\n", file="t.yaml", env={}).only
    return list(PLANNER.list_notes(task, list_candidates(task)))


def test_a_mistyped_region_is_noted() -> None:
    (noted,) = notes("{accelerators: 'H100:8', infra: aws/us-weast-2}")
    assert noted == "orch knows no region us-weast-2; did you mean us-west-2?"
    assert notes("{accelerators: 'H100:8', infra: aws/us-east-1}") == []


def test_regions_not_tried_automatically_are_named_opted_in_ones_first() -> None:
    (noted,) = notes("{accelerators: 'H100:8'}")
    assert noted.startswith("p5.48xlarge is also in sa-east-1, ap-southeast-3")
    assert "us-east-1," not in noted
    assert noted.endswith("--infra aws/sa-east-1   tries it")
    assert noted.index("sa-east-1") < noted.index("ap-southeast-3"), "which an account has to open"


def test_machines_elsewhere_have_no_such_notes() -> None:
    assert notes("{accelerators: v5e-8}") == notes("{infra: local}") == []


def test_few_of_many_regions_are_named() -> None:
    (noted,) = [note for note in notes("{infra: aws, cpus: 2}") if " is also in " in note]
    assert len(noted) < 160 and " more: --infra aws/" in noted
