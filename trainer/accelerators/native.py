"""Devices that are part of torch: the processor, NVIDIA GPUs, and Neuron cores with AWS's native backend.

They differ in one row of a table; standard torch does the rest.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from trainer.accelerators import discovery
from trainer.accelerators.discovery import Device
from trainer.accelerators.peaks import peak_flops
from trainer.config import DTypeName, OptimConfig
from trainer.data import Rows
from trainer.distributed import Backend, Team
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.gradients import FlatGradients, Gradients

NativeName: TypeAlias = Literal["cpu", "cuda", "neuron"]


@dataclass(frozen=True, slots=True)
class Row:
    """backend: of the gradient sums. compiler: of torch.compile. fused: AdamW has a fused kernel there."""

    name: NativeName
    backend: Backend
    compiler: str
    fused: bool
    absent: str


CPU = Row("cpu", "gloo", "inductor", fused=True, absent="")
CUDA = Row("cuda", "nccl", "inductor", fused=True, absent="install a CUDA build of torch, and check with `nvidia-smi`")
# TorchNeuron, the native backend of torch-neuronx since Neuron 2.33 (October 2026): Trn2 and Trn3 only.
NEURON = Row(
    "neuron",
    "neuron",
    "neuron",
    fused=False,
    absent="take an image of AWS Neuron: 2.33 or later on Trn2 and Trn3, 2.28 with torch_xla on Trn1",
)
ROWS = {row.name: row for row in (CPU, CUDA, NEURON)}


class NativeAccelerator:
    """See trainer.accelerators.base.Accelerator."""

    read_every = 1
    parts = 1

    def __init__(self, row: Row, world: World) -> None:
        """Raises DeviceError when torch has no such device, or fewer than there are ranks here."""
        self._row = row
        self._module = _open(row, world)
        self._local_size = world.local_size
        self.name = row.name
        self.backend: Backend = row.backend
        self.device = torch.device("cpu" if row is CPU else f"{row.name}:{world.local_rank}")

    def describe(self) -> Device:
        if self._row is CPU:
            return discovery.processor()
        found = [device for device in discovery.discover() if device.kind == self._row.name]
        index = self.device.index
        for device in found:
            if device.index == index:
                return device
        return Device(self._row.name, str(self.device), "unknown", index, None, None, None)

    def note(self) -> str:
        idle = 0 if self._module is None else int(self._module.device_count()) - self._local_size
        if not idle:
            return ""
        return (
            f"note: {idle} {self.name} devices of this host are not used; start one rank for each with "
            "`torchrun --nproc-per-node N -m trainer ...`"
        )

    def set_deterministic(self) -> None:
        # cuBLAS reads this once, when its first handle is made (cuBLAS documentation, "Results reproducibility").
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Else every new tensor is filled first, which shows reads of unset memory: an aid for debugging torch.
        unchecked: Any = torch.utils.deterministic  # the switch is made at run time, so no checker knows it
        unchecked.fill_uninitialized_memory = False

    def to_device(self, rows: Rows) -> Tensor:
        return torch.as_tensor(rows).to(self.device)

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        if dtype == "fp32":
            return nullcontext()
        return torch.autocast(device_type=self.device.type, dtype=torch.bfloat16)

    def compile(self, model: nn.Module) -> nn.Module:
        unchecked: Any = model  # torch annotates this method only in part
        unchecked.compile(backend=self._row.compiler, dynamic=False)
        return model

    def gradients(self, model: nn.Module, team: Team) -> Gradients:
        return FlatGradients(model.parameters(), team)

    def optimizer(self, groups: list[dict[str, object]], config: OptimConfig) -> Optimizer:
        return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=self._row.fused)

    def boundary(self) -> None:
        pass

    def synchronize(self) -> None:
        if self._module is not None:
            self._module.synchronize()

    def random_states(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self._module is not None:
            states["device"] = self._module.get_rng_state(self.device.index)
        return states

    def set_random_states(self, states: dict[str, Tensor]) -> None:
        torch.set_rng_state(states["cpu"])
        if self._module is not None and "device" in states:
            self._module.set_rng_state(states["device"], self.device.index)

    def peak_flops(self, dtype: DTypeName) -> float | None:
        return peak_flops(self.describe().name, dtype)


def _open(row: Row, world: World) -> ModuleType | None:
    """torch's module of the device; None for the processor."""
    if row is CPU:
        return None
    # torch.<name> exists without the hardware (cuda) or only with its package (neuron).
    module: ModuleType | None = getattr(torch, row.name, None)
    if module is None or not module.is_available():
        raise DeviceError(f"device={row.name}: torch {torch.__version__} finds none; {row.absent}")
    count: int = module.device_count()
    if world.local_size > count:
        raise DeviceError(f"device={row.name}: {world.local_size} ranks on this host, but only {count} devices")
    module.set_device(world.local_rank)
    return module
