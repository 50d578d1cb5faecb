"""mismatches(): a run that did as planned has none, and every way to differ is named."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from plan_samples import CLEAR, plan

from orchestrator.plan.actions import Action, Conclude, CreateSlice, RunSetup, StartJob, SyncTree
from orchestrator.plan.compare import MOST_RANKS, find_mismatches
from orchestrator.plan.environment import HostEnvironment
from orchestrator.slices import Request
from orchestrator.values import Secret, Text, Unknown


def real(action: Action) -> Action:
    """The same action as a run would have it: every unknown is known."""
    match action:
        case CreateSlice():
            token = Text.of("uid-7-1")
            labels = tuple(
                (name, Text.of("uid-7-1") if not value.is_known else value) for name, value in action.spec.labels
            )
            body = {"token": token, "labels": dict(labels), "host_keys": [Text.of(f"k{n}") for n in range(3)]}
            spec = replace(action.spec, token=token, labels=labels)
            return replace(action, spec=spec, request=replace(action.request, body=body))
        case RunSetup() | StartJob():
            return replace(action, environment=known(action.environment))
        case _:
            return action


def known(environment: HostEnvironment) -> HostEnvironment:
    common = tuple((name, value if value.is_known else Text.of("run-7")) for name, value in environment.common)
    ips = tuple(Text.of(f"10.0.0.{rank}") for rank in range(len(environment.internal_ips)))
    return replace(environment, common=common, internal_ips=ips, task_id=Text.of("run-7"))


OTHER_BODY = Request(service="sample", method="POST", target="/slices/demo-1", body={"token": Text.of("uid-7-1")})
PLANNED = plan(4).actions
REAL = tuple(real(action) for action in PLANNED)


def at(kind: type[Action]) -> int:
    return next(index for index, action in enumerate(REAL) if isinstance(action, kind))


def test_a_run_that_did_as_planned_has_no_mismatch() -> None:
    assert find_mismatches(PLANNED, REAL) == []
    assert find_mismatches(plan(200).actions, tuple(real(action) for action in plan(200).actions)) == []


def test_a_missing_and_an_extra_action_are_named() -> None:
    assert find_mismatches(PLANNED, REAL[:-1]) == [f"action {len(REAL)}: ForgetSlice is only in the plan"]
    assert find_mismatches(PLANNED[:-1], REAL) == [f"action {len(REAL)}: ForgetSlice is only in the run"]


def changed(kind: type[Action], **changes: object) -> list[str]:
    index = at(kind)
    other = replace(REAL[index], **changes)  # type: ignore[arg-type]  # field values by name
    return find_mismatches(PLANNED, (*REAL[:index], other, *REAL[index + 1 :]))


def environment_with(**changes: object) -> HostEnvironment:
    start = REAL[at(StartJob)]
    assert isinstance(start, StartJob)
    return replace(start.environment, **changes)  # type: ignore[arg-type]  # field values by name


def common_with(name: str, value: Text) -> HostEnvironment:
    pairs = tuple((key, value if key == name else old) for key, old in environment_with().common)
    return environment_with(common=pairs)


@pytest.mark.parametrize(
    ("found", "where"),
    [
        (lambda: changed(SyncTree, ranks=(0, 1, 2)), "SyncTree.ranks"),
        (lambda: changed(SyncTree, digest="other"), "SyncTree.digest"),
        (lambda: changed(RunSetup, script=Text.of("other")), "RunSetup.script"),
        (lambda: changed(StartJob, attempt=2), "StartJob.attempt"),
        (lambda: changed(Conclude, status=True), "Conclude.status"),
        (lambda: changed(StartJob, environment=common_with("LR", Text.of("2"))), "of rank 3"),
        (
            lambda: changed(StartJob, environment=common_with("HF_TOKEN", Text.of(CLEAR))),
            "secrets ['HF_TOKEN'] became []",
        ),
        (
            lambda: changed(StartJob, environment=common_with("HF_TOKEN", Text.of(Secret("HF_TOKEN", "o")))),
            "environment",
        ),
        (lambda: changed(StartJob, environment=environment_with(port=1)), ".port"),
        (lambda: changed(StartJob, environment=environment_with(internal_ips=(Text.of("a"),))), "4 items became 1"),
        (lambda: changed(StartJob, environment=environment_with(task_id=Text.of(Unknown("x")))), "still unknown"),
        (lambda: changed(CreateSlice, request=OTHER_BODY), "only in the plan"),
    ],
)
def test_every_way_to_differ_is_named(found: object, where: str) -> None:
    assert callable(found)
    messages = "\n".join(found())
    assert where in messages
    assert CLEAR not in messages


def test_the_environment_of_a_large_slice_is_compared_on_its_first_and_its_last_host() -> None:
    other = Text.of("2")
    small = find_mismatches(PLANNED, tuple(with_learning_rate(action, other) for action in REAL))
    assert list_ranks(small) == [0, 1, 2, 3]
    large = plan(MOST_RANKS + 1).actions
    found = find_mismatches(large, tuple(with_learning_rate(real(action), other) for action in large))
    assert list_ranks(found) == [0, MOST_RANKS]


def with_learning_rate(action: Action, value: Text) -> Action:
    """Return an action; the start of a job with another value of LR."""
    if not isinstance(action, StartJob):
        return action
    pairs = tuple((name, value if name == "LR" else old) for name, old in action.environment.common)
    return replace(action, environment=replace(action.environment, common=pairs))


def list_ranks(messages: list[str]) -> list[int]:
    """Return the ranks that messages about environments name, in order."""
    return [int(match[1]) for message in messages if (match := re.search(r"environment of rank (\d+)", message))]


def test_a_known_part_beside_an_unknown_one_must_be_the_same() -> None:
    index = at(CreateSlice)
    create = REAL[index]
    assert isinstance(create, CreateSlice)
    other = replace(create, spec=replace(create.spec, token=Text.of("uid-7-2")))
    assert [line for line in find_mismatches(PLANNED, (other, *REAL[1:])) if "token" in line]


def test_a_port_that_the_plan_names_as_unknown_must_be_known_in_the_run() -> None:
    index = at(StartJob)
    start, later = REAL[index], Unknown("known later")
    assert isinstance(start, StartJob)
    planned = replace(start, environment=environment_with(port=later))
    assert find_mismatches([planned], [start]) == []
    assert any("port: still unknown" in line for line in find_mismatches([planned], [planned]))
    assert find_mismatches([start], [planned])


def test_another_kind_of_action_is_a_mismatch() -> None:
    assert find_mismatches(PLANNED[:1], REAL[1:2])
    assert find_mismatches((), ()) == []
