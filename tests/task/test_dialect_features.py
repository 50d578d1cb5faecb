"""Each rule of the dialect's parser, on a small document: served with the same meaning, or refused by name."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from orchestrator.task.errors import TaskError
from orchestrator.task.parse import TaskFile, parse_task

FEATURES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "dialect_features.toml").read_text())["feature"]


def describe(file: TaskFile) -> dict[str, Any]:
    """Return what the data compares."""
    first = file.tasks[0]
    return {
        "tasks": len(file.tasks),
        "execution": file.execution.value,
        "machines": [choice.machine.name for choice in first.choices],
        "count": len(first.choices),
        "order": first.order.value,
        "infra": str(first.choices[0].infra),
        "hosts": first.count_hosts(first.choices[0]),
        "strategy": first.recovery.strategy,
        "envs": dict(first.envs),
        "mounts": [f"{mount.target} {mount.source} {mount.mode}" for mount in first.file_mounts],
        "workdir": first.workdir,
        "idle_minutes": first.autostop.idle_minutes if first.autostop else None,
    }


@pytest.mark.parametrize("feature", FEATURES, ids=[feature["name"] for feature in FEATURES])
def test_a_rule_of_the_dialect_has_its_meaning_or_is_refused_by_name(feature: dict[str, Any]) -> None:
    assert feature["source"]
    if "refused" in feature:
        with pytest.raises(TaskError) as caught:
            parse_task(feature["text"], file="t.yaml", env={})
        assert any(feature["refused"] in problem.what for problem in caught.value.problems)
        assert all(problem.why or problem.next_step for problem in caught.value.problems)
        return
    file = parse_task(feature["text"], file="t.yaml", env={})
    found = describe(file)
    assert {name: found[name] for name in feature["expect"]} == json.loads(json.dumps(feature["expect"]))
    assert any(feature.get("note", "") in note for note in file.notes) or "note" not in feature


def test_the_names_of_the_features_are_different() -> None:
    names = [feature["name"] for feature in FEATURES]
    assert len(names) == len(set(names)) >= 20
