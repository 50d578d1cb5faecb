"""AdamW, Muon, Adafactor and averaged weights on one device's shards of the state.

AdamW is torch.optim.AdamW's formula; trainer/torch_engine/adafactor.py documents Adafactor's. Matrices may be stacked,
so dimensions are counted from the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from jax import Array

from trainer.config import OptimConfig
from trainer.jax_engine.arithmetic import FSDP, TENSOR
from trainer.jax_engine.leaves import Weight, list_moments, moment_key
from trainer.jax_engine.library import jnp, lax
from trainer.jax_engine.muon import Direction
from trainer.shape.mesh import Mesh

Moments: TypeAlias = dict[str, Array]

STEP_SCALARS = 4
_EPSILON = 1e-30  # Adafactor: added to squares, so that no reciprocal root is taken of zero


def make_step_scalars(config: OptimConfig, rate: float, step: int) -> npt.NDArray[np.float32]:
    """Return the numbers that change from step to step, computed in double precision.

    Args:
        config: Constants of the optimizer.
        rate: Learning rate.
        step: Number of steps done before this one.

    Returns:
        Rate, rate / (1 - beta1^t), sqrt(1 - beta2^t), 1 - beta2^t, where t = step + 1; shape (4,).
    """
    first, second = (1.0 - beta ** (step + 1) for beta in (config.beta1, config.beta2))
    return np.array([rate, rate / first, second**0.5, second], np.float32)


def update_weight(
    config: OptimConfig,
    mesh: Mesh,
    weight: Weight,
    values: Array,
    slope: Array,
    state: Mapping[str, Array],
    scalars: Array,
    direction: Direction | None = None,
) -> tuple[Array, Moments]:
    """Return the new values of a weight, and its moments by their keys in the state.

    `direction` is Muon's for the weight, where it has one.
    """
    names = [moment for moment, _, _ in list_moments(config.kind, weight)]
    old = [state[moment_key(weight, name)] for name in names]
    if direction is not None:
        change, new = scalars[0] * direction.change, [direction.buffer]
    elif config.kind != "adafactor":
        change, new = _adamw(config, slope, old, scalars)
    else:
        change, new = _adafactor(config, mesh, weight, slope, old, scalars)
    if weight.decays and config.weight_decay:
        values = values * (1.0 - scalars[0] * config.weight_decay)
    return values - change, {moment_key(weight, name): value for name, value in zip(names, new, strict=True)}


def update_average(decay: float, average: Array, values: Array) -> Array:
    """Return the new averaged weight."""
    return average + (1.0 - decay) * (values - average)


def _adamw(config: OptimConfig, slope: Array, old: list[Array], scalars: Array) -> tuple[Array, list[Array]]:
    mean, square = old
    mean = mean + (1.0 - config.beta1) * (slope - mean)
    square = config.beta2 * square + (1.0 - config.beta2) * slope * slope
    return scalars[1] * mean / (jnp.sqrt(square) / scalars[2] + config.eps), [mean, square]


def _adafactor(
    config: OptimConfig, mesh: Mesh, weight: Weight, slope: Array, old: list[Array], scalars: Array
) -> tuple[Array, list[Array]]:
    squares = slope * slope + _EPSILON
    if not weight.decays:
        new = [_toward(config, old[0], squares)]
        change = slope * lax.rsqrt(new[0] / scalars[3])
    else:
        high, wide = weight.shape
        down, across = weight.spec
        row = _toward(config, old[0], _over(mesh, across, squares.sum(axis=-1)) / wide)
        column = _toward(config, old[1], _over(mesh, down, squares.sum(axis=-2)) / high)
        new = [row, column]
        mean = _over(mesh, down, row.sum(axis=-1, keepdims=True)) / high
        change = slope * lax.rsqrt(row / mean)[..., None] * lax.rsqrt(column / scalars[3])[..., None, :]
    dimensions = tuple(range(-len(weight.shape), 0))
    total = jnp.square(change).sum(axis=dimensions, keepdims=True)
    for axis in weight.spec:
        total = _over(mesh, axis, total)
    size = jnp.sqrt(total / weight.parameters[0].size)
    return scalars[0] * change / jnp.maximum(size, 1.0), new


def _toward(config: OptimConfig, moment: Array, value: Array) -> Array:
    return moment + (1.0 - config.beta2) * (value - moment)


def _over(mesh: Mesh, axis: str | None, value: Array) -> Array:
    """Sum over the axis that shards a dimension; None sums nothing."""
    sizes = {FSDP: mesh.fsdp, TENSOR: mesh.tensor}
    return lax.psum(value, axis) if axis is not None and sizes[axis] > 1 else value
