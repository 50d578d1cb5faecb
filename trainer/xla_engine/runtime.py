"""torch_xla's devices as one mesh. Each host runs one process, which drives all its devices (SPMD)."""

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
from trainer.shape.mesh import Mesh, RowShare, Topology, resolve
from trainer.team import Team

Spec: TypeAlias = "tuple[str | tuple[str, ...] | None, ...]"
"""The axes of the mesh that divide each dimension of a tensor."""

ROWS = ("data", "fsdp")
_PLUGINS = {"tpu": "TPU", "neuron": "NEURON"}


class Runtime:
    """The devices of all hosts, in rank order. torch_xla has no type annotations, so its modules are Any here."""

    def __init__(self, world: World, team: Team) -> None:
        """Raises DeviceError when torch_xla is absent, has no device, or does not see the hosts that we see."""
        self._found = discovery.discover()
        if "PJRT_DEVICE" not in os.environ:
            kinds = (_PLUGINS[device.kind] for device in self._found if device.kind in _PLUGINS)
            os.environ["PJRT_DEVICE"] = next(kinds, "CPU")
        self.plugin = os.environ["PJRT_DEVICE"]
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else XLA announces at every program that it will change
        self.xla = load("torch_xla")
        self.spmd = load("torch_xla.distributed.spmd")
        self.metrics = load("torch_xla.debug.metrics")
        self.model = load("torch_xla.core.xla_model")
        runtime = load("torch_xla.runtime")
        if world.size > 1 and self.plugin == "CPU":
            raise DeviceError(
                "device=xla: torch_xla's processor backend knows one host only; use device=cpu for several"
            )
        _multiply_in_full(load("torch_xla.backends"))
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
                f"device=xla: {world.size} ranks, but torch_xla sees {processes} processes: one rank on each host of "
                "the slice must run, with the environment that `orch` sets"
            )
        self.world = world
        self.order = self._order(team)

    @property
    def first(self) -> int:
        """This process's first device, in our order."""
        return self.world.rank * self.local

    def mesh(self, config: Config) -> Mesh:
        """Raises ConfigError."""
        return resolve(config.mesh, topology_of(self.plugin, self.local, self._attributes), config.model)

    def describe(self) -> Device:
        kinds = [kind for kind, plugin in _PLUGINS.items() if plugin == self.plugin]
        return next((device for device in self._found if device.kind in kinds), self._found[-1])

    def _order(self, team: Team) -> list[int]:
        """torch_xla's number of each device, rank by rank: on a slice, a host's chips are not numbered in a row."""
        ids = list(range(self.count))
        probe: Any = torch.zeros(self.count, device=self.device)
        marked = self.spmd.mark_sharding(probe, self.spmd.Mesh(ids, (self.count,), ("all",)), ("all",))
        self.names: Mapping[int, str] = {
            number_of(shard.shard_device): shard.shard_device for shard in marked.local_shards
        }
        mine = list(self.names)
        return [number for numbers in team.gather(mine) for number in numbers]


class Marks:
    """Puts tensors onto the mesh."""

    def __init__(self, runtime: Runtime, mesh: Mesh) -> None:
        self._runtime = runtime
        self._spmd = runtime.spmd
        shape = (mesh.data, mesh.fsdp, mesh.tensor)
        self._mesh: Any = runtime.spmd.Mesh(np.array(runtime.order), shape, ("data", "fsdp", "tensor"))
        self._place = {number: device for device, number in enumerate(runtime.order)}

    def divide(self, tensor: Tensor, spec: Spec) -> None:
        """Say how a tensor that lives from step to step lies on the devices."""
        self._spmd.mark_sharding(tensor, self._mesh, spec)

    def flow(self, tensor: Tensor) -> Tensor:
        """The same values, whose first dimension is divided as the rows are; so is their gradient."""
        spec = (ROWS, *([None] * (tensor.dim() - 1)))
        result: Tensor = self._spmd.mark_sharding_with_gradients(tensor, self._mesh, spec)
        return result

    def send(self, rows: TokenArray, share: RowShare) -> Tensor:
        """This process's rows, as its part of a tensor that all processes have together."""
        return self._send(whole_of(rows.astype(np.int32), share), (ROWS, None))

    def shards(self, tensor: Tensor) -> list[tuple[int, Any]]:
        """(our number of the device, torch_xla's shard with a copy of the values) for each device of this process."""
        wrapped: Any = self._spmd.XLAShardedTensor(tensor)
        return [(self._place[number_of(shard.shard_device)], shard) for shard in wrapped.local_shards]

    def count(self, wish: bool) -> Tensor:
        """How many processes say yes."""
        flags = np.zeros((self._runtime.count, 1), np.float32)
        flags[self._runtime.first] = float(wish)
        return self._send(flags, ((*ROWS, "tensor"), None)).sum()

    def put(self, tensor: Tensor, parts: Mapping[int, Tensor]) -> None:
        """Replace the values. parts: for each device of this process, by our number, what lies on it."""
        shards = [
            self._spmd.XLAShard(data, ..., self._runtime.names[self._runtime.order[device]], 0)
            for device, data in parts.items()
        ]
        self._spmd.XLAShardedTensor(tensor).load_local_shards_(shards)

    def run(self) -> None:
        """Do what was traced."""
        self._runtime.xla.sync()

    def _send(self, whole: npt.NDArray[np.generic], spec: Spec) -> Tensor:
        """Of the whole, torch_xla takes what lies on this process's devices. Not as a `minibatch`: that gives every
        device rows of its own, also those of one tensor group (torch_xla 2.9, xla_sharding_util.cpp)."""
        place = self._spmd.ShardingSpec(self._mesh, spec)
        sent: list[Tensor] = self._runtime.model.send_cpu_data_to_device(
            torch.as_tensor(whole), self._runtime.device, place
        )
        return sent[0]


def topology_of(plugin: str, local: int, attributes: Sequence[Mapping[str, Any]]) -> Topology:
    """attributes: of every device. TPU: a slice is one fast network, and only devices of several tell theirs. Others:
    a host is one; local: its devices."""
    slices = Counter(int(one.get("slice_index", 0)) for one in attributes)
    fast = min(slices.values()) if plugin == "TPU" else local
    return Topology(len(attributes), fast, divide=plugin != "CPU")


def whole_of(rows: npt.NDArray[np.generic], share: RowShare) -> npt.NDArray[np.generic]:
    """The rows of all processes, of which only this one's have values: nobody looks at the others."""
    each = len(rows) // share.count
    whole = np.zeros((each * share.of, *rows.shape[1:]), rows.dtype)
    whole[share.first * each : (share.first + share.count) * each] = rows
    return whole


def _multiply_in_full(backends: Any) -> None:
    """Products of fp32 are computed in fp32, also on a TPU, where torch_xla rounds them to bf16 unless told otherwise.

    Operands that autocast made bf16 stay so. Before the first trace: it is part of each traced product.
    """
    if backends.get_mat_mul_precision() != "highest":
        backends.logger.setLevel(logging.ERROR)  # it warns whoever sets this, also the first time
        backends.set_mat_mul_precision("highest")


def number_of(device: str) -> int:
    """3 of `TPU:3`."""
    return int(device.rpartition(":")[2])


def load(name: str) -> Any:
    """A module of torch_xla. Raises DeviceError with what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"device=xla: {name} cannot be imported ({error}); it needs torch==2.9.0 with torch_xla==2.9.0, "
            "in an environment of its own"
        ) from error
