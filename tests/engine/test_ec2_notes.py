"""Regions of EC2 that a plan speaks of."""

from __future__ import annotations

from orchestrator.engine.ec2_notes import ec2_notes
from orchestrator.spec.parse import parse_task


def notes(resources: str) -> list[str]:
    return ec2_notes(parse_task(f"run: echo\nresources: {resources}\n", file="t.yaml", env={}).only)


def test_a_region_that_is_mistyped_is_told() -> None:
    (told,) = notes("{accelerators: 'H100:8', infra: aws/us-weast-2}")
    assert told == "orch knows no region us-weast-2; did you mean us-west-2?"
    assert notes("{accelerators: 'H100:8', infra: aws/us-east-1}") == []


def test_regions_that_are_not_tried_by_themselves_are_named_those_that_need_no_opening_first() -> None:
    (told,) = notes("{accelerators: 'H100:8'}")
    assert told.startswith("p5.48xlarge is also in ap-northeast-1, ")
    assert "us-east-1," not in told
    assert told.endswith("--infra aws/ap-northeast-1   looks there")
    assert told.index("us-west-2") < told.index("ap-southeast-3"), "which an account has to open"


def test_machines_elsewhere_have_no_such_notes() -> None:
    assert notes("{accelerators: v5e-8}") == notes("{infra: local}") == []
