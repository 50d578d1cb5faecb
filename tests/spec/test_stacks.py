"""Which engine, device and software each machine gets, and why: the rule as a table."""

from __future__ import annotations

import click
import pytest

from orchestrator.catalog.accelerators import resolve_local, resolve_own, resolve_rented
from orchestrator.cli.train import train
from orchestrator.spec.errors import FormError
from orchestrator.spec.stacks import BACKENDS, Asked, backends, choose, stand_in

RULE = [
    # machine, asked for -> engine, device, scripts
    ("v5e-16", Asked(), ("jax", "tpu", "jax")),
    ("v4-32", Asked(backend="jax"), ("jax", "tpu", "jax")),
    ("v5e-8", Asked(backend="xla"), ("torch", "xla", "xla")),
    ("v6e-8", Asked(backend="tpu"), ("torch", "tpu", "tpu")),
    ("v6e-8", Asked(engine="torch"), ("torch", "tpu", "tpu")),
    ("v6e-8", Asked(engine="torch", device="xla"), ("torch", "xla", "xla")),
    ("v6e-8", Asked(device="cpu"), ("torch", "cpu", "cpu")),
    ("Trainium:16", Asked(), ("jax", "neuron", "jax")),
    ("Trainium:16", Asked(engine="torch"), ("torch", "xla", "neuron")),
    ("Trainium:16", Asked(backend="neuron"), ("torch", "xla", "neuron")),
    ("Trainium:16", Asked(framework="torch"), ("torch", "xla", "neuron")),
    ("Trainium2:16", Asked(), ("torch", "neuron", "neuron")),
    ("Trainium2:16", Asked(framework="jax"), ("jax", "neuron", "jax")),
    ("H100:8", Asked(), ("torch", "cuda", "cuda")),
    ("H100:8", Asked(engine="jax"), ("jax", "cuda", "jax")),
    ("H100:8", Asked(backend="cpu"), ("torch", "cpu", "cpu")),
]


@pytest.mark.parametrize(("name", "asked", "expected"), RULE, ids=[f"{name} {asked}" for name, asked, _ in RULE])
def test_the_rule(name: str, asked: Asked, expected: tuple[str, str, str]) -> None:
    stack = choose(resolve_rented(name), asked)
    assert (stack.engine, stack.device, stack.backend) == expected


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("v5e-8", Asked(backend="xla", engine="jax"), "exclude each other"),
        ("H100:8", Asked(backend="cuda", device="cpu"), "exclude each other"),
        ("v5e-8", Asked(backend="cuda"), "cannot drive v5litepod-8"),
        ("Trainium2:16", Asked(backend="xla"), "cannot drive"),
        ("H100:8", Asked(device="tpu"), "`device=tpu` cannot drive"),
    ],
)
def test_what_cannot_be_is_refused(name: str, asked: Asked, said: str) -> None:
    with pytest.raises(FormError, match=said):
        choose(resolve_rented(name), asked)


def test_every_word_is_possible_somewhere_and_no_other_is() -> None:
    machines = [resolve_rented(name) for name in ("v5e-8", "Trainium:16", "Trainium2:16", "H100:8")]
    words = {word for machine in (*machines, resolve_local("2"), resolve_own("cpu")) for word in backends(machine)}
    assert words == set(BACKENDS) - {"auto"}


def test_a_stand_in_trains_on_the_processor_and_keeps_the_engine_that_was_asked_for() -> None:
    machine = resolve_rented("v5e-8")
    assert stand_in(machine, Asked()).engine == "torch"
    for asked in (Asked(engine="jax"), Asked(backend="jax")):
        assert (stand_in(machine, asked).engine, stand_in(machine, asked).device) == ("jax", "cpu")
    with pytest.raises(FormError):
        stand_in(machine, Asked(backend="cuda"))
    assert choose(resolve_local("2"), Asked(engine="jax")).device == "cpu"


def test_the_reason_can_be_read() -> None:
    words = str(choose(resolve_rented("v5e-8"), Asked()))
    assert words.startswith("engine=jax device=tpu, JAX 0.10: ")


def test_the_command_line_knows_the_same_words() -> None:
    (option,) = [param for param in train.params if param.name == "backend"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == BACKENDS
