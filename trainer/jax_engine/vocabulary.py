"""Both ends of the model, where it meets the vocabulary: looking tokens up, and the loss over all of them.

The vocabulary is divided over the tensor axis. The loss makes its gradients in the forward pass, a part of the sequence
at a time, so logits never exist all at once and are never computed twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from trainer.jax_engine.arithmetic import TENSOR, Arithmetic, dot, gathered, over_tensor, scattered
from trainer.jax_engine.library import jax, jnp, lax
from trainer.shape.limits import LOGITS_BYTES


def look_up(arithmetic: Arithmetic, table: Array, tokens: Array) -> Array:
    """table: this device's part of the (vocabulary, dim) embedding. tokens: (rows, length). Returns (rows, length, dim)
    in fp32."""
    result: Array = _differentiable_look_up(arithmetic, table, tokens)
    return result


def _look_up(arithmetic: Arithmetic, table: Array, tokens: Array) -> Array:
    # Gathered in fp32: the values go into the residual stream, which is fp32, and are no factors of a product.
    whole = gathered(arithmetic, table, 1)
    if arithmetic.mesh.tensor == 1:
        return whole[tokens]
    local, inside = _local(tokens, table.shape[0])
    return over_tensor(arithmetic, jnp.where(inside[..., None], whole[local], 0.0))


def _look_up_forward(arithmetic: Arithmetic, table: Array, tokens: Array) -> tuple[Array, tuple[Array, Array]]:
    return _look_up(arithmetic, table, tokens), (table, tokens)


def _look_up_backward(
    arithmetic: Arithmetic, kept: tuple[Array, Array], slope: Array
) -> tuple[Array, np.ndarray[Any, Any]]:
    table, tokens = kept
    words = table.shape[0]
    whole = jnp.zeros((words, slope.shape[-1]), jnp.float32)
    local = tokens
    if arithmetic.mesh.tensor > 1:
        local, inside = _local(tokens, words)
        slope = jnp.where(inside[..., None], slope, 0.0)
    whole = whole.at[local].add(slope)
    return scattered(arithmetic, whole, 1), np.zeros(tokens.shape, jax.dtypes.float0)


_differentiable_look_up: Any = jax.custom_vjp(_look_up, nondiff_argnums=(0,))
_differentiable_look_up.defvjp(_look_up_forward, _look_up_backward)


def loss_sum(arithmetic: Arithmetic, scale: float, x: Array, head: Array, targets: Array) -> Array:
    """`scale` times the sum of the nats of each target. x: (rows, length, dim), the same over the tensor axis. head:
    this device's part of the (vocabulary, dim) matrix. targets: (rows, length). Returns a scalar in fp32."""
    result: Array = _differentiable_loss(arithmetic, scale, x, head, targets)
    return result


def _loss_only(arithmetic: Arithmetic, scale: float, x: Array, head: Array, targets: Array) -> Array:
    return _loss(arithmetic, scale, x, head, targets)[0]


def _loss_forward(
    arithmetic: Arithmetic, scale: float, x: Array, head: Array, targets: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    loss, by_x, by_head = _loss(arithmetic, scale, x, head, targets)
    return loss, (by_x, by_head, targets)


def _loss_backward(
    arithmetic: Arithmetic, scale: float, kept: tuple[Array, Array, Array], slope: Array
) -> tuple[Array, Array, np.ndarray[Any, Any]]:
    by_x, by_head, targets = kept
    return by_x * slope.astype(by_x.dtype), by_head * slope, np.zeros(targets.shape, jax.dtypes.float0)


_differentiable_loss: Any = jax.custom_vjp(_loss_only, nondiff_argnums=(0, 1))
_differentiable_loss.defvjp(_loss_forward, _loss_backward)


def _loss(arithmetic: Arithmetic, scale: float, x: Array, head: Array, targets: Array) -> tuple[Array, Array, Array]:
    """The loss and its gradients by x and by head."""
    whole = gathered(arithmetic, head.astype(arithmetic.type), 1)
    rows, length, _ = x.shape
    parts = chunks(rows, length, head.shape[0])
    if parts == 1:
        loss, by_x, by_whole = _chunk(arithmetic, scale, whole, x, targets)
        return loss, by_x, scattered(arithmetic, by_whole, 1)

    def body(carry: tuple[Array, Array], at: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        loss, by_x, by_whole = _chunk(arithmetic, scale, whole, *at)
        return (carry[0] + loss, carry[1] + by_whole), by_x

    start = (jnp.zeros((), jnp.float32), jnp.zeros(whole.shape, jnp.float32))
    (loss, by_whole), by_x = lax.scan(body, start, (_split(x, parts), _split(targets, parts)))
    return loss, jnp.moveaxis(by_x, 0, 1).reshape(x.shape), scattered(arithmetic, by_whole, 1)


def _chunk(arithmetic: Arithmetic, scale: float, head: Array, x: Array, targets: Array) -> tuple[Array, Array, Array]:
    low = x.astype(arithmetic.type)
    logits = dot(arithmetic, low, head, ((2,), (1,)), jnp.float32)
    top = logits.max(axis=-1, keepdims=True)
    if arithmetic.mesh.tensor > 1:
        top = lax.pmax(top, TENSOR)
    exponents = jnp.exp(logits - top)
    total = over_tensor(arithmetic, exponents.sum(axis=-1, keepdims=True))
    local, inside = _local(targets, head.shape[0]) if arithmetic.mesh.tensor > 1 else (targets, None)
    picked = jnp.take_along_axis(logits, local[..., None], axis=-1)
    if inside is not None:
        picked = over_tensor(arithmetic, jnp.where(inside[..., None], picked, 0.0))
    loss = scale * (top + jnp.log(total) - picked).sum()
    is_target = lax.broadcasted_iota(jnp.int32, logits.shape, 2) == local[..., None]
    if inside is not None:
        is_target = is_target & inside[..., None]
    slope = (scale * (exponents / total - is_target)).astype(arithmetic.type)
    by_x = over_tensor(arithmetic, dot(arithmetic, slope, head, ((2,), (0,)), arithmetic.type))
    by_head = dot(arithmetic, slope, low, ((0, 1), (0, 1)), jnp.float32)
    return loss, by_x.astype(x.dtype), by_head


def chunks(rows: int, length: int, words: int) -> int:
    """Into how many parts of the sequence the loss goes; words: of the vocabulary that this device has."""
    return next(
        n
        for n in range(1, length + 1)
        if length % n == 0 and (rows * words * 4 * length // n <= LOGITS_BYTES or n == length)
    )


def _split(x: Array, parts: int) -> Array:
    """(rows, length, ...) as (parts, rows, length / parts, ...)."""
    rows, length, *rest = x.shape
    result: Array = jnp.moveaxis(x.reshape(rows, parts, length // parts, *rest), 1, 0)
    return result


def _local(tokens: Array, words: int) -> tuple[Array, Array]:
    """Index of each token in this device's part of the vocabulary, and whether it is there."""
    local = tokens - lax.axis_index(TENSOR) * words
    inside = (local >= 0) & (local < words)
    return jnp.where(inside, local, 0), inside
