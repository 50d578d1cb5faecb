"""AdamW, Adafactor and averaged weights on one device's parts of the state.

AdamW is torch.optim.AdamW's formula; Adafactor's is written down in trainer/torch_engine/adafactor.py. Matrices may be
stacked, so dimensions are counted from the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from jax import Array

from trainer.config import OptimConfig
from trainer.jax_engine.arithmetic import FSDP, TENSOR
from trainer.jax_engine.leaves import Weight, moment_key, moments_of
from trainer.jax_engine.library import jnp, lax
from trainer.shape.mesh import Mesh

Moments: TypeAlias = dict[str, Array]

KNOBS = 4
_LEAST = 1e-30  # Adafactor: added to squares, so that no root is taken of zero


def knobs(config: OptimConfig, rate: float, step: int) -> npt.NDArray[np.float32]:
    """What changes from step to step, worked out in double precision. step: done before this one."""
    first, second = (1.0 - beta ** (step + 1) for beta in (config.beta1, config.beta2))
    return np.array([rate, rate / first, second**0.5, second], np.float32)


def update(
    config: OptimConfig,
    mesh: Mesh,
    weight: Weight,
    values: Array,
    slope: Array,
    state: Mapping[str, Array],
    knob: Array,
) -> tuple[Array, Moments]:
    """New values of a weight and of its moments, these by their keys in the state."""
    names = [moment for moment, _, _ in moments_of(config.kind, weight)]
    old = [state[moment_key(weight, name)] for name in names]
    if config.kind == "adamw":
        change, new = _adamw(config, slope, old, knob)
    else:
        change, new = _adafactor(config, mesh, weight, slope, old, knob)
    if weight.decays and config.weight_decay:
        values = values * (1.0 - knob[0] * config.weight_decay)
    return values - change, {moment_key(weight, name): value for name, value in zip(names, new, strict=True)}


def averaged(decay: float, average: Array, values: Array) -> Array:
    return average + (1.0 - decay) * (values - average)


def _adamw(config: OptimConfig, slope: Array, old: list[Array], knob: Array) -> tuple[Array, list[Array]]:
    mean, square = old
    mean = mean + (1.0 - config.beta1) * (slope - mean)
    square = config.beta2 * square + (1.0 - config.beta2) * slope * slope
    return knob[1] * mean / (jnp.sqrt(square) / knob[2] + config.eps), [mean, square]


def _adafactor(
    config: OptimConfig, mesh: Mesh, weight: Weight, slope: Array, old: list[Array], knob: Array
) -> tuple[Array, list[Array]]:
    squares = slope * slope + _LEAST
    if not weight.decays:
        new = [_toward(config, old[0], squares)]
        change = slope * lax.rsqrt(new[0] / knob[3])
    else:
        high, wide = weight.shape
        down, across = weight.spec
        row = _toward(config, old[0], _over(mesh, across, squares.sum(axis=-1)) / wide)
        column = _toward(config, old[1], _over(mesh, down, squares.sum(axis=-2)) / high)
        new = [row, column]
        mean = _over(mesh, down, row.sum(axis=-1, keepdims=True)) / high
        change = slope * lax.rsqrt(row / mean)[..., None] * lax.rsqrt(column / knob[3])[..., None, :]
    dimensions = tuple(range(-len(weight.shape), 0))
    total = jnp.square(change).sum(axis=dimensions, keepdims=True)
    for axis in weight.spec:
        total = _over(mesh, axis, total)
    size = jnp.sqrt(total / weight.parameters[0].size)
    return knob[0] * change / jnp.maximum(size, 1.0), new


def _toward(config: OptimConfig, moment: Array, value: Array) -> Array:
    return moment + (1.0 - config.beta2) * (value - moment)


def _over(mesh: Mesh, axis: str | None, value: Array) -> Array:
    """Sum over the axis that divides a dimension, None if nothing does."""
    sizes = {FSDP: mesh.fsdp, TENSOR: mesh.tensor}
    return lax.psum(value, axis) if axis is not None and sizes[axis] > 1 else value
