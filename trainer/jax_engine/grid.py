"""The devices of all processes in the order of the mesh (data, fsdp, tensor), and the rows of each process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from trainer.errors import ConfigError
from trainer.jax_engine.arithmetic import AXES, DATA, FSDP
from trainer.jax_engine.library import jax, mesh_utils
from trainer.shape.mesh import Mesh, RowShare, Topology

Grid: TypeAlias = Any  # jax.sharding.Mesh
Sharding: TypeAlias = Any  # jax.sharding.NamedSharding
Device: TypeAlias = Any  # jax.Device, or the description of one that is not attached


def detect_topology(devices: Sequence[Device]) -> Topology:
    """Describe the fast networks: on TPUs a slice is one, elsewhere a host."""
    platform = devices[0].platform
    by_network = Counter(_slice(device) if platform == "tpu" else device.process_index for device in devices)
    return Topology(devices=len(devices), fast_devices=min(by_network.values()), shard_weights=platform != "cpu")


def arrange_devices(devices: Sequence[Device], mesh: Mesh) -> Grid:
    """Arrange the devices as a mesh.

    Neighbours on the network of a TPU slice become neighbours of the mesh if every process then still has consecutive
    rows. Otherwise the order is by slice, process and device. That order costs nothing: libtpu 0.0.42 gathers with the
    same algorithm and estimate either way, because it renumbers the members of a group (v5e:4x4, v5p:2x2x4 and
    v5p:4x4x4, November 2026).
    """
    on_tpu = devices[0].platform == "tpu"
    ordered = sorted(devices, key=lambda one: (_slice(one) if on_tpu else 0, one.process_index, one.id))
    plain = jax.sharding.Mesh(np.array(ordered, object).reshape(mesh.data, mesh.fsdp, mesh.tensor), AXES)
    if not on_tpu or len(devices) == 1:
        return plain
    near = _near(ordered, mesh)
    if near is None or any(
        _find_rows(near, process, mesh.context) is None for process in {d.process_index for d in devices}
    ):
        return plain
    return near


def assign_rows(grid: Grid, process: int, context: int) -> RowShare:
    """Return the rows of a process; `context` neighbours have the same ones.

    Raises:
        ConfigError: They are not consecutive.
    """
    found = _find_rows(grid, process, context)
    if found is None:
        raise ConfigError(
            "mesh.tensor x mesh.context does not fit the devices of a host: its rows would not be consecutive; "
            "choose a product that divides the host's devices or is a multiple of them"
        )
    return found


def _find_rows(grid: Grid, process: int, context: int) -> RowShare | None:
    """Return the rows of a process by the positions of its devices; None when there are gaps."""
    shards = grid.devices.reshape(-1, context * grid.devices.shape[-1])
    mine = [at for at, row in enumerate(shards) if any(device.process_index == process for device in row)]
    if not mine or mine != list(range(mine[0], mine[-1] + 1)):
        return None
    return RowShare(mine[0], len(mine), len(shards))


def _near(devices: Sequence[Device], mesh: Mesh) -> Grid | None:
    """Arrange neighbours on the network; None where the library finds no such order."""
    shape = (mesh.data, mesh.fsdp, mesh.tensor)
    slices = len({_slice(device) for device in devices})
    try:
        if slices == 1:
            found = mesh_utils.create_device_mesh(shape, devices)
        elif mesh.data % slices == 0:
            within = (mesh.data // slices, mesh.fsdp, mesh.tensor)
            found = mesh_utils.create_hybrid_device_mesh(within, (slices, 1, 1), devices)
        else:
            return None
    except (ValueError, NotImplementedError, AssertionError):
        return None
    return jax.sharding.Mesh(found, AXES)


def _slice(device: Device) -> int:
    """Return the number of the TPU slice; devices without one are in slice 0."""
    return int(getattr(device, "slice_index", 0) or 0)


def make_rows_sharding(grid: Grid) -> Sharding:
    """Return the sharding of a step's rows, (micro-batches, rows, tokens), with a copy for each device of a context."""
    return make_sharding(grid, None, (DATA, FSDP), None)


def make_sharding(grid: Grid, *axes: Any) -> Sharding:
    """Return the sharding of an array by the mesh axes of its dimensions, as in a PartitionSpec."""
    return jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*axes))
