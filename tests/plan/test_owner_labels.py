"""Labels that say in which project the machines are, and whose."""

from __future__ import annotations

import pytest
from plan_samples import FACTS, sample_run

from orchestrator.engine.state.names import member_label
from orchestrator.plan.actions import CreateSlice
from orchestrator.plan.decide import decide
from orchestrator.plan.observed import Observed


def test_a_slice_carries_project_and_member_and_no_label_of_the_user_replaces_them() -> None:
    desired = sample_run(project="lab", member="ann", labels=(("orch-member", "bob"), ("team", "x")))
    step = decide(desired, Observed(now=1000.0), FACTS)
    assert isinstance(step, CreateSlice)
    labels = {key: value.preview() for key, value in step.spec.labels}
    assert (labels["orch-project"], labels["orch-member"], labels["team"]) == ("lab", "ann", "x")
    assert step.spec.name == "demo-1"


@pytest.mark.parametrize(
    ("member", "label"),
    [("ann", "ann"), ("Ann.Smith@example.org", "ann-smith"), ("x" * 70, "x" * 63), ("dom\\bob", "dom-bob"), ("é", "-")],
)
def test_a_member_is_never_a_whole_e_mail_in_a_label(member: str, label: str) -> None:
    assert member_label(member) == label
