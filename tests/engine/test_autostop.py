"""What `autostop` and the limits of a task make of its machines when they are idle, and how the plan says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.plan.actions import CreateSlice
from orchestrator.plan.desired import Run, TimerSpec
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.preview import render_head
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.aws import choices
from orchestrator.task.errors import TaskError
from orchestrator.task.parse import parse_task

EC2 = "infra: aws/us-east-1/us-east-1a, accelerators: H100:8"
VM = "infra: gcp/us-central1/us-central1-a, accelerators: L4:1"
TPU = "infra: gcp/us-west4/us-west4-a, accelerators"
STOPS = "the machines stop and keep their disks, which cost: `orch start`"
GOES = "the machines are deleted, disks included"


def plan_launch(resources: str, more: str = "") -> Plan:
    """Return the plan of a launch."""
    file = parse_task(f"run: echo\nresources: {{{resources}}}\n{more}\n", file="t.yaml", env={})
    ready = prepare_launch(file.only, cluster="mine", after=TeardownPolicy.KEEP)
    return make_plan(ready.desired, ready.recorded, ready.facts)


def prepare(resources: str, more: str = "") -> tuple[Run, str]:
    """Return what a launch asks for, and the head of its plan on one line."""
    plan = plan_launch(resources, more)
    assert isinstance(plan.desired, Run)
    return plan.desired, " ".join(render_head(plan, width=100).split())


def timer_of(run: Run) -> TimerSpec:
    assert run.timer is not None
    return run.timer


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))


@pytest.mark.parametrize("place", [EC2, VM, f"{TPU}: v5litepod-4"])
def test_autostop_stops_machines_that_can_be_stopped(place: str) -> None:
    run, head = prepare(f"{place}, autostop: 30")
    assert timer_of(run).stops and timer_of(run).idle_minutes == 30
    assert f"after 30 min without a job {STOPS}; until then they stay (and cost), or until `orch down`" in head


@pytest.mark.parametrize(
    ("resources", "more"),
    [
        (f"{EC2}, autostop: {{idle_minutes: 30, down: true}}", ""),
        (f"{VM}, autostop: {{idle_minutes: 30, down: true}}", ""),
        (f"{EC2}, autostop: 30, use_spot: true", ""),
        (f"{VM}, autostop: 30, use_spot: true", ""),
        (f"{TPU}: v5litepod-4, autostop: 30, use_spot: true", ""),
        (f"{TPU}: v5litepod-16, autostop: 30", ""),
        (f"{VM}, autostop: 30", "num_nodes: 2"),
        (f"{EC2}, autostop: 30, use_spot: true", "recovery: {on_demand_fallback: true}"),
        ("any_of: [{infra: aws, accelerators: 'H100:8'}, {infra: gcp, accelerators: v5litepod-16}], autostop: 30", ""),
        (EC2, "limits: {idle_minutes: 30}"),
    ],
)
def test_machines_are_deleted_where_the_task_says_so_or_stopping_is_impossible(resources: str, more: str) -> None:
    run, head = prepare(resources, more)
    assert not timer_of(run).stops and f"after 30 min without a job {GOES}" in head
    assert all(choices.read(one).keeps_disk is False for one in run.candidates if one.provider == "aws")


def test_a_machine_of_ec2_stops_when_it_switches_itself_off_only_with_autostop() -> None:
    for words, behaviour in ((f"{EC2}, autostop: 30", "stop"), (EC2, "terminate")):
        create = next(one for one in plan_launch(words).actions if isinstance(one, CreateSlice))
        assert create.request.body["InstanceInitiatedShutdownBehavior"] == behaviour


def test_the_head_says_that_hosts_of_ec2_with_autostop_only_stop_at_their_limit() -> None:
    limit = "limits: {max_hours: 12}"
    assert "without orch the hosts stop then, and keep their disks" in prepare(f"{EC2}, autostop: 30", limit)[1]
    for words in (EC2, f"{VM}, autostop: 30"):
        assert "the hosts enforce this too, without orch" in prepare(words, limit)[1]


def test_the_head_says_how_long_machines_without_autostop_stay() -> None:
    assert "afterwards the machines stay (and cost) until `orch down`" in prepare(EC2)[1]
    head = prepare(EC2, "limits: {max_hours: 12}")[1]
    assert "afterwards the machines stay (and cost) until `orch down` or a limit" in head


@pytest.mark.parametrize(
    ("resources", "more", "name"),
    [
        ("infra: local, autostop: 30", "", "resources.autostop"),
        ("infra: local", "limits: {idle_minutes: 30}", "limits.idle_minutes"),
        (
            "infra: hosts, accelerators: cpu",
            "limits: {idle_minutes: 30}\nhosts: {addresses: [a]}",
            "limits.idle_minutes",
        ),
        ("infra: hosts, accelerators: cpu, autostop: 30", "hosts: {addresses: [a]}", "resources.autostop"),
    ],
)
def test_an_idle_limit_of_machines_that_orch_never_ends_is_refused_by_name(
    resources: str, more: str, name: str
) -> None:
    parsed = parse_task(f"name: mine\nresources: {{{resources}}}\n{more}\nrun: 'true'\n", file="t.yaml", env={}).only
    refused = prepare_launch(parsed, cluster="mine", after=TeardownPolicy.KEEP).refused
    assert refused is not None and f"`{name}` is not served on infra:" in refused.what
    assert "--down" in refused.next_step
    assert prepare_launch(parsed, cluster="mine", after=TeardownPolicy.DOWN).refused is None


def test_only_jobs_keep_a_machine_awake_with_wait_for_jobs() -> None:
    for word in ("jobs", "jobs_and_ssh"):
        run, _ = prepare(f"{EC2}, autostop: {{wait_for: {word}}}")
        assert f"\nwait_for={word}\n" in timer_of(run).script.reveal()


def test_wait_for_none_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="`wait_for: none` is not served") as caught:
        prepare(f"{EC2}, autostop: {{wait_for: none}}")
    assert "max_hours" in caught.value.next_step
