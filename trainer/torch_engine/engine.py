"""The torch engine for devices that torch knows itself: one process for each device.

build.py puts the pieces together: a plain model (model.py), divided from outside (parallel.py), its weights as plain
tensors (slots.py), sums of gradients (gradients.py), an optimizer, and all of it as regions for checkpoints (state.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from trainer.accelerators.base import NativeAccelerator
from trainer.accelerators.discovery import discover
from trainer.accelerators.registry import choose_engine, open_native
from trainer.config import Config, EngineName
from trainer.engine import Engine, FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.shape.box import Piece
from trainer.shape.mesh import Mesh, RowShare, Topology, check_batch, resolve, row_share
from trainer.team import Team
from trainer.torch_engine import group
from trainer.torch_engine.build import Build, assemble, divided, notes_of
from trainer.torch_engine.compiling import graphs
from trainer.torch_engine.numbers import Newest
from trainer.torch_engine.tracing import trace


def open_torch(config: Config, world: World, team: Team) -> Engine:
    """Weights have their first values. Raises DeviceError, ConfigError, PeerError."""
    # Only `auto` needs to know the machine: nvidia-smi takes seconds where no daemon keeps the driver loaded.
    _, word = choose_engine(replace(config, engine="torch"), discover() if config.device == "auto" else ())
    if word == "xla":
        from trainer.xla_engine.engine import open_xla

        return open_xla(config, world, team)
    torch.set_num_threads(world.threads(config.threads))
    accelerator = open_native(word, world)
    mesh = mesh_of(config, world, accelerator.device)
    check_batch(config, mesh)
    if config.deterministic:
        accelerator.set_deterministic(compiled=config.compile)
    if world.size > 1:
        group.join(accelerator.device, accelerator.backend, team, config.dist)
    # After: TorchNeuron's runtime must not be started before its process group (torch_neuronx.distributed, 2026).
    accelerator.seed(config.seed)
    return TorchEngine(config, world, accelerator, mesh)


def mesh_of(config: Config, world: World, device: torch.device) -> Mesh:
    """Copies on processors, whose network is slow; divided weights among the GPUs of a host. Raises ConfigError."""
    divides = device.type != "cpu"
    return resolve(config.mesh, Topology(world.size, world.local_size if divides else 1, divides), config.model)


class TorchEngine:
    """See trainer.engine.Engine."""

    name: EngineName = "torch"

    def __init__(self, config: Config, world: World, accelerator: NativeAccelerator, mesh: Mesh) -> None:
        """The default process group must be there when the mesh has more than one device."""
        self._config, self._world, self._accelerator = config, world, accelerator
        self.mesh = mesh
        self.share: RowShare = row_share(mesh, world.rank, world.size)
        with self._translated():
            parts = divided(config, accelerator, mesh)
            self._build: Build = assemble(config, accelerator, mesh, parts, world.rank)
            self._build.begin(config.seed)
        self._newest = Newest(accelerator.device)
        self.read_every = 1 if accelerator.device.type == "cpu" else 10

    @property
    def peak_flops(self) -> float | None:
        one = self._accelerator.peak_flops("fp32" if self._config.dtype == "fp32" else "bf16")
        return None if one is None else one * self.mesh.devices

    def headline(self) -> str:
        mesh = self.mesh
        where = f", mesh data={mesh.data} fsdp={mesh.fsdp} tensor={mesh.tensor} ({self._accelerator.backend})"
        return (
            f"torch {torch.__version__} on {self._accelerator.device}, {torch.get_num_threads()} threads"
            f"{where if mesh.devices > 1 else ''}"
        )

    def notes(self) -> Sequence[str]:
        return [*self._accelerator.notes(self._config), *notes_of(self._build)]

    def program(self) -> str:
        config = self._config
        parts = {
            "model": asdict(config.model),
            "optim": asdict(config.optim),
            "mesh": asdict(self.mesh),
            "step": [config.batch, config.seq_len, config.accumulate, config.grad_clip, config.remat, config.compile],
            "dtype": "fp32" if config.dtype == "fp32" else "bf16",
            "torch": torch.__version__,
            "backend": self._accelerator.backend,
            "modules": str(self._build.model),
            "parameters": [(slot.parameter.name, slot.parameter.shape) for slot in self._build.slots],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        with self._translated():
            self._newest.put(self._build.step(self._accelerator.to_device(rows), rate, stop, step))

    def numbers(self) -> Numbers:
        with self._translated():
            return self._newest.read()

    def written(self) -> Sequence[Piece]:
        return self._build.state.written()

    def copy_out(self, into: Mapping[Piece, FloatArray]) -> None:
        with self._translated():
            self._build.state.copy_out(into)

    def needed(self) -> Sequence[Piece]:
        return self._build.state.needed()

    def load(self, values: Iterable[tuple[Piece, FloatArray]]) -> None:
        with self._translated():
            self._build.state.load(values)

    def memory(self) -> int | None:
        return self._accelerator.memory()

    def counters(self) -> Mapping[str, float]:
        return {"compilations": graphs()} if self._config.compile else {}

    def diagnostics(self) -> Mapping[str, Any]:
        return {
            "device": self._accelerator.describe().as_json(),
            "backend": self._accelerator.backend,
            "torch": torch.__version__,
            "mesh": asdict(self.mesh),
            "counters": dict(self.counters()),
            "notes": list(self.notes()),
            "library": self._accelerator.snapshot(),
        }

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        return trace(folder, self._world.rank, self._accelerator)

    def close(self) -> None:
        """The process group stays: its destructor is not safe (see group.leave)."""
        self._accelerator.synchronize()

    def _translated(self) -> AbstractContextManager[None]:
        return group.translated(self._world, self._config.dist.timeout)
