"""The decoder-only transformer as pure functions of its weights; shape/architecture.py lists the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jax import Array

from trainer.config import Config, ModelConfig
from trainer.jax_engine.arithmetic import (
    Arithmetic,
    copy_to_tensor_axis,
    gather_vector,
    matmul,
    reduce_from_tensor_axis,
)
from trainer.jax_engine.attention import Kernel, attend
from trainer.jax_engine.library import jax, jnp, lax
from trainer.jax_engine.vocabulary import compute_loss_sum, look_up_tokens

_BLOCKS = "blocks."
EVERY_BLOCK = "blocks.*."
"""Prefix of the names of stacked weights, which have a leading dimension for the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is fixed about the model when it is compiled.

    Attributes:
        model: Its sizes.
        arithmetic: Type of the products, and the mesh.
        kernel: Of attention.
        scanned: Whether the blocks are scanned.
        remat: Whether blocks are recomputed in the backward pass.
        scale: Of each token in the loss.
    """

    model: ModelConfig
    arithmetic: Arithmetic
    kernel: Kernel
    scanned: bool
    remat: bool
    scale: float


def compute_loss(recipe: Recipe, weights: Mapping[str, Array], rows: Array, angles: Array) -> Array:
    """Return `recipe.scale` times the summed loss, in nats, of all tokens of this device's rows.

    Args:
        recipe: The model.
        weights: This device's shards by name.
        rows: Shape (rows, seq_len + 1).
        angles: See `make_rotary_table`.
    """
    arithmetic = recipe.arithmetic
    x = look_up_tokens(arithmetic, weights["embedding.weight"], rows[:, :-1])
    x = _blocks(recipe, weights, x, angles)
    x = norm(recipe, weights["norm.weight"], x)
    head = weights["embedding.weight" if recipe.model.tied else "head.weight"]
    return compute_loss_sum(arithmetic, recipe.scale, x, head, rows[:, 1:])


def _blocks(recipe: Recipe, weights: Mapping[str, Array], x: Array, angles: Array) -> Array:
    def block(x: Array, own: Mapping[str, Array]) -> Array:
        x = x + _attention(recipe, own, norm(recipe, own["attention_norm.weight"], x), angles)
        return x + _feed_forward(recipe, own, norm(recipe, own["ffn_norm.weight"], x))

    # Inside a scan nothing can be merged with the forward pass, so no barrier against it is needed.
    once: Callable[[Array, Mapping[str, Array]], Array] = (
        jax.checkpoint(block, prevent_cse=not recipe.scanned) if recipe.remat else block
    )
    if recipe.scanned:
        stacked = {
            name.removeprefix(EVERY_BLOCK): value for name, value in weights.items() if name.startswith(EVERY_BLOCK)
        }

        def scan_body(x: Array, own: Mapping[str, Array]) -> tuple[Array, None]:
            return once(x, own), None

        result: Array = lax.scan(scan_body, x, stacked)[0]
        return result
    for layer in range(recipe.model.layers):
        prefix = f"{_BLOCKS}{layer}."
        x = once(x, {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)})
    return x


def _attention(recipe: Recipe, own: Mapping[str, Array], x: Array, angles: Array) -> Array:
    arithmetic, width = recipe.arithmetic, recipe.model.head_dim
    x = copy_to_tensor_axis(arithmetic, x)
    query, key, value = (
        matmul(arithmetic, 1, x, own[f"attention.{part}.weight"]).reshape(*x.shape[:2], -1, width)
        for part in ("query", "key", "value")
    )
    mixed = attend(arithmetic, recipe.kernel, apply_rotary(query, angles), apply_rotary(key, angles), value)
    return reduce_from_tensor_axis(
        arithmetic, matmul(arithmetic, 0, mixed.reshape(*x.shape[:2], -1), own["attention.out.weight"])
    )


def _feed_forward(recipe: Recipe, own: Mapping[str, Array], x: Array) -> Array:
    arithmetic = recipe.arithmetic
    x = copy_to_tensor_axis(arithmetic, x)
    gate = matmul(arithmetic, 1, x, own["ffn.gate.weight"])
    up = matmul(arithmetic, 1, x, own["ffn.up.weight"])
    mixed = _rematerialize(recipe, lambda gate, up: jax.nn.silu(gate) * up)(gate, up)
    return reduce_from_tensor_axis(arithmetic, matmul(arithmetic, 0, mixed, own["ffn.down.weight"]))


def norm(recipe: Recipe, weight: Array, x: Array) -> Array:
    """Apply RMS norm in fp32; the result has the products' type."""

    def scaled(x: Array, weight: Array) -> Array:
        size = lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + recipe.model.norm_eps)
        result: Array = x * size * weight
        return result.astype(recipe.arithmetic.type)

    return _rematerialize(recipe, scaled)(x, gather_vector(recipe.arithmetic, weight))


def _rematerialize(recipe: Recipe, function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Recompute elementwise work in a scan, which would keep its results for every layer; it is cheap.

    300m without remat on v5e 2x4: 7.7 GiB within a step instead of 13.9.
    """
    return jax.checkpoint(function, prevent_cse=False) if recipe.scanned else function


def make_rotary_table(config: Config) -> npt.NDArray[np.float32]:
    """Return cosine and sine of each position's angles, shape (2, seq_len, head_dim / 2)."""
    width = config.model.head_dim
    rates = config.model.rope_theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    angles = np.outer(np.arange(config.seq_len, dtype=np.float64), rates)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def apply_rotary(x: Array, angles: Array) -> Array:
    """Rotate each pair (x_i, x_{i + half}) in fp32; x has shape (rows, length, heads, head_dim)."""
    cosine, sine = angles[:, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)
    result: Array = turned.astype(x.dtype)
    return result
