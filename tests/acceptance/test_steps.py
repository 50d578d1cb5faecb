"""The table of steps and its price: pure values."""

from __future__ import annotations

import json
from dataclasses import replace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.acceptance.budget import ENDING_MINUTES, compute_allowed_minutes, estimate_costs, find_cap
from orchestrator.acceptance.steps import Request, Step, list_steps, write_files
from orchestrator.cli.app import app
from orchestrator.task.parse import load_task_file

WITH_ALL = Request(
    cloud="gcp", place="gcp", name="acceptance-x", bucket="gs://bbb/acceptance-x", accelerators=("v5e-4", "L4:1")
)
REQUESTS = [WITH_ALL, replace(WITH_ALL, bucket=""), replace(WITH_ALL, accelerators=()), replace(WITH_ALL, cloud="aws")]


def clusters_of(request: Request) -> set[str]:
    return {step.rents for step in list_steps(request)} - {""}


@pytest.mark.parametrize("request_", REQUESTS)
def test_steps_are_named_once_and_need_only_earlier_ones(request_: Request) -> None:
    seen: list[str] = []
    for step in list_steps(request_):
        assert step.name not in seen and set(step.needs) <= set(seen)
        assert step.minutes < step.most_minutes
        seen.append(step.name)


@pytest.mark.parametrize("request_", REQUESTS)
def test_every_cluster_that_is_rented_is_ended_by_a_later_step(request_: Request) -> None:
    steps = list_steps(request_)
    for cluster in clusters_of(request_):
        rents = [number for number, step in enumerate(steps) if step.rents == cluster]
        ends = [number for number, step in enumerate(steps) if step.ends == cluster]
        assert len(ends) == 1 and max(rents) < ends[0]
    assert [step.name for step in steps][-3:] == ["down", "reap", "status"]


@pytest.mark.parametrize("step", list_steps(WITH_ALL), ids=lambda step: step.name)
def test_every_command_line_is_one_of_orch(step: Step) -> None:
    """Click parses the words; nothing is run."""
    group: click.Command | None = app
    words = list(step.argv)
    context = click.Context(app)
    while isinstance(group, click.Group):
        name = words.pop(0)
        group = group.get_command(context, name)
    assert group is not None
    group.make_context("orch", words)


def test_what_needs_a_bucket_or_an_accelerator_is_left_out_without() -> None:
    words = [word for step in list_steps(replace(WITH_ALL, bucket="", accelerators=())) for word in step.argv]
    assert "storage" not in words and "train.yaml" not in words and "accelerator.yaml" not in words


@pytest.mark.parametrize("name", ["cpu.yaml", "train.yaml", "accelerator.yaml"])
def test_task_files_are_valid_and_limited_on_the_hosts_too(name: str, tmp_path: pytest.TempPathFactory) -> None:
    from pathlib import Path

    from orchestrator.task.config import parse_config

    file = Path(str(tmp_path)) / name
    file.write_text(write_files(WITH_ALL)[name])
    task = load_task_file(str(file), env={}, config=parse_config("", "", {})).only
    limits = json.loads(task.to_json())["limits"]
    assert limits["max_cost"] == 3.0 and 1.0 < limits["max_hours"] < 1.5


def test_an_estimate_counts_each_cluster_from_its_launch_to_its_end() -> None:
    prices = dict.fromkeys(clusters_of(WITH_ALL), 60.0)  # a dollar a minute
    steps = {step.name: step for step in list_steps(WITH_ALL)}
    costs = estimate_costs(list_steps(WITH_ALL), prices)
    assert costs["check"] == costs["bucket-put"] == costs["reap"] == costs["status"] == 0
    assert costs["exec"] == pytest.approx(steps["exec"].minutes)
    assert costs["no-duplicate"] == pytest.approx(2 * steps["no-duplicate"].minutes)
    assert costs["down-second"] == pytest.approx(2 * steps["down-second"].minutes)
    assert costs["stop"] == pytest.approx(steps["stop"].minutes)


@given(
    dollars=st.floats(0, 100),
    minutes=st.floats(0, 100),
    hourly=st.floats(0, 1000),
    number=st.integers(0, len(list_steps(WITH_ALL)) - 1),
)
def test_a_step_never_takes_longer_than_money_time_and_its_own_limit_allow(
    dollars: float, minutes: float, hourly: float, number: int
) -> None:
    step = list_steps(WITH_ALL)[number]
    allowed = compute_allowed_minutes(step, minutes_left=minutes, dollars_left=dollars, hourly=hourly)
    assert 0 <= allowed <= min(minutes, step.most_minutes)
    if allowed > 0:
        assert (allowed + ENDING_MINUTES) * hourly / 60 <= dollars + 1e-6, "the end of the machines is paid, too"


def test_a_step_does_not_begin_when_it_and_the_rest_would_pass_the_cap() -> None:
    steps = list_steps(WITH_ALL)
    prices = dict.fromkeys(clusters_of(WITH_ALL), 1.0)
    total = sum(estimate_costs(steps, prices).values())
    assert find_cap(steps, spent=0, prices=prices, rented=(), max_cost=total + 0.01) == ""
    why = find_cap(steps, spent=1.0, prices=prices, rented=(), max_cost=total + 0.99)
    assert why.startswith("$1.00 are spent") and f"more than ${total + 0.99:.2f}" in why
    last = steps[-1:]
    assert find_cap(last, spent=2.0, prices=prices, rented=("acceptance-x",), max_cost=2.001), "what still exists costs"
