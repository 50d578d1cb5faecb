"""One optimizer step as one compiled program over the mesh: gradients, clipping, optimizer, averaged weights.

The same function is compiled ahead of time for devices that are not attached: see ahead_of_time.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from jax import Array

from trainer.accelerators.tpu_compiler_options import VARIABLE, choose_compiler_options
from trainer.config import Config
from trainer.jax_engine.arithmetic import AXES, DATA, FSDP, TENSOR, Arithmetic, sum_over_tensor
from trainer.jax_engine.attention import choose_kernel
from trainer.jax_engine.device_names import get_device_name
from trainer.jax_engine.experts import ROUTER_NUMBERS, compute_router_loss
from trainer.jax_engine.grid import Grid, Sharding, make_rows_sharding, make_sharding
from trainer.jax_engine.leaves import Leaf, Weight, average_key, list_leaves, list_weights, uses_scan, weight_key
from trainer.jax_engine.library import jax, jnp, lax
from trainer.jax_engine.model import Recipe, compute_loss, compute_loss_and_balance
from trainer.jax_engine.muon import compute_directions
from trainer.jax_engine.optimizer import STEP_SCALARS, update_average, update_weight
from trainer.shape.lora import refuse_muon
from trainer.shape.mesh import Mesh, check_batch

State: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The jitted step and its description.

    Attributes:
        function: Takes state, rows, angles, step scalars and stop flags; returns the new state and (loss, norm, stops),
            with experts then the numbers of compute_router_loss.
        arguments: Shapes, types and shardings of the arguments.
        evaluation: Takes the weights of the state, rows and angles; returns the loss.
        evaluation_arguments: Shapes, types and shardings of its arguments.
        leaves: The arrays of the state.
        recipe: The model.
        grid: The devices.
        micro: Rows that a shard computes at a time.
        compiler_options: With which `function` is compiled; empty on other devices than TPUs.
    """

    function: Any
    arguments: tuple[Any, ...]
    evaluation: Any
    evaluation_arguments: tuple[Any, ...]
    leaves: tuple[Leaf, ...]
    recipe: Recipe
    grid: Grid
    micro: int
    compiler_options: Mapping[str, str]


def build_step(config: Config, mesh: Mesh, grid: Grid) -> Step:
    """Build the step without initializing a device.

    Raises:
        ConfigError: The batch does not divide.
    """
    refuse_muon(config)
    micro = check_batch(config, mesh)
    platform = grid.devices.flat[0].platform
    scanned = uses_scan(config.model.layers, platform)
    weights = list_weights(config.model, scanned, config.lora)
    leaves = list_leaves(config, weights)
    recipe = _make_recipe(config, mesh, platform, scanned=scanned)
    places = {leaf.key: make_sharding(grid, *leaf.axes) for leaf in leaves}
    everywhere = make_sharding(grid)
    incoming = (places, make_rows_sharding(grid), everywhere, everywhere, make_sharding(grid, AXES))

    def local(state: State, rows: Array, angles: Array, scalars: Array, stops: Array) -> tuple[State, Array]:
        return _step(config, recipe, weights, state, rows, angles, scalars, stops)

    specs = jax.tree.map(_spec, incoming)
    over_devices = jax.shard_map(
        local, mesh=grid, in_specs=specs, out_specs=(specs[0], everywhere.spec), check_vma=False
    )
    weight_places = {weight_key(weight): places[weight_key(weight)] for weight in weights}
    evaluated = (weight_places, *incoming[1:3])

    def local_loss(values: State, rows: Array, angles: Array) -> Array:
        return _evaluate(recipe, {weight.name: values[weight_key(weight)] for weight in weights}, rows, angles)

    loss_over_devices = jax.shard_map(
        local_loss,
        mesh=grid,
        in_specs=jax.tree.map(_spec, evaluated),
        out_specs=everywhere.spec,
        check_vma=False,
    )
    arguments = _arguments(config, mesh, leaves, incoming)
    options = choose_compiler_options(get_device_name(grid.devices.flat[0]), os.environ.get(VARIABLE, ""))
    function = jax.jit(
        over_devices,
        donate_argnums=(0,),
        in_shardings=incoming,
        out_shardings=(places, everywhere),
        compiler_options=options or None,
    )
    return Step(
        function=function,
        arguments=arguments,
        evaluation=jax.jit(loss_over_devices, in_shardings=evaluated, out_shardings=everywhere),
        evaluation_arguments=({key: arguments[0][key] for key in weight_places}, *arguments[1:3]),
        leaves=leaves,
        recipe=recipe,
        grid=grid,
        micro=micro,
        compiler_options=options,
    )


