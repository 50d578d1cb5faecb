"""LoRA in the JAX engine: the losses and adapters of the torch engine on every mesh, and each other's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from jax_cases import give, jax_engine, run, state_of, torch_engine

from trainer.engine import FloatArray

pytestmark = [pytest.mark.jax]

WORDS = "lora.rank=4 model.qkv_bias=true model.qk_norm=true model.tied=false"
Outcome = tuple[list[tuple[float, float]], Mapping[str, FloatArray]]


@pytest.fixture(scope="module")
def by_torch() -> Outcome:
    engine = torch_engine(WORDS)
    return run(engine, WORDS), state_of(engine)


@pytest.mark.parametrize(
    ("words", "devices"),
    [("", 1), ("mesh.fsdp=2 mesh.tensor=2", 4), ("mesh.data=2 mesh.fsdp=2 accumulate=2 remat=full", 4)],
)
def test_adapters_are_those_of_the_torch_engine(by_torch: Outcome, words: str, devices: int) -> None:
    losses, expected = by_torch
    engine = jax_engine(f"{WORDS} {words}", devices)
    np.testing.assert_allclose(run(engine, f"{WORDS} {words}"), losses, atol=2e-5)
    state = state_of(engine)
    assert state.keys() == expected.keys()
    for name, values in state.items():
        np.testing.assert_allclose(values, expected[name], atol=5e-5, err_msg=name)


def test_a_state_with_adapters_is_continued_by_the_other_engine(by_torch: Outcome) -> None:
    words = f"{WORDS} mesh.fsdp=2"
    engine, other = jax_engine(words, 2), torch_engine(WORDS)
    give(engine, by_torch[1])
    give(other, by_torch[1])
    np.testing.assert_allclose(run(engine, words, 2, 4), run(other, WORDS, 2, 4), atol=2e-5)


def test_the_compiled_step_computes_no_gradient_of_a_frozen_weight() -> None:
    """Only adapters are summed over devices, and the program has a third fewer FLOPs."""
    words = "lora.rank=1 lora.targets=query mesh.fsdp=2 model.ffn=96"
    adapted, whole = (jax_engine(one, 2)._step for one in (words, "mesh.fsdp=2 model.ffn=96"))
    texts = [step.function.lower(*step.arguments).compile() for step in (adapted, whole)]
    scattered, as_usual = (text.as_text().count("reduce-scatter(") for text in texts)
    assert scattered == 0 < as_usual
    flops = [text.cost_analysis()["flops"] for text in texts]
    assert flops[0] < 0.8 * flops[1]
