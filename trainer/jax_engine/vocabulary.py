"""Token lookup and loss, the two ends of the model with the vocabulary, which is sharded over the tensor axis.

That axis also divides the tokens of each row, except where a device meets its part of the vocabulary with all of them.

The loss computes its gradients in the forward pass, a part of the sequence at a time, so all logits never exist
together, and none is computed twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from trainer.jax_engine.arithmetic import (
    TENSOR,
    Arithmetic,
    dot,
    gather_fsdp,
    gather_tokens,
    reduce_scatter_fsdp,
    scatter_sum,
    sum_over_tensor,
)
from trainer.jax_engine.library import jax, jnp, lax
from trainer.shape.limits import LOGITS_BYTES


def look_up_tokens(arithmetic: Arithmetic, table: Array, tokens: Array) -> Array:
    """Return the embeddings of this device's tokens in fp32, shape (rows, length, dim).

    Args:
        arithmetic: The mesh.
        table: This device's shard of the (vocabulary, dim) embedding.
        tokens: Shape (rows, length), of all devices of the tensor axis.
    """
    result: Array = _differentiable_look_up(arithmetic, table, tokens)
    return result


def _look_up(arithmetic: Arithmetic, table: Array, tokens: Array) -> Array:
    # Gathered in the products' type, as FSDP2 does.
    whole = gather_fsdp(arithmetic, table.astype(arithmetic.type), 1)
    if arithmetic.mesh.tensor == 1:
        return whole[tokens].astype(jnp.float32)
    local, inside = _local(tokens, table.shape[0])
    return scatter_sum(arithmetic, jnp.where(inside[..., None], whole[local].astype(jnp.float32), 0.0))


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
        slope = jnp.where(inside[..., None], gather_tokens(arithmetic, slope), 0.0)
    whole = whole.at[local].add(slope)
    return reduce_scatter_fsdp(arithmetic, whole, 1), np.zeros(tokens.shape, jax.dtypes.float0)


_differentiable_look_up: Any = jax.custom_vjp(_look_up, nondiff_argnums=(0,))
_differentiable_look_up.defvjp(_look_up_forward, _look_up_backward)


def compute_loss_sum(
    arithmetic: Arithmetic,
    scale: float,
    x: Array,
    head: Array,
    targets: Array,
    counted: Array | None = None,
    *,
    softcap: float = 0.0,
) -> Array:
    """Return `scale` times the summed loss of all targets in nats, a scalar in fp32.

    Args:
        arithmetic: Type of the products, and the mesh.
        scale: Factor of the loss.
        x: Shape (rows, length, dim), of this device's tokens.
        head: This device's shard of the (vocabulary, dim) matrix.
        targets: Shape (rows, length), of all devices of the tensor axis.
        counted: Which targets the sum contains, same shape; None for all.
        softcap: Bound of the logits; 0 for none.
    """
    result: Array = _differentiable_loss(arithmetic, scale, softcap, x, head, targets, counted)
    return result


def _loss_only(
    arithmetic: Arithmetic,
    scale: float,
    softcap: float,
    x: Array,
    head: Array,
    targets: Array,
    counted: Array | None,
) -> Array:
    return _loss(arithmetic, scale, softcap, x, head, targets, counted)[0]


def _loss_forward(
    arithmetic: Arithmetic,
    scale: float,
    softcap: float,
    x: Array,
    head: Array,
    targets: Array,
    counted: Array | None,
) -> tuple[Array, tuple[Array, Array, Array, Array | None]]:
    loss, by_x, by_head = _loss(arithmetic, scale, softcap, x, head, targets, counted)
    return loss, (by_x, by_head, targets, counted)


def _loss_backward(
    arithmetic: Arithmetic, scale: float, softcap: float, kept: tuple[Array, Array, Array, Array | None], slope: Array
) -> tuple[Array, Array, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    by_x, by_head, targets, counted = kept
    nothing = np.zeros(targets.shape, jax.dtypes.float0)
    return by_x * slope.astype(by_x.dtype), by_head * slope, nothing, None if counted is None else nothing


_differentiable_loss: Any = jax.custom_vjp(_loss_only, nondiff_argnums=(0, 1, 2))
_differentiable_loss.defvjp(_loss_forward, _loss_backward)


def _loss(
    arithmetic: Arithmetic,
    scale: float,
    softcap: float,
    x: Array,
    head: Array,
    targets: Array,
    counted: Array | None,
) -> tuple[Array, Array, Array]:
    """Return the loss and its gradients by x and by head."""
    whole = gather_fsdp(arithmetic, head.astype(arithmetic.type), 1)
    rows, length, _ = x.shape
    sharers = arithmetic.mesh.tensor
    parts = count_chunks(rows * sharers, length, head.shape[0])
    if parts == 1:
        loss, by_x, by_whole = _chunk(arithmetic, scale, softcap, whole, x, targets, counted)
        return loss, by_x, _scatter_early(arithmetic, by_whole)

    def body(carry: tuple[Array, Array], at: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        loss, by_x, by_whole = _chunk(arithmetic, scale, softcap, whole, *at)
        return (carry[0] + loss, carry[1] + by_whole), by_x

    start = (jnp.zeros((), jnp.float32), jnp.zeros(whole.shape, jnp.float32))
    split = (_split(x, 1, parts), *(_split(one, sharers, parts) for one in (targets, counted) if one is not None))
    (loss, by_whole), by_x = lax.scan(body, start, split)
    return loss, jnp.moveaxis(by_x, 0, 1).reshape(x.shape), _scatter_early(arithmetic, by_whole)


def _scatter_early(arithmetic: Arithmetic, by_whole: Array) -> Array:
    """Return this device's part of the head's gradient.

    A tied embedding has another gradient, at the end of the backward pass. Without the barrier XLA adds both before it
    sums them over the devices, and keeps the whole gradient of the head until then.
    """
    result: Array = lax.optimization_barrier(reduce_scatter_fsdp(arithmetic, by_whole, 1))
    return result


def _chunk(
    arithmetic: Arithmetic,
    scale: float,
    softcap: float,
    head: Array,
    x: Array,
    targets: Array,
    counted: Array | None = None,
) -> tuple[Array, Array, Array]:
    low = gather_tokens(arithmetic, x.astype(arithmetic.type))
    logits = dot(arithmetic, low, head, ((2,), (1,)), jnp.float32)
    bounded = jnp.tanh(logits / softcap) if softcap else None
    if bounded is not None:
        logits = softcap * bounded
    top = logits.max(axis=-1, keepdims=True)
    if arithmetic.mesh.tensor > 1:
        top = lax.pmax(top, TENSOR)
    exponents = jnp.exp(logits - top)
    total = sum_over_tensor(arithmetic, exponents.sum(axis=-1, keepdims=True))
    local, inside = _local(targets, head.shape[0]) if arithmetic.mesh.tensor > 1 else (targets, None)
    picked = jnp.take_along_axis(logits, local[..., None], axis=-1)
    if inside is not None:
        picked = sum_over_tensor(arithmetic, jnp.where(inside[..., None], picked, 0.0))
    losses = top + jnp.log(total) - picked
    if counted is not None:
        losses = jnp.where(counted[..., None], losses, 0.0)
    loss = scale * losses.sum()
    is_target = lax.broadcasted_iota(jnp.int32, logits.shape, 2) == local[..., None]
    if inside is not None:
        is_target = is_target & inside[..., None]
    slope = scale * (exponents / total - is_target)
    if bounded is not None:
        slope = slope * (1.0 - jnp.square(bounded))
    if counted is not None:
        slope = jnp.where(counted[..., None], slope, 0.0)
    slope = slope.astype(arithmetic.type)
    by_x = scatter_sum(arithmetic, dot(arithmetic, slope, head, ((2,), (0,)), arithmetic.type))
    by_head = dot(arithmetic, slope, low, ((0, 1), (0, 1)), jnp.float32)
    # The loss is needed last: without the barrier its logits are kept until then, through the whole backward pass.
    loss, by_x = lax.optimization_barrier((loss, by_x.astype(x.dtype)))
    return loss, by_x, by_head


def count_chunks(rows: int, length: int, words: int) -> int:
    """Return the number of chunks of the sequence; `words` is the size of this device's vocabulary shard."""
    return next(
        n
        for n in range(1, length + 1)
        if length % n == 0 and (rows * words * 4 * length // n <= LOGITS_BYTES or n == length)
    )


def _split(x: Array, sharers: int, parts: int) -> Array:
    """Reshape (rows, length, ...) to (parts, rows, length / parts, ...).

    A row has the tokens of each of the `sharers` devices one after the other, and each part has some of all of them.
    """
    rows, length, *rest = x.shape
    split = x.reshape(rows, sharers, parts, length // (sharers * parts), *rest)
    result: Array = jnp.moveaxis(split, 2, 0).reshape(parts, rows, length // parts, *rest)
    return result


def _local(tokens: Array, words: int) -> tuple[Array, Array]:
    """Return the index of each token in this device's vocabulary shard, and whether it is there."""
    local = tokens - lax.axis_index(TENSOR) * words
    inside = (local >= 0) & (local < words)
    return jnp.where(inside, local, 0), inside
