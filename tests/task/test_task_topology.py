"""A generation and a topology in a task file: said aloud, kept in the record, refused with the nearest shape."""

from __future__ import annotations

import pytest

from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task
from orchestrator.task.parse import TaskFile, parse_task


def read(resources: str) -> TaskFile:
    return parse_task(f"resources: {{{resources}}}\nrun: x\n", file="t.yaml", env={})


SAME = [
    "accelerators: v4, accelerator_args: {topology: 2x2x4}",
    "accelerators: tpu-v4, accelerator_args: {topology: 2X2x4}",
    "accelerators: {tpu-v4: 1}, accelerator_args: {topology: 2x2x4}",
    "accelerators: v4-32, accelerator_args: {topology: 2x2x4}",
    "accelerators: 'v4:2x2x4'",
    "accelerators: 'v4:2x2x4', accelerator_args: {topology: 2x2x4}",
]


@pytest.mark.parametrize("resources", SAME)
def test_each_way_to_write_it_is_the_same_slice(resources: str) -> None:
    task = read(resources).only
    assert task.choices == read("accelerators: v4-32").only.choices
    assert Task.from_json(task.to_json()) == task


def test_what_was_understood_is_said() -> None:
    assert "`v4:2x2x4` is v4-32: 4 hosts with 4 chips each" in read(SAME[0]).notes


@pytest.mark.parametrize("infra", ["gcp", "local", "'local:v4-512:4x4x16'"])
def test_an_unusual_shape_is_requested_and_survives_the_record(infra: str) -> None:
    named = "" if ":" in infra else ", accelerators: v4"
    task = read(f"infra: {infra}{named}, accelerator_args: {{topology: 4x4x16}}").only
    assert task.choices[0].accelerator_args.topology == "4x4x16"
    assert task.choices[0].machine.hosts == 64
    assert Task.from_json(task.to_json()) == task


@pytest.mark.parametrize(
    ("resources", "what", "step"),
    [
        (
            "accelerators: v4, accelerator_args: {topology: 2x2x5}",
            "no slice of v4",
            "use 2x2x4 (v4-32) or 2x4x4 (v4-64)",
        ),
        ("accelerators: v4, accelerator_args: {topology: wide}", "`wide` is not a topology", "write one like 4x4"),
        ("accelerators: 'v4:2x2x2', accelerator_args: {topology: 2x2x4}", "exclude each other", "keep one of them"),
        ("accelerators: v4-32, accelerator_args: {topology: 2x2x2}", "has 16 chips", "write topology: 2x2x4"),
        ("accelerators: v4", "names a TPU generation and no size", "use v4-8"),
    ],
)
def test_what_cannot_be_names_the_way_out(resources: str, what: str, step: str) -> None:
    with pytest.raises(TaskError) as caught:
        read(resources)
    assert what in caught.value.what
    assert caught.value.next_step.startswith(step)
