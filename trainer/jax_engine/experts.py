"""A feed-forward part of several experts, of which a router chooses some for each token (mixture of experts).

trainer/torch_engine/experts.py describes how rows are sorted, and router_loss.py there the loss. Shapes are static, and
no token is dropped. Over a tensor axis each device has some of the tokens, which it routes, and whole experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from jax import Array

from trainer.config import ModelConfig
from trainer.jax_engine.arithmetic import (
    DATA,
    FSDP,
    TENSOR,
    Arithmetic,
    gather_fsdp,
    gather_tokens,
    matmul,
    reduce_scatter_fsdp,
    scatter_sum,
)
from trainer.jax_engine.library import ad_checkpoint, jax, jnp, lax

EXPERT_RESULT: Final = "expert_result"
"""Name of what selective recomputation keeps: results of products, and choices, which other rounding could change."""

ROUTER_NUMBERS: Final = 2  # of compute_router_loss


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """This device's shards of a block's weights."""

    router: Array
    gate: Array
    up: Array
    down: Array


def compute_experts(
    arithmetic: Arithmetic,
    model: ModelConfig,
    weights: ExpertWeights,
    x: Array,
    activate: Callable[[Array, Array], Array],
) -> tuple[Array, Array]:
    """Compute the feed-forward part of a block.

    Args:
        arithmetic: Type of the products, and the mesh.
        model: Its sizes.
        weights: Of the block.
        x: Shape (rows, length, dim).
        activate: Takes gate and up, and returns their product after the activation.

    Returns:
        The result in the shape of x. For each expert how often it was chosen, and the sum of its shares of all tokens,
        shape (2, experts).
    """
    flat = x.reshape(-1, x.shape[-1])
    shares, experts, balance = _choose(arithmetic, model, weights.router, flat)
    flat, shares, experts = (gather_tokens(arithmetic, values, 0) for values in (flat, shares, experts))
    order, place, sizes = _sort(arithmetic, experts.ravel(), weights.gate.shape[0])
    own = jnp.arange(order.shape[0])[:, None] < sizes.sum() if arithmetic.mesh.tensor > 1 else None

    def product(rows: Array, weight: Array, divided: int) -> Array:
        result: Array = _differentiable_groups(arithmetic, divided, rows, weight, sizes)
        return result

    rows = _differentiable_spread(model.experts_per_token, flat, order, place, own)
    weighed = _differentiable_spread(1, shares.reshape(-1, 1), order, place, own)
    gate, up = (_keep(product(rows, weight, 2)) for weight in (weights.gate, weights.up))
    hidden = (activate(gate, up) * weighed).astype(arithmetic.type)
    found = _differentiable_collect(model.experts_per_token, product(hidden, weights.down, 1), order, place, own)
    return scatter_sum(arithmetic, found, 0).reshape(x.shape), balance


def compute_router_loss(arithmetic: Arithmetic, model: ModelConfig, balance: Array) -> tuple[Array, Array]:
    """Return this device's part of a micro-batch's loss, without its coefficient, and two numbers for metrics.

    Args:
        arithmetic: Its mesh.
        model: Its sizes.
        balance: Of the routers for this device's tokens, shape (layers, 2, experts).

    Returns:
        The part, whose sum over all devices is the loss; the loss of all rows and the largest share of an expert, shape
        (2,).
    """
    mesh = arithmetic.mesh
    axes = [axis for axis, size in ((DATA, mesh.data), (FSDP, mesh.fsdp), (TENSOR, mesh.tensor)) if size > 1]
    whole = lax.stop_gradient(balance)
    whole = lax.psum(whole, axes) if axes else whole
    choices, shares = whole.sum(axis=0)
    total = choices.sum()
    slope = choices * (model.experts * model.experts_per_token**2 / total**2)
    largest = whole[:, 0].max() * (model.layers / total)
    return (slope * balance[:, 1].sum(axis=0)).sum(), jnp.stack([(slope * shares).sum(), largest])


def _choose(arithmetic: Arithmetic, model: ModelConfig, router: Array, x: Array) -> tuple[Array, Array, Array]:
    """Return the shares and the indices of each token's experts, and the balance; always in fp32."""
    every = jax.nn.softmax(matmul(replace(arithmetic, dtype="fp32"), None, x, router), axis=-1)
    shares, experts = lax.top_k(every, model.experts_per_token)
    experts = _keep(experts)
    shares = jnp.take_along_axis(every, experts, axis=-1)
    if model.normalize_experts:
        shares = shares / shares.sum(axis=-1, keepdims=True)
    counts = (experts[..., None] == jnp.arange(model.experts)).sum(axis=(0, 1)).astype(jnp.float32)
    return shares, experts, jnp.stack([counts, every.sum(axis=0)])


