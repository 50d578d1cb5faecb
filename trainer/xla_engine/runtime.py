"""torch_xla's devices as one mesh; each host runs one process, which drives all its devices (SPMD)."""

from __future__ import annotations

import importlib
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.accelerators import discovery
from trainer.accelerators.device import Device
from trainer.config import Config
from trainer.engine import TokenArray
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.shape.mesh import Mesh, RowShare, Topology, resolve_mesh
from trainer.team import Team

Spec: TypeAlias = "tuple[str | tuple[str, ...] | None, ...]"
"""The axes of the mesh that shard each dimension of a tensor."""

ROWS = ("data", "fsdp")
_PLUGINS = {"tpu": "TPU", "neuron": "NEURON"}


class Runtime:
    """The devices of all hosts, in rank order; torch_xla has no type annotations, so its modules are Any."""

    def __init__(self, world: World, team: Team) -> None:
        """Initialize torch_xla.

        Raises:
            DeviceError: torch_xla is missing, has no device, or sees another number of hosts.
        """
        self._found = discovery.discover_devices()
        if "PJRT_DEVICE" not in os.environ:
            kinds = (_PLUGINS[device.kind] for device in self._found if device.kind in _PLUGINS)
            os.environ["PJRT_DEVICE"] = next(kinds, "CPU")
        self.plugin = os.environ["PJRT_DEVICE"]
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else XLA prints a deprecation warning with every program
        self.xla = load_module("torch_xla")
        self.spmd = load_module("torch_xla.distributed.spmd")
        self.metrics = load_module("torch_xla.debug.metrics")
        self.model = load_module("torch_xla.core.xla_model")
        runtime = load_module("torch_xla.runtime")
        if world.size > 1 and self.plugin == "CPU":
            raise DeviceError("device=xla: torch_xla's CPU backend supports only one host; use device=cpu for several")
        _multiply_in_full(load_module("torch_xla.backends"))
        try:
            runtime.use_spmd()
            self.device: torch.device = self.xla.device()
            self.count: int = runtime.global_runtime_device_count()
            self.local: int = runtime.addressable_runtime_device_count()
            processes: int = runtime.process_count()
            self._attributes: Sequence[Mapping[str, Any]] = runtime.global_runtime_device_attributes()
        except RuntimeError as error:
            raise DeviceError(f"device=xla: torch_xla finds no {self.plugin} device: {error}") from error
        if processes != world.size:
            raise DeviceError(
                f"device=xla: {world.size} ranks, but torch_xla sees {processes} processes: one rank must run "
                "on each host of the slice, with the environment that `orch` sets"
            )
        self.world = world
        self.order = self._order(team)

    @property
    def first(self) -> int:
        """Index in our order of this process's first device."""
        return self.world.rank * self.local

    def mesh(self, config: Config) -> Mesh:
        """Choose the mesh.

        Raises:
            ConfigError: It does not fit the devices or the model.
        """
        return resolve_mesh(config.mesh, detect_topology(self.plugin, self.local, self._attributes), config.model)

    def describe(self) -> Device:
        kinds = [kind for kind, plugin in _PLUGINS.items() if plugin == self.plugin]
        return next((device for device in self._found if device.kind in kinds), self._found[-1])

    def _order(self, team: Team) -> list[int]:
        """Return torch_xla's number of each device, rank by rank: on a slice, a host's chips are not consecutive."""
        ids = list(range(self.count))
        probe: Any = torch.zeros(self.count, device=self.device)
        marked = self.spmd.mark_sharding(probe, self.spmd.Mesh(ids, (self.count,), ("all",)), ("all",))
        self.names: Mapping[int, str] = {
            parse_device_number(shard.shard_device): shard.shard_device for shard in marked.local_shards
        }
        mine = list(self.names)
        return [number for numbers in team.gather(mine) for number in numbers]


