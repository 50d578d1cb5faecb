"""The state's arrays on this process's devices: initial values, and conversion to and from checkpoint regions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.jax_engine.grid import Grid, make_sharding
from trainer.jax_engine.leaves import Leaf
from trainer.jax_engine.library import jax
from trainer.jax_engine.step import State
from trainer.shape.box import Box, TensorRegion
from trainer.shape.initial_values import make_initial_values


class StatePlacement:
    """Which region of each leaf is on which devices, according to the shardings."""

    def __init__(self, leaves: Sequence[Leaf], grid: Grid, process: int) -> None:
        self.leaves = tuple(leaves)
        self._grid, self._process = grid, process
        self._position = {device: at for at, device in enumerate(grid.devices.flat)}
        self._needed = tuple(held.piece for leaf in self.leaves for held in self._held(leaf))
        self._written = tuple(held.piece for leaf in self.leaves for held in self._held(leaf) if held.writes)

    @property
    def needed(self) -> Sequence[TensorRegion]:
        return self._needed

    @property
    def written(self) -> Sequence[TensorRegion]:
        return self._written

    def first_values(self, seed: int) -> State:
        """Return the initial state: weights from the seed, averages equal to the weights, moments zero."""
        return {leaf.key: self._filled(leaf, seed) for leaf in self.leaves}

    def copy_out(self, state: Mapping[str, Array], into: Mapping[TensorRegion, FloatArray]) -> None:
        for leaf, following in zip(self.leaves, [*self.leaves[1:], None], strict=True):
            if following is not None:
                state[following.key].copy_to_host_async()
            whole: Any = state[leaf.key]
            parts = {_box(shard.index, leaf.full_shape): shard.data for shard in whole.addressable_shards}
            for held in self._held(leaf):
                if held.writes:
                    np.copyto(into[held.piece], _layer(leaf, np.asarray(parts[held.region]), held.layer))

    def load(self, state: State, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        """Replace the leaves one by one when their regions are complete.

        Raises:
            StorageError: Some regions are missing.
        """
        filling = {leaf.key: _Filling(leaf, tuple(self._held(leaf))) for leaf in self.leaves}
        owner = {held.piece: entry for entry in filling.values() for held in entry.held}
        for piece, value in values:
            entry = owner[piece]
            entry.take(piece, value)
            if not entry.missing:
                state[entry.leaf.key].delete()
                state[entry.leaf.key] = self._from_regions(entry.leaf, filling.pop(entry.leaf.key).regions)
                entry.regions.clear()
        if filling:
            incomplete = next(iter(filling.values()))
            raise StorageError(f"the checkpoint has no values for {min(piece.name for piece in incomplete.missing)}")

    def _held(self, leaf: Leaf) -> Iterator[_Held]:
        """Yield each tensor's distinct regions on this process's devices."""
        copies: dict[Box, list[int]] = {}
        mine: set[Box] = set()
        places = make_sharding(self._grid, *leaf.axes).devices_indices_map(leaf.full_shape)
        for device, index in places.items():
            region = _box(index, leaf.full_shape)
            copies.setdefault(region, []).append(self._position[device])
            if device.process_index == self._process:
                mine.add(region)
        for region in sorted(mine):
            holders = sorted(copies[region])
            for layer, name in enumerate(leaf.names):
                # The copies take turns, so that no process writes everything.
                writer = self._grid.devices.flat[holders[leaf.weight.positions[layer] % len(holders)]]
                inner = Box(region.offset[1:], region.extent[1:]) if leaf.weight.stacked else region
                yield _Held(
                    piece=TensorRegion(name, leaf.shape, inner),
                    region=region,
                    layer=layer,
                    writes=writer.process_index == self._process,
                )

    def _filled(self, leaf: Leaf, seed: int) -> Array:
        regions: dict[Box, FloatArray] = {}
        for held in self._held(leaf):
            region = regions.setdefault(held.region, np.empty(held.region.extent, np.float32))
            _layer(leaf, region, held.layer)[...] = _first(leaf, held, seed)
        return self._from_regions(leaf, regions)

    def _from_regions(self, leaf: Leaf, regions: Mapping[Box, FloatArray]) -> Array:
        place = make_sharding(self._grid, *leaf.axes)

        def region(index: tuple[slice, ...]) -> FloatArray:
            return regions[_box(index, leaf.full_shape)]

        result: Array = jax.make_array_from_callback(leaf.full_shape, place, region)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A region of a tensor on this process.

    Attributes:
        piece: Name and box of the region.
        region: Box in the leaf's array.
        layer: Layer of the tensor in a stacked leaf.
        writes: Whether this process writes the region.
    """

    piece: TensorRegion
    region: Box
    layer: int
    writes: bool


class _Filling:
    """A leaf whose regions arrive one by one."""

    def __init__(self, leaf: Leaf, held: Sequence[_Held]) -> None:
        self.leaf, self.held = leaf, held
        self.missing = {one.piece for one in held}
        self.regions: dict[Box, FloatArray] = {}
        self._where = {one.piece: one for one in held}

    def take(self, piece: TensorRegion, value: FloatArray) -> None:
        one = self._where[piece]
        if one.region not in self.regions:
            self.regions[one.region] = np.empty(one.region.extent, np.float32)
        _layer(self.leaf, self.regions[one.region], one.layer)[...] = value
        self.missing.discard(piece)


def _first(leaf: Leaf, held: _Held, seed: int) -> FloatArray:
    if leaf.key.startswith("optimizer/"):
        return np.zeros(held.piece.box.extent, np.float32)
    return make_initial_values(leaf.weight.parameters[held.layer], held.piece.box, seed)


def _layer(leaf: Leaf, region: FloatArray, layer: int) -> FloatArray:
    return region[layer] if leaf.weight.stacked else region


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    bounds = [entry.indices(size) for entry, size in zip(index, shape, strict=True)]
    return Box(tuple(start for start, _, _ in bounds), tuple(end - start for start, end, _ in bounds))
