"""One optimizer step as one compiled program over the mesh: gradients, clipping, optimizer, averaged weights.

The same function is compiled ahead of time for devices that are not there: see ahead.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jax import Array

from trainer.config import Config
from trainer.jax_engine.arithmetic import AXES, DATA, FSDP, TENSOR, Arithmetic
from trainer.jax_engine.attention import choose_kernel
from trainer.jax_engine.grid import Grid, Sharding, rows_sharding, sharding
from trainer.jax_engine.leaves import Leaf, Weight, average_key, leaves_of, scans, weight_key, weights_of
from trainer.jax_engine.library import jax, jnp, lax
from trainer.jax_engine.model import Recipe, loss_of
from trainer.jax_engine.optimizer import KNOBS, averaged, update
from trainer.shape.mesh import Mesh, check_batch

State: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Step:
    """function: jitted; takes state, rows, angles, knobs and stops; gives the new state and (loss, norm, stops).

    arguments: their shapes, types and places. micro: rows that a shard takes through the model at once.
    """

    function: Any
    arguments: tuple[Any, ...]
    leaves: tuple[Leaf, ...]
    recipe: Recipe
    grid: Grid
    micro: int


def build(config: Config, mesh: Mesh, grid: Grid) -> Step:
    """Raises ConfigError when the batch does not divide. Touches no device."""
    micro = check_batch(config, mesh)
    platform = grid.devices.flat[0].platform
    scanned = scans(config.model.layers, platform)
    weights = weights_of(config.model, scanned)
    leaves = leaves_of(config, weights)
    arithmetic = Arithmetic(config.dtype, mesh)
    recipe = Recipe(
        config.model,
        arithmetic,
        choose_kernel(platform, arithmetic, config.model.head_dim, config.seq_len),
        scanned,
        config.remat,
        scale=1.0 / (config.batch * config.seq_len),
    )
    places = {leaf.key: sharding(grid, *leaf.axes) for leaf in leaves}
    everywhere = sharding(grid)
    incoming = (places, rows_sharding(grid), everywhere, everywhere, sharding(grid, AXES))

    def local(state: State, rows: Array, angles: Array, knob: Array, stops: Array) -> tuple[State, Array]:
        return _step(config, recipe, weights, state, rows, angles, knob, stops)

    specs = jax.tree.map(_spec, incoming)
    over_devices = jax.shard_map(
        local, mesh=grid, in_specs=specs, out_specs=(specs[0], everywhere.spec), check_vma=False
    )
    function = jax.jit(over_devices, donate_argnums=(0,), in_shardings=incoming, out_shardings=(places, everywhere))
    return Step(function, _arguments(config, mesh, leaves, incoming), leaves, recipe, grid, micro)


def _spec(place: Sharding) -> Any:
    return place.spec


def _arguments(config: Config, mesh: Mesh, leaves: Sequence[Leaf], places: tuple[Any, ...]) -> tuple[Any, ...]:
    def described(shape: tuple[int, ...], dtype: Any, place: Sharding) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    state = {leaf.key: described(leaf.full_shape, jnp.float32, places[0][leaf.key]) for leaf in leaves}
    rows = (config.accumulate, config.batch // config.accumulate, config.seq_len + 1)
    return (
        state,
        described(rows, jnp.int32, places[1]),
        described((2, config.seq_len, config.model.head_dim // 2), jnp.float32, places[2]),
        described((KNOBS,), jnp.float32, places[3]),
        described((mesh.devices,), jnp.float32, places[4]),
    )


def _step(
    config: Config,
    recipe: Recipe,
    weights: Sequence[Weight],
    state: State,
    rows: Array,
    angles: Array,
    knob: Array,
    stops: Array,
) -> tuple[State, Array]:
    mesh = recipe.arithmetic.mesh
    values = {weight.name: state[weight_key(weight)] for weight in weights}
    loss, slopes = _gradients(recipe, values, rows, angles)
    if mesh.data > 1:
        slopes = lax.psum(slopes, DATA)
    numbers = _numbers(mesh, weights, loss, slopes, stops)
    factor = jnp.minimum(1.0, config.grad_clip / (numbers[1] + 1e-6)) if config.grad_clip else None
    new: State = {}
    for weight in weights:
        slope = slopes[weight.name] if factor is None else slopes[weight.name] * factor
        value, moments = update(config.optim, mesh, weight, values[weight.name], slope, state, knob)
        new |= {weight_key(weight): value, **moments}
        if config.optim.ema:
            key = average_key(weight)
            new[key] = averaged(config.optim.ema, state[key], value)
    return new, numbers


def _gradients(
    recipe: Recipe, values: Mapping[str, Array], rows: Array, angles: Array
) -> tuple[Array, dict[str, Array]]:
    """Loss and gradients of this device's rows, (micro-batches, rows, tokens), added up."""

    def loss(values: Mapping[str, Array], micro: Array) -> Array:
        return loss_of(recipe, values, micro, angles)

    one: Callable[[Mapping[str, Array], Array], tuple[Array, dict[str, Array]]] = jax.value_and_grad(loss)
    if rows.shape[0] == 1:
        return one(values, rows[0])
    start = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, values))

    def add(sums: Any, micro: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, one(values, micro)), None

    result: tuple[Array, dict[str, Array]] = lax.scan(add, start, rows)[0]
    return result


def _numbers(mesh: Mesh, weights: Sequence[Weight], loss: Array, slopes: Mapping[str, Array], stops: Array) -> Array:
    """(loss, gradient norm, stops), summed over all devices in one message, so all have the same bits."""
    squares = jnp.zeros((), jnp.float32)
    for weight in weights:
        # Copies of a norm lie on every device of the tensor axis; of everything, along the data axis.
        copies = mesh.data * (1 if TENSOR in weight.spec else mesh.tensor)
        squares += jnp.square(slopes[weight.name]).sum() / copies
    sums = jnp.stack([loss / mesh.tensor, squares, stops.sum()])
    axes = [axis for axis, size in ((DATA, mesh.data), (FSDP, mesh.fsdp), (TENSOR, mesh.tensor)) if size > 1]
    if axes:
        sums = lax.psum(sums, axes)
    result: Array = jnp.stack([sums[0], jnp.sqrt(sums[1]), sums[2]])
    return result