class ShardingMarker:
    """Places tensors on the mesh."""

    def __init__(self, runtime: Runtime, mesh: Mesh) -> None:
        self._runtime = runtime
        self._spmd = runtime.spmd
        shape = (mesh.data, mesh.fsdp, mesh.tensor)
        self._mesh: Any = runtime.spmd.Mesh(np.array(runtime.order), shape, ("data", "fsdp", "tensor"))
        self._place = {number: device for device, number in enumerate(runtime.order)}

    def mark_sharding(self, tensor: Tensor, spec: Spec) -> None:
        """Set how a tensor that persists from step to step is sharded."""
        self._spmd.mark_sharding(tensor, self._mesh, spec)

    def mark_rows(self, tensor: Tensor) -> Tensor:
        """Return the same values with the first dimension sharded as the rows are; so is the gradient."""
        spec = (ROWS, *([None] * (tensor.dim() - 1)))
        result: Tensor = self._spmd.mark_sharding_with_gradients(tensor, self._mesh, spec)
        return result

    def send_rows(self, rows: TokenArray, share: RowShare) -> Tensor:
        """Send this process's rows to the devices, as its part of one global tensor."""
        return self._send(make_global_rows(rows.astype(np.int32), share), (ROWS, None))

    def list_shards(self, tensor: Tensor) -> list[tuple[int, Any]]:
        """List (our index of the device, torch_xla's shard with a copy of the values) for each local device."""
        wrapped: Any = self._spmd.XLAShardedTensor(tensor)
        return [(self._place[parse_device_number(shard.shard_device)], shard) for shard in wrapped.local_shards]

    def count_stops(self, stop: bool) -> Tensor:
        """Return the number of processes that request a stop, as a tensor."""
        flags = np.zeros((self._runtime.count, 1), np.float32)
        flags[self._runtime.first] = float(stop)
        return self._send(flags, ((*ROWS, "tensor"), None)).sum()

    def replace_values(self, tensor: Tensor, parts: Mapping[int, Tensor]) -> None:
        """Replace the values.

        Args:
            tensor: Sharded or replicated.
            parts: For each device of this process, by our index, its shard.
        """
        shards = [
            self._spmd.XLAShard(data, ..., self._runtime.names[self._runtime.order[device]], 0)
            for device, data in parts.items()
        ]
        self._spmd.XLAShardedTensor(tensor).load_local_shards_(shards)

    def run_trace(self) -> None:
        """Execute what was traced."""
        self._runtime.xla.sync()

    def _send(self, whole: npt.NDArray[np.generic], spec: Spec) -> Tensor:
        """Send the local shards of the whole to the devices.

        Not as a `minibatch`: that gives every device its own rows, also those of one tensor group (torch_xla 2.9,
        xla_sharding_util.cpp).
        """
        place = self._spmd.ShardingSpec(self._mesh, spec)
        sent: list[Tensor] = self._runtime.model.send_cpu_data_to_device(
            torch.as_tensor(whole), self._runtime.device, place
        )
        return sent[0]


def detect_topology(plugin: str, local: int, attributes: Sequence[Mapping[str, Any]]) -> Topology:
    """Describe the fast networks: on TPUs a slice is one, elsewhere a host.

    Args:
        plugin: Value of PJRT_DEVICE.
        local: Number of devices of a host.
        attributes: Of every device; only devices of several slices report their slice.
    """
    slices = Counter(int(one.get("slice_index", 0)) for one in attributes)
    fast = min(slices.values()) if plugin == "TPU" else local
    return Topology(len(attributes), fast, shard_weights=plugin != "CPU")


def make_global_rows(rows: npt.NDArray[np.generic], share: RowShare) -> npt.NDArray[np.generic]:
    """Return an array of all processes' rows in which only this process's have values; the others are not read."""
    each = len(rows) // share.count
    whole = np.zeros((each * share.total, *rows.shape[1:]), rows.dtype)
    whole[share.first * each : (share.first + share.count) * each] = rows
    return whole


def _multiply_in_full(backends: Any) -> None:
    """Compute products of fp32 in fp32; on a TPU torch_xla rounds the factors to bf16 by default.

    Operands that autocast converted to bf16 stay so. It must be set before the first trace, because it is part of each
    traced product.
    """
    if backends.get_mat_mul_precision() != "highest":
        backends.logger.setLevel(logging.ERROR)  # it warns whenever this is set, also the first time
        backends.set_mat_mul_precision("highest")


def parse_device_number(device: str) -> int:
    """Return the number in a device name, such as 3 in `TPU:3`."""
    return int(device.rpartition(":")[2])


def load_module(name: str) -> Any:
    """Import a module of torch_xla.

    Raises:
        DeviceError: It is missing; the message says what to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"device=xla: {name} cannot be imported ({error}); it needs torch==2.9.0 with torch_xla==2.9.0, "
            "in a separate environment"
        ) from error
