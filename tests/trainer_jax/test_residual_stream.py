"""`residual=bf16`: half the bytes between blocks, the same learning, in both engines; refused with fp32 products."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from jax_cases import jax_engine, run, settings, torch_engine

from trainer.arithmetic import resolve_arithmetic
from trainer.config import Config
from trainer.errors import ConfigError
from trainer.jax_engine.grid import arrange_devices
from trainer.jax_engine.library import jax
from trainer.jax_engine.model import compute_loss
from trainer.jax_engine.step import build_step
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh

pytestmark = pytest.mark.jax
TOLERANCE = 1e-2  # of losses, as of bf16 products against those in fp32


@pytest.mark.parametrize("model", ["", "model.experts=4 model.experts_per_token=2"])
def test_losses_equal_those_of_an_fp32_stream_within_the_tolerance(model: str) -> None:
    steps, rate = 12, 3e-3
    losses: dict[str, list[float]] = {}
    for name, words in (
        ("jax", f"dtype=bf16 residual=bf16 {model}"),
        ("torch", f"dtype=bf16 residual=bf16 {model}"),
        ("fp32 stream", f"dtype=bf16 {model}"),
    ):
        engine = (torch_engine if name == "torch" else jax_engine)(words)
        losses[name] = [loss for loss, _ in run(engine, words, steps, rate=rate)]
        engine.close()
    for name in ("jax", "torch"):
        np.testing.assert_allclose(losses[name], losses["fp32 stream"], rtol=TOLERANCE)
        assert losses[name] != losses["fp32 stream"]
        assert losses[name][-1] < 0.97 * losses[name][0]


def test_the_plan_counts_the_bytes_that_it_saves() -> None:
    base = settings("model.dim=64 model.layers=3 model.ffn=192 seq_len=64 dtype=bf16 engine=jax remat=full")
    kept: list[int] = []
    counted: list[int] = []
    for residual in ("fp32", "bf16"):
        config = dataclasses.replace(base, residual=residual)
        step = build_step(config, Mesh(), arrange_devices(jax.devices()[:1], Mesh()))
        weights = {name.removeprefix("model/"): of for name, of in step.evaluation_arguments[0].items()}
        rows, angles = step.arguments[1:3]

        def keep(weights: Any, rows: Any, angles: Any, recipe: Any = step.recipe) -> Any:
            def compute(weights: Any) -> Any:
                return compute_loss(recipe, weights, rows[0], angles)

            return jax.vjp(compute, weights)[1]

        leaves = jax.tree.leaves(jax.eval_shape(keep, weights, rows, angles))
        kept.append(sum(leaf.size * leaf.dtype.itemsize for leaf in leaves))
        counted.append(estimate_memory(config, Mesh(), "jax").activations)
    saved, expected = kept[0] - kept[1], counted[0] - counted[1]
    assert saved == expected == counted[0] / 2


def test_without_a_compiler_torch_keeps_what_its_norms_convert() -> None:
    plain, compiled = (settings(f"dtype=bf16 engine=torch remat=none compile={word}") for word in ("false", "true"))

    def saved(config: Config) -> int:
        narrow = dataclasses.replace(config, residual="bf16")
        before, after = (estimate_memory(each, Mesh(), "torch").activations for each in (config, narrow))
        return before - after

    assert saved(plain) == 0 < saved(compiled)


def test_products_in_fp32_refuse_it() -> None:
    config = settings("residual=bf16")
    with pytest.raises(ConfigError, match="dtype=bf16, or residual=fp32"):
        resolve_arithmetic(config, "cpu")
    assert resolve_arithmetic(config, "tpu").dtype == "bf16"
