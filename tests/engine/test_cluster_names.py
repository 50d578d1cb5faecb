"""Names of clusters: what a person types is refused, and never changed into the name of another cluster."""

from __future__ import annotations

import pytest

from orchestrator.engine.preparation.cluster_name import choose_cluster_name
from orchestrator.errors import UserError
from orchestrator.task.parse import parse_task

TASK = parse_task("name: My_Task\nresources: {infra: local}\nrun: 'true'\n", file="t.yaml", env={}).only


@pytest.mark.parametrize("name", ["a.b", "A_b", "a b", "../x", "-x", "Ab"])
def test_a_name_that_would_be_changed_is_refused_with_the_one_that_is_possible(name: str) -> None:
    with pytest.raises(UserError) as caught:
        choose_cluster_name(TASK, name)
    possible = caught.value.next_step.rpartition(" ")[2]
    assert choose_cluster_name(TASK, possible) == possible


def test_the_name_of_a_task_is_made_valid() -> None:
    assert choose_cluster_name(TASK, None) == "my-task"