def _sort(arithmetic: Arithmetic, experts: Array, count: int) -> tuple[Array, Array, Array]:
    """Return the choice of each row, the row of each choice, and the number of rows of this device's `count` experts.

    Rows of other devices' experts come last.
    """
    if arithmetic.mesh.tensor > 1:
        total = count * arithmetic.mesh.tensor
        experts = (experts - lax.axis_index(TENSOR) * count) % total
    order = jnp.argsort(experts, stable=True)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype), unique_indices=True)
    sizes = (experts[:, None] == jnp.arange(count)).sum(axis=0, dtype=jnp.int32)
    return order, place, sizes


def _keep(values: Array) -> Array:
    result: Array = ad_checkpoint.checkpoint_name(values, EXPERT_RESULT)
    return result


def _spread(times: int, x: Array, order: Array, place: Array, own: Array | None) -> Array:
    """Return the row of x for each sorted choice; each row of x has `times` of them."""
    return x[order // times]


def _collect(times: int, y: Array, order: Array, place: Array, own: Array | None) -> Array:
    """Sum the results of each token's choices: the transpose. Rows of other devices' experts count as zero."""
    values = y if own is None else jnp.where(own, y, 0)
    return values[place].reshape(-1, times, y.shape[-1]).sum(axis=1)


def _spread_forward(times: int, x: Array, *rows: Any) -> tuple[Array, Any]:
    return _spread(times, x, *rows), rows


def _spread_backward(times: int, rows: Any, slope: Array) -> tuple[Any, ...]:
    return _collect(times, slope, *rows), None, None, None


def _collect_forward(times: int, y: Array, *rows: Any) -> tuple[Array, Any]:
    return _collect(times, y, *rows), rows


def _collect_backward(times: int, rows: Any, slope: Array) -> tuple[Any, ...]:
    return _spread(times, slope, *rows), None, None, None


def _groups(arithmetic: Arithmetic, divided: int, x: Array, weight: Array, sizes: Array) -> Array:
    """Multiply the rows of each expert with the transpose of its matrix.

    Args:
        arithmetic: Type of the products.
        divided: Dimension along which the weight is sharded over fsdp.
        x: Sorted by expert, shape (rows, in).
        weight: This device's shard of (experts, out, in) matrices in fp32.
        sizes: Rows of each expert.
    """
    whole = gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided)
    return _ragged(arithmetic, x.astype(arithmetic.type), whole, sizes, (1, 2), arithmetic.type)


def _ragged(
    arithmetic: Arithmetic,
    left: Array,
    right: Array,
    sizes: Array,
    over: tuple[int, int],
    out: Any,
    grouped: bool = True,
) -> Array:
    """Sum products over the dimensions `over` for each group of the left factor's rows.

    The right factor has a matrix for each group, or, not `grouped`, rows as the left one has.
    """
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((over[0],), (over[1],)), ((), ())),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[0] if grouped else [],
    )
    result: Array = lax.ragged_dot_general(
        left, right, sizes, numbers, precision=arithmetic.precision, preferred_element_type=out
    )
    return result


def _groups_forward(
    arithmetic: Arithmetic, divided: int, x: Array, weight: Array, sizes: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    if not arithmetic.recomputed:
        return _groups(arithmetic, divided, x, weight, sizes), (x, weight, sizes)
    whole = gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided)
    found = _ragged(arithmetic, x.astype(arithmetic.type), whole, sizes, (1, 2), arithmetic.type)
    return found, (x, whole, sizes)


def _groups_backward(
    arithmetic: Arithmetic, divided: int, kept: tuple[Array, Array, Array], slope: Array
) -> tuple[Array, Array, None]:
    x, weight, sizes = kept
    if arithmetic.mesh.fsdp > 1 and not arithmetic.recomputed:  # see arithmetic.py
        weight, slope = lax.optimization_barrier((weight, slope))
    whole = weight if arithmetic.recomputed else gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided)
    by_x = _ragged(arithmetic, slope, whole, sizes, (1, 1), arithmetic.type).astype(x.dtype)
    rows = x.astype(arithmetic.type)
    by_weight = _ragged(arithmetic, slope, rows, sizes, (0, 0), jnp.float32, grouped=False)
    return by_x, reduce_scatter_fsdp(arithmetic, by_weight, divided), None


_differentiable_spread: Any = jax.custom_vjp(_spread, nondiff_argnums=(0,))
_differentiable_spread.defvjp(_spread_forward, _spread_backward)
_differentiable_collect: Any = jax.custom_vjp(_collect, nondiff_argnums=(0,))
_differentiable_collect.defvjp(_collect_forward, _collect_backward)
_differentiable_groups: Any = jax.custom_vjp(_groups, nondiff_argnums=(0, 1))
_differentiable_groups.defvjp(_groups_forward, _groups_backward)
