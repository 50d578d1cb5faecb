"""The torch engine for devices that torch supports itself, with one process per device.

build.py assembles the parts: a plain model (model.py), sharded from outside (parallel.py), its weights as plain tensors
(slots.py), sums of gradients (gradients.py), an optimizer, and the state as regions for checkpoints (state.py).
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
from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.registry import choose_engine, open_native_device
from trainer.accelerators.usable_memory import find_usable_share
from trainer.agreement import agree_on_memory
from trainer.config import Config, EngineName
from trainer.engine import Engine, FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.shape.box import TensorRegion
from trainer.shape.limits import refuse_experts
from trainer.shape.lora import list_run_parameters
from trainer.shape.memory import resolve_remat
from trainer.shape.mesh import Mesh, RowShare, Topology, assign_rows, check_batch, refuse_context, resolve_mesh
from trainer.shape.pipeline import refuse_pipeline
from trainer.team import Team
from trainer.torch_engine import process_group
from trainer.torch_engine.build import BuiltModel, assemble_model, build_sharded_model, list_notes
from trainer.torch_engine.compiling import count_compiled_graphs
from trainer.torch_engine.latest_numbers import LatestNumbers
from trainer.torch_engine.tracing import record_trace


def open_torch_engine(config: Config, world: World, team: Team) -> Engine:
    """Open the engine with initial values in the weights.

    Raises:
        DeviceError: The device is missing or fails.
        ConfigError: The mesh or the batch does not fit the devices.
        PeerError: Another rank is lost.
    """
    # Only `auto` inspects the machine: nvidia-smi takes seconds where no daemon keeps the driver loaded.
    _, word = choose_engine(replace(config, engine="torch"), discover_devices() if config.device == "auto" else ())
    if word == "xla":
        from trainer.xla_engine.engine import open_xla_engine

        return open_xla_engine(config, world, team)
    torch.set_num_threads(world.threads(config.threads))
    accelerator = open_native_device(word, world)
    mesh = choose_mesh(config, world, accelerator.device)
    if word not in ("cpu", "cuda"):
        refuse_context(mesh, f"torch's device {word}")
        refuse_experts(config.model, f"torch's device {word}")
    refuse_pipeline(config, mesh, "" if word in ("cpu", "cuda") else f"torch's device {word}")
    check_batch(config, mesh)
    usable = _agree_on_memory(accelerator, team) if config.remat == "auto" else None
    config = resolve_remat(config, mesh, "torch", usable)
    accelerator.set_exactness(exact=config.exact, compiled=config.compiled)
    if world.size > 1:
        process_group.join_process_group(accelerator.device, accelerator.backend, team, config.dist)
    # Only now: TorchNeuron's runtime must not start before its process group (torch_neuronx.distributed, 2026).
    accelerator.seed(config.seed)
    return TorchEngine(config, world, accelerator, mesh)


def _agree_on_memory(accelerator: NativeAccelerator, team: Team) -> int | None:
    sharers = team.world.local_size if accelerator.name == "cpu" else 1
    return agree_on_memory(team, find_usable_share(accelerator.describe(), sharers))


def choose_mesh(config: Config, world: World, device: torch.device) -> Mesh:
    """Choose the mesh: replicas on CPUs, whose network is slow; sharded weights among the GPUs of a host.

    Raises:
        ConfigError: The mesh does not fit the devices or the model.
    """
    divides = device.type != "cpu"
    return resolve_mesh(config.mesh, Topology(world.size, world.local_size if divides else 1, divides), config.model)


class TorchEngine:
    """Implements trainer.engine.Engine on one device per process."""

    name: EngineName = "torch"

    def __init__(self, config: Config, world: World, accelerator: NativeAccelerator, mesh: Mesh) -> None:
        """Build the model; a mesh of more than one device needs the default process group."""
        self._config, self._world, self._accelerator = config, world, accelerator
        self.mesh = mesh
        self.share: RowShare = assign_rows(mesh, world.rank, world.size)
        with self._translated():
            parts = build_sharded_model(config, accelerator, mesh)
            self._build: BuiltModel = assemble_model(config, accelerator, mesh, parts, world.rank)
            self._build.initialize_weights(config.seed)
        self._newest = LatestNumbers(accelerator.device)
        self.read_every = 1 if accelerator.device.type == "cpu" else 10

    @property
    def peak_flops(self) -> float | None:
        one = self._accelerator.peak_flops("fp32" if self._config.products == "fp32" else "bf16")
        return None if one is None else one * self.mesh.devices

    def headline(self) -> str:
        mesh = self.mesh
        more = f" context={mesh.context}" if mesh.context > 1 else ""
        more += f" pipeline={mesh.pipeline}" if mesh.pipeline > 1 else ""
        where = f", mesh data={mesh.data} fsdp={mesh.fsdp} tensor={mesh.tensor}{more} ({self._accelerator.backend})"
        level = self._config.recomputed
        how = f"{self._config.products}{', compiled' if self._config.compiled else ''}"
        how += ", bf16 residual stream" if self._config.residual == "bf16" else ""
        how += f", float8 {self._config.float8}" if self._config.float8 != "none" else ""
        how += f", remat {level}" if level != "none" else ""
        return (
            f"torch {torch.__version__} on {self._accelerator.device}, {how}, {torch.get_num_threads()} threads"
            f"{where if mesh.devices > 1 else ''}"
        )

    def notes(self) -> Sequence[str]:
        return [*self._accelerator.notes(self._config), *list_notes(self._build)]

    def program(self) -> str:
        config = self._config
        parts = {
            "model": asdict(config.model),
            "optim": asdict(config.optim),
            "lora": asdict(config.lora),
            "mesh": asdict(self.mesh),
            "step": [
                config.batch,
                config.seq_len,
                config.accumulate,
                config.grad_clip,
                config.recomputed,
                config.compiled,
                config.marked,
                config.data.document_mask,
            ],
            "dtype": "fp32" if config.products == "fp32" else "bf16",
            "torch": torch.__version__,
            "backend": self._accelerator.backend,
            "modules": str(self._build.model) if self.mesh.pipeline == 1 else "",  # stages differ
            "parameters": [(one.name, one.shape) for one in list_run_parameters(config.model, config.lora)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        with self._translated():
            self._newest.put(self._build.step(self._accelerator.to_device(rows), rate, stop, step))

    def numbers(self) -> Numbers:
        with self._translated():
            return self._newest.read()

    def evaluate(self, rows: TokenArray) -> float:
        with self._translated():
            return float(self._build.evaluate(self._accelerator.to_device(rows)))

    def written(self) -> Sequence[TensorRegion]:
        return self._build.state.written()

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        with self._translated():
            self._build.state.copy_out(into)

    def needed(self) -> Sequence[TensorRegion]:
        return self._build.state.needed()

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        with self._translated():
            self._build.state.load(values)

    def memory(self) -> int | None:
        return self._accelerator.memory()

    def counters(self) -> Mapping[str, float]:
        return {"compilations": count_compiled_graphs()} if self._config.compiled else {}

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
        return record_trace(folder, self._world.rank, self._accelerator)

    def close(self) -> None:
        """Wait for the device; the process group stays, because its destructor is unsafe (see exit_process)."""
        self._accelerator.synchronize()

    def _translated(self) -> AbstractContextManager[None]:
        return process_group.translate_errors(self._world, self._config.dist.timeout)
