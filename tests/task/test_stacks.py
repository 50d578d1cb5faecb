"""Which engine, device and software each machine gets, and why: the rule as a table."""

from __future__ import annotations

import click
import pytest

from orchestrator.catalog.accelerators import resolve_local, resolve_own, resolve_rented
from orchestrator.cli.commands.run.train import train
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.stacks import BACKENDS, StackRequest, choose_stack, choose_stand_in_stack, list_backends

RULE = [
    # machine, chosen for -> engine, device, scripts
    ("v5e-16", StackRequest(), ("jax", "tpu", "jax")),
    ("v4-32", StackRequest(backend="jax"), ("jax", "tpu", "jax")),
    ("v5e-8", StackRequest(backend="xla"), ("torch", "xla", "xla")),
    ("v6e-8", StackRequest(backend="tpu"), ("torch", "tpu", "tpu")),
    ("v6e-8", StackRequest(engine="torch"), ("torch", "tpu", "tpu")),
    ("v6e-8", StackRequest(engine="torch", device="xla"), ("torch", "xla", "xla")),
    ("v6e-8", StackRequest(device="cpu"), ("torch", "cpu", "cpu")),
    ("Trainium:16", StackRequest(), ("jax", "neuron", "jax")),
    ("Trainium:16", StackRequest(engine="torch"), ("torch", "xla", "neuron")),
    ("Trainium:16", StackRequest(backend="neuron"), ("torch", "xla", "neuron")),
    ("Trainium:16", StackRequest(framework="torch"), ("torch", "xla", "neuron")),
    ("Trainium2:16", StackRequest(), ("torch", "neuron", "neuron")),
    ("Trainium2:16", StackRequest(framework="jax"), ("jax", "neuron", "jax")),
    ("H100:8", StackRequest(), ("torch", "cuda", "cuda")),
    ("H100:8", StackRequest(engine="jax"), ("jax", "cuda", "jax")),
    ("H100:8", StackRequest(backend="cpu"), ("torch", "cpu", "cpu")),
]


@pytest.mark.parametrize(("name", "chosen", "expected"), RULE, ids=[f"{name} {chosen}" for name, chosen, _ in RULE])
def test_the_rule(name: str, chosen: StackRequest, expected: tuple[str, str, str]) -> None:
    stack = choose_stack(resolve_rented(name), chosen)
    assert (stack.engine, stack.device, stack.backend) == expected


@pytest.mark.parametrize(
    ("name", "chosen", "said"),
    [
        ("v5e-8", StackRequest(backend="xla", engine="jax"), "exclude each other"),
        ("H100:8", StackRequest(backend="cuda", device="cpu"), "exclude each other"),
        ("v5e-8", StackRequest(backend="cuda"), "cannot drive v5litepod-8"),
        ("Trainium2:16", StackRequest(backend="xla"), "cannot drive"),
        ("H100:8", StackRequest(device="tpu"), "`device=tpu` cannot drive"),
    ],
)
def test_what_cannot_be_is_refused(name: str, chosen: StackRequest, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        choose_stack(resolve_rented(name), chosen)


def test_every_word_is_possible_somewhere_and_no_other_is() -> None:
    machines = [resolve_rented(name) for name in ("v5e-8", "Trainium:16", "Trainium2:16", "H100:8")]
    words = {word for machine in (*machines, resolve_local("2"), resolve_own("cpu")) for word in list_backends(machine)}
    assert words == set(BACKENDS) - {"auto"}


def test_a_stand_in_trains_on_the_processor_and_keeps_the_requested_engine() -> None:
    machine = resolve_rented("v5e-8")
    assert choose_stand_in_stack(machine, StackRequest()).engine == "torch"
    for chosen in (StackRequest(engine="jax"), StackRequest(backend="jax")):
        assert (choose_stand_in_stack(machine, chosen).engine, choose_stand_in_stack(machine, chosen).device) == (
            "jax",
            "cpu",
        )
    with pytest.raises(InvalidValueError):
        choose_stand_in_stack(machine, StackRequest(backend="cuda"))
    assert choose_stack(resolve_local("2"), StackRequest(engine="jax")).device == "cpu"


def test_the_reason_can_be_read() -> None:
    words = str(choose_stack(resolve_rented("v5e-8"), StackRequest()))
    assert words.startswith("engine=jax device=tpu, JAX 0.10: ")


def test_the_command_line_knows_the_same_words() -> None:
    (option,) = [param for param in train.params if param.name == "backend"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == BACKENDS
