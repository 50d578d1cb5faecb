"""Muon's orthogonalized momentum on one device's shards; trainer/torch_engine/muon.py documents the formula.

Matrices of the same shape and layout are stacked, and each device of the mesh assembles and orthogonalizes an equal
share of a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jax import Array

from trainer.config import Config
from trainer.jax_engine.arithmetic import DATA, FSDP, TENSOR, Arithmetic
from trainer.jax_engine.leaves import Weight, moment_key
from trainer.jax_engine.library import jnp, lax
from trainer.shape.newton_schulz import COEFFICIENTS, EPSILON, STEPS, scale_update

MOMENT = "momentum_buffer"


@dataclass(frozen=True, slots=True)
class Direction:
    """Where Muon moves the local shard of a weight.

    Attributes:
        change: To be subtracted, for a learning rate of one.
        buffer: The new momentum.
    """

    change: Array
    buffer: Array


def compute_directions(
    config: Config,
    arithmetic: Arithmetic,
    weights: Sequence[Weight],
    slopes: Mapping[str, Array],
    state: Mapping[str, Array],
) -> dict[str, Direction]:
    """Return the directions of the hidden matrices by name; none where another optimizer is chosen.

    Args:
        config: The settings.
        arithmetic: Its mesh.
        weights: All weights.
        slopes: Clipped gradients by the names of weights.
        state: The state before the step.
    """
    if config.optim.kind != "muon":
        return {}
    momentum = config.optim.momentum
    products = Arithmetic(config.orthogonalized, arithmetic.mesh)
    found: dict[str, Direction] = {}
    for group in _group_alike([weight for weight in weights if weight.is_hidden_matrix]):
        buffers = [_move(state[moment_key(weight, MOMENT)], slopes[weight.name], 1.0 - momentum) for weight in group]
        moved = [_move(slopes[weight.name], buffer, momentum) for weight, buffer in zip(group, buffers, strict=True)]
        stack = moved[0] if group[0].stacked else jnp.stack(moved)
        shares = orthogonalize(products, _spread(products, group[0], stack))
        updates = scale_update(group[0].shape) * _collect(products, group[0], shares, len(stack)).astype(jnp.float32)
        for at, (weight, buffer) in enumerate(zip(group, buffers, strict=True)):
            found[weight.name] = Direction(updates if weight.stacked else updates[at], buffer)
    return found


def orthogonalize(arithmetic: Arithmetic, matrices: Array) -> Array:
    """Return matrices, shape (count, rows, columns), with all their singular values moved to about one."""
    a, b, c = COEFFICIENTS
    high = matrices.shape[1] > matrices.shape[2]
    x = matrices.swapaxes(1, 2) if high else matrices
    norm = jnp.sqrt(jnp.square(x.astype(jnp.float32)).sum(axis=(1, 2), keepdims=True))
    x = x / jnp.maximum(norm, EPSILON).astype(x.dtype)

    def iterate(_: Array, x: Array) -> Array:
        gram = _multiply(arithmetic, x, x, 2).astype(x.dtype)
        polynomial = (b * gram + c * _multiply(arithmetic, gram, gram, 1)).astype(x.dtype)
        result: Array = (a * x + _multiply(arithmetic, polynomial, x, 1)).astype(x.dtype)
        return result

    found: Array = lax.fori_loop(0, STEPS, iterate, x)
    return found.swapaxes(1, 2) if high else found


def _multiply(arithmetic: Arithmetic, left: Array, right: Array, over: int) -> Array:
    """Multiply matrices pairwise, over the columns of the left ones and a dimension of the right ones, into fp32."""
    result: Array = lax.dot_general(
        left,
        right,
        (((2,), (over,)), ((0,), (0,))),
        precision=arithmetic.precision,
        preferred_element_type=jnp.float32,
    )
    return result


def _move(value: Array, target: Array, share: float) -> Array:
    return value + share * (target - value)


def _group_alike(weights: Sequence[Weight]) -> Iterator[Sequence[Weight]]:
    """Yield each stacked weight alone, and the others by shape and layout."""
    groups: dict[object, list[Weight]] = {}
    for weight in weights:
        groups.setdefault(weight.name if weight.stacked else (weight.shape, weight.spec), []).append(weight)
    yield from groups.values()


def _spread(arithmetic: Arithmetic, weight: Weight, shards: Array) -> Array:
    """Return this device's share of a stack of sharded matrices, whole and in the products' type.

    Zeros fill the stack up, so that the devices have equal shares.
    """
    mesh = arithmetic.mesh
    shares = -(-shards.shape[0] // mesh.devices)
    missing = shares * mesh.devices - shards.shape[0]
    filled: Array = jnp.pad(shards.astype(arithmetic.type), ((0, missing), (0, 0), (0, 0)))
    for dimension, axis in _list_axes(arithmetic, weight):
        filled = lax.all_to_all(filled, axis, split_axis=0, concat_axis=1 + dimension, tiled=True)
    if mesh.data > 1:
        filled = lax.dynamic_slice_in_dim(filled, lax.axis_index(DATA) * shares, shares)
    return filled


def _collect(arithmetic: Arithmetic, weight: Weight, whole: Array, count: int) -> Array:
    """Return the local shards of all `count` matrices of the stack: the inverse of `_spread`."""
    if arithmetic.mesh.data > 1:
        whole = lax.all_gather(whole, DATA, axis=0, tiled=True)
    for dimension, axis in reversed(_list_axes(arithmetic, weight)):
        whole = lax.all_to_all(whole, axis, split_axis=1 + dimension, concat_axis=0, tiled=True)
    return whole[:count]


def _list_axes(arithmetic: Arithmetic, weight: Weight) -> Sequence[tuple[int, str]]:
    """List the dimensions that are sharded, with their axes."""
    sizes = {FSDP: arithmetic.mesh.fsdp, TENSOR: arithmetic.mesh.tensor}
    return [(at, axis) for at, axis in enumerate(weight.spec) if axis is not None and sizes[axis] > 1]