def _make_recipe(config: Config, mesh: Mesh, platform: str, *, scanned: bool) -> Recipe:
    """Return what the model computes on one device of the platform."""
    arithmetic = Arithmetic(config.products, mesh, config.recomputed != "none")
    return Recipe(
        model=config.model,
        arithmetic=arithmetic,
        kernel=choose_kernel(
            platform,
            arithmetic,
            config.model.head_dim,
            config.seq_len,
            documents=config.data.document_mask,
            softcap=config.model.attention_softcap,
        ),
        scanned=scanned,
        remat=config.recomputed,
        scale=1.0 / (config.batch * config.seq_len),
        marked=config.marked,
        documents=config.data.document_mask,
        adapted=config.lora.scale if config.lora.rank else 0.0,
        residual=config.residual,
    )


def _spec(place: Sharding) -> Any:
    return place.spec


def _arguments(config: Config, mesh: Mesh, leaves: Sequence[Leaf], places: tuple[Any, ...]) -> tuple[Any, ...]:
    def described(shape: tuple[int, ...], dtype: Any, place: Sharding) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    state = {leaf.key: described(leaf.full_shape, jnp.float32, places[0][leaf.key]) for leaf in leaves}
    # Devices that share rows have a copy each: tokens are few bytes, and each device takes its own from whole rows.
    rows = (config.accumulate, config.batch // config.accumulate * mesh.context, config.seq_len + 1)
    return (
        state,
        described(rows, jnp.int32, places[1]),
        described(
            (4 if config.model.local_rope_theta else 2, config.seq_len, config.model.head_dim // 2),
            jnp.float32,
            places[2],
        ),
        described((STEP_SCALARS,), jnp.float32, places[3]),
        described((mesh.devices,), jnp.float32, places[4]),
    )


def _step(
    config: Config,
    recipe: Recipe,
    every: Sequence[Weight],
    state: State,
    rows: Array,
    angles: Array,
    scalars: Array,
    stops: Array,
) -> tuple[State, Array]:
    mesh = recipe.arithmetic.mesh
    frozen = {weight.name: state[weight_key(weight)] for weight in every if weight.frozen}
    weights = [weight for weight in every if not weight.frozen]
    values = {weight.name: state[weight_key(weight)] for weight in weights}
    factor = _weigh_marked(recipe, rows) if recipe.marked else None
    (loss, router), slopes = _gradients(recipe, values, frozen, rows, angles, factor)
    if factor is not None:
        loss, slopes = jax.tree.map(partial(jnp.multiply, factor), (loss, slopes))
    if mesh.data > 1:
        slopes = lax.psum(slopes, DATA)
    for weight in weights:
        if mesh.fsdp > 1 and FSDP not in weight.spec:  # copies, of which each device has the part of its rows
            slopes[weight.name] = lax.psum(slopes[weight.name], FSDP)
        if TENSOR not in weight.spec:  # each device has only the part of its tokens or heads
            slopes[weight.name] = sum_over_tensor(recipe.arithmetic, slopes[weight.name])
    numbers = _numbers(mesh, weights, loss, slopes, stops)
    clip = jnp.minimum(1.0, config.grad_clip / (numbers[1] + 1e-6)) if config.grad_clip else None
    if clip is not None:
        slopes = {name: slope * clip for name, slope in slopes.items()}
    directions = compute_directions(config, recipe.arithmetic, weights, slopes, state)
    new: State = {weight_key(weight): frozen[weight.name] for weight in every if weight.frozen}
    for weight in weights:
        name = weight.name
        value, moments = update_weight(
            config.optim, mesh, weight, values[name], slopes[name], state, scalars, directions.get(name)
        )
        new |= {weight_key(weight): value, **moments}
        if config.optim.ema:
            key = average_key(weight)
            new[key] = update_average(config.optim.ema, state[key], value)
    return new, numbers if router is None else jnp.concatenate([numbers, router])


def _evaluate(recipe: Recipe, values: Mapping[str, Array], rows: Array, angles: Array) -> Array:
    """Return the mean loss of all devices' rows, (micro-batches, rows, tokens), in which unmarked tokens count as 0."""
    mesh = recipe.arithmetic.mesh

    def add(total: Array, micro: Array) -> tuple[Array, None]:
        return total + compute_loss(recipe, values, micro, angles), None

    total: Array = lax.scan(add, jnp.zeros((), jnp.float32), rows)[0] / mesh.tensor
    return _sum_over_devices(mesh, total)


def _weigh_marked(recipe: Recipe, rows: Array) -> Array:
    """Return the factor that makes a mean over the marked tokens of one over all tokens of all devices' rows."""
    mesh = recipe.arithmetic.mesh
    marked = _sum_over_devices(mesh, (rows[..., 1:] >= 0).sum(dtype=jnp.int32)) // (mesh.tensor * mesh.context)
    factor: Array = 1.0 / (recipe.scale * jnp.maximum(marked, 1).astype(jnp.float32))
    return factor


def _sum_over_devices(mesh: Mesh, values: Array) -> Array:
    axes = [axis for axis, size in ((DATA, mesh.data), (FSDP, mesh.fsdp), (TENSOR, mesh.tensor)) if size > 1]
    result: Array = lax.psum(values, axes) if axes else values
    return result


def _gradients(
    recipe: Recipe,
    values: Mapping[str, Array],
    frozen: Mapping[str, Array],
    rows: Array,
    angles: Array,
    factor: Array | None,
) -> tuple[tuple[Array, Array | None], dict[str, Array]]:
    """Return loss and gradients by `values`, summed over this device's rows, (micro-batches, rows, tokens).

    With the loss, in a model with experts, come the means of the numbers of `compute_router_loss`. Its gradients are
    included, divided by `factor`, with which the caller multiplies all.
    """
    model, parts = recipe.model, rows.shape[0]

    def loss(values: Mapping[str, Array], micro: Array) -> tuple[Array, tuple[Array, Array | None]]:
        found, balance = compute_loss_and_balance(recipe, {**frozen, **values}, micro, angles)
        if balance is None:
            return found, (found, None)
        part, numbers = compute_router_loss(recipe.arithmetic, model, balance)
        weighed = part * (model.router_loss / parts)
        return found + (weighed if factor is None else weighed / factor), (found, numbers / parts)

    differentiated = jax.value_and_grad(loss, has_aux=True)

    def one(values: Mapping[str, Array], micro: Array) -> tuple[tuple[Array, Array | None], dict[str, Array]]:
        (_, numbers), slopes = differentiated(values, micro)
        return numbers, slopes

    if parts == 1:
        return one(values, rows[0])
    router = jnp.zeros((ROUTER_NUMBERS,), jnp.float32) if model.experts else None
    start = ((jnp.zeros((), jnp.float32), router), jax.tree.map(jnp.zeros_like, values))

    def add(sums: Any, micro: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, one(values, micro)), None

    result: tuple[tuple[Array, Array | None], dict[str, Array]] = lax.scan(add, start, rows)[0]
    return result


def _numbers(mesh: Mesh, weights: Sequence[Weight], loss: Array, slopes: Mapping[str, Array], stops: Array) -> Array:
    """Return (loss, gradient norm, stops), summed in one message, so that all devices have the same bits."""
    squares = jnp.zeros((), jnp.float32)
    for weight in weights:
        # Norms are replicated on every device of the tensor axis, adapters along fsdp; everything is along data.
        copies = mesh.data * (1 if TENSOR in weight.spec else mesh.tensor) * (1 if FSDP in weight.spec else mesh.fsdp)
        squares += jnp.square(slopes[weight.name]).sum() / copies
    sums = _sum_over_devices(mesh, jnp.stack([loss / mesh.tensor, squares, stops.sum()]))
    result: Array = jnp.stack([sums[0], jnp.sqrt(sums[1]), sums[2]])
    return result
