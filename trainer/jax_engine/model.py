"""The decoder-only transformer as pure functions of its weights; see shape/architecture.py for the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jax import Array

from trainer.config import Config, ModelConfig
from trainer.jax_engine.arithmetic import Arithmetic, enter, leave, product, vector
from trainer.jax_engine.attention import Kernel, attend
from trainer.jax_engine.library import jax, jnp, lax
from trainer.jax_engine.vocabulary import look_up, loss_sum

_BLOCKS = "blocks."
EVERY = "blocks.*."
"""Begins the name of weights that are stacked: one more dimension in front, the layer."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything about the model that is fixed when it is compiled. scale: of each token in the loss."""

    model: ModelConfig
    arithmetic: Arithmetic
    kernel: Kernel
    scanned: bool
    remat: bool
    scale: float


def loss_of(recipe: Recipe, weights: Mapping[str, Array], rows: Array, angles: Array) -> Array:
    """`recipe.scale` times the sum of the nats of all tokens of this device's rows, (rows, seq_len + 1).

    weights: by name, this device's parts. angles: see `rotary`.
    """
    arithmetic = recipe.arithmetic
    x = look_up(arithmetic, weights["embedding.weight"], rows[:, :-1])
    x = _blocks(recipe, weights, x, angles)
    x = norm(recipe, weights["norm.weight"], x)
    head = weights["embedding.weight" if recipe.model.tied else "head.weight"]
    return loss_sum(arithmetic, recipe.scale, x, head, rows[:, 1:])


def _blocks(recipe: Recipe, weights: Mapping[str, Array], x: Array, angles: Array) -> Array:
    def block(x: Array, own: Mapping[str, Array]) -> Array:
        x = x + _attention(recipe, own, norm(recipe, own["attention_norm.weight"], x), angles)
        return x + _feed_forward(recipe, own, norm(recipe, own["ffn_norm.weight"], x))

    # Inside a scan nothing can be merged with the forward pass, so the barrier against that is left out.
    once: Callable[[Array, Mapping[str, Array]], Array] = (
        jax.checkpoint(block, prevent_cse=not recipe.scanned) if recipe.remat else block
    )
    if recipe.scanned:
        stacked = {name.removeprefix(EVERY): value for name, value in weights.items() if name.startswith(EVERY)}

        def turn(x: Array, own: Mapping[str, Array]) -> tuple[Array, None]:
            return once(x, own), None

        result: Array = lax.scan(turn, x, stacked)[0]
        return result
    for layer in range(recipe.model.layers):
        prefix = f"{_BLOCKS}{layer}."
        x = once(x, {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)})
    return x


def _attention(recipe: Recipe, own: Mapping[str, Array], x: Array, angles: Array) -> Array:
    arithmetic, width = recipe.arithmetic, recipe.model.head_dim
    x = enter(arithmetic, x)
    query, key, value = (
        product(arithmetic, 1, x, own[f"attention.{part}.weight"]).reshape(*x.shape[:2], -1, width)
        for part in ("query", "key", "value")
    )
    mixed = attend(arithmetic, recipe.kernel, rotate(query, angles), rotate(key, angles), value)
    return leave(arithmetic, product(arithmetic, 0, mixed.reshape(*x.shape[:2], -1), own["attention.out.weight"]))


def _feed_forward(recipe: Recipe, own: Mapping[str, Array], x: Array) -> Array:
    arithmetic = recipe.arithmetic
    x = enter(arithmetic, x)
    gate = product(arithmetic, 1, x, own["ffn.gate.weight"])
    up = product(arithmetic, 1, x, own["ffn.up.weight"])
    mixed = _again(recipe, lambda gate, up: jax.nn.silu(gate) * up)(gate, up)
    return leave(arithmetic, product(arithmetic, 0, mixed, own["ffn.down.weight"]))


def norm(recipe: Recipe, weight: Array, x: Array) -> Array:
    """Divide by the root of the mean square, in fp32; comes out in the products' type."""

    def scaled(x: Array, weight: Array) -> Array:
        size = lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + recipe.model.norm_eps)
        result: Array = x * size * weight
        return result.astype(recipe.arithmetic.type)

    return _again(recipe, scaled)(x, vector(recipe.arithmetic, weight))


def _again(recipe: Recipe, function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """In a scan the steps of elementwise work would be kept for every layer; computed again they cost next to nothing.

    300m without remat on v5e 2x4: 7.7 GiB within a step instead of 13.9.
    """
    return jax.checkpoint(function, prevent_cse=False) if recipe.scanned else function


def rotary(config: Config) -> npt.NDArray[np.float32]:
    """Cosine and sine of each position's angles: (2, seq_len, head_dim / 2)."""
    width = config.model.head_dim
    rates = config.model.rope_theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    angles = np.outer(np.arange(config.seq_len, dtype=np.float64), rates)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def rotate(x: Array, angles: Array) -> Array:
    """Turn each pair (x_i, x_{i + half}) by its angle, in fp32. x: (rows, length, heads, head_dim)."""
    cosine, sine = angles[:, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)
    result: Array = turned.astype(x.dtype)
    return result
