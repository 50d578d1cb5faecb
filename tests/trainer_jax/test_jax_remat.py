"""What each level of `remat` keeps in the JAX engine, and its traffic, as the plan counts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from jax_cases import settings

from trainer.config import RematLevel
from trainer.jax_engine.ahead_of_time import count_collectives
from trainer.jax_engine.grid import arrange_devices
from trainer.jax_engine.leaves import list_weights
from trainer.jax_engine.library import jax
from trainer.jax_engine.model import Recipe, compute_loss
from trainer.jax_engine.step import build_step
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic

LEVELS: tuple[RematLevel, ...] = ("none", "selective", "full")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_is_kept_for_the_backward_pass_is_what_the_plan_counts(dtype: str) -> None:
    base = settings(f"model.dim=64 model.layers=3 model.ffn=192 seq_len=64 dtype={dtype} engine=jax")
    grid = arrange_devices(jax.devices()[:1], Mesh())
    found: list[int] = []
    for level in LEVELS:
        step = build_step(dataclasses.replace(base, remat=level), Mesh(), grid)
        weights = {weight.name: step.arguments[0][f"model/{weight.name}"] for weight in list_weights(base.model, False)}
        rows, angles = step.arguments[1:3]

        def keep(weights: Mapping[str, Any], rows: Any, angles: Any, recipe: Recipe = step.recipe) -> Any:
            def compute(weights: Mapping[str, Any]) -> Any:
                return compute_loss(recipe, weights, rows[0], angles)

            return jax.vjp(compute, weights)[1]

        kept = jax.tree.leaves(jax.eval_shape(keep, weights, rows, angles))
        found.append(sum(leaf.size * leaf.dtype.itemsize for leaf in kept))
    count = [estimate_memory(dataclasses.replace(base, remat=level), Mesh(), "jax").activations for level in LEVELS]
    assert found[0] > found[1] > found[2]
    assert found[1] - found[2] == pytest.approx(count[1] - count[2], rel=0.2)


@pytest.mark.parametrize("mesh", [Mesh(1, 4), Mesh(1, 2, 2), Mesh(1, 2, 1, 2)], ids=repr)
def test_the_plan_counts_the_traffic_of_the_traced_program(mesh: Mesh) -> None:
    base = settings("model.dim=64 dtype=bf16 engine=jax model.vocab=512 seq_len=64")
    grid = arrange_devices(jax.devices()[: mesh.devices], mesh)
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    for level in LEVELS:
        config = dataclasses.replace(base, remat=level)
        step = build_step(config, mesh, grid)
        sent = {"fsdp": 0.0, "tensor": 0.0}
        passed = 0.0
        for one in count_collectives(step.function.trace(*step.arguments).jaxpr.jaxpr, sizes):
            if one.kind == "collective-permute":  # keys and values, and their gradients
                passed += one.bytes
            elif one.axes in sent:  # the last sum, of three numbers, is over both
                n = sizes[one.axes]
                rings = {"all-gather": n - 1, "reduce-scatter": (n - 1) / n, "all-reduce": 2 * (n - 1) / n}
                sent[one.axes] += one.bytes * rings[one.kind]
        planned = Traffic.of(config, mesh)
        assert planned.fsdp == pytest.approx(sent["fsdp"], rel=0.02), level
        assert planned.tensor == pytest.approx(sent["tensor"], rel=0.02), level
        assert planned.context == passed, level
