"""Hosts act on limits by themselves: a last state from before a limit may be of the past."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.documents.clusters import ClusterSummary, find_passed_limit
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.records import ClusterRecord

MACHINE = Candidate(provider="gcp", accelerator="e2", hosts=1, chips_per_host=0, market=OnDemand())
CLUSTER = ClusterRecord(
    uid="u", name="mine", created=0.0, desired_state="up", hosts=(), host_contents="{}", summary="",
    last_state="ready", last_seen=1000.0,
)  # fmt: skip
INTENT = Intent(name="mine-1", generation=1, candidate=MACHINE, state=IntentState.ACCEPTED, since=900.0)
SEEN = ClusterSummary(
    cluster=CLUSTER, state="ready", state_at=1000.0, slices=(INTENT,), jobs=(), ended=(), busy_with=""
)


def with_limits(**limits: float) -> ClusterSummary:
    return replace(SEEN, cluster=replace(CLUSTER, limits=json.dumps(limits)))


@pytest.mark.parametrize(
    ("item", "now", "passed"),
    [
        (with_limits(), 1e9, ""),
        (with_limits(idle_minutes=10), 1499.0, ""),
        (with_limits(idle_minutes=10), 1501.0, "10 min without a job"),
        (with_limits(max_hours=1), 4400.0, ""),
        (with_limits(max_hours=1), 4501.0, "1 h of machine time"),
        (replace(with_limits(idle_minutes=10), state_at=1502.0), 1600.0, ""),  # they live: someone is logged in
        (replace(with_limits(idle_minutes=10), state="stopped"), 1600.0, ""),
        (replace(with_limits(idle_minutes=10), busy_with="process 1"), 1600.0, ""),
    ],
)
def test_a_limit_that_passed_since_the_last_look(item: ClusterSummary, now: float, passed: str) -> None:
    assert find_passed_limit(item, now) == passed
