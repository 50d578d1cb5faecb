"""Devices behind torch_xla 2.9, the last release: older TPU setups, and Trn1 with Neuron 2.28.

One process drives all devices of its host (SPMD): the weights are on each, the rows are divided among them.
Not yet served: several hosts.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
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
from trainer.errors import ConfigError, DeviceError
from trainer.gradients import Gradients, PlainGradients


class XlaAccelerator:
    """See trainer.accelerators.base.Accelerator."""

    name = "xla"
    backend: Backend = "gloo"
    # A look at a number runs what was traced and waits for it, so steps would no longer overlap.
    read_every = 10

    def __init__(self, world: World) -> None:
        """Raises DeviceError when torch_xla is absent or has no device, and for several hosts."""
        if world.size > 1:
            raise DeviceError("device=xla: one host only so far; use device=auto on a single host, or cuda")
        self._xla = _load("torch_xla")
        self._spmd = _load("torch_xla.distributed.spmd")
        runtime = _load("torch_xla.runtime")
        try:
            runtime.use_spmd()
            self.device: torch.device = self._xla.device()
            self.parts: int = runtime.global_runtime_device_count()
        except RuntimeError as error:
            raise DeviceError(f"device=xla: torch_xla finds no device: {error}") from error
        self._mesh = self._spmd.Mesh(np.arange(self.parts), (self.parts,), ("data",))

    def describe(self) -> Device:
        for device in discovery.discover():
            if device.kind in ("tpu", "neuron"):
                return device
        return discovery.processor()

    def note(self) -> str:
        return ""

    def set_deterministic(self) -> None:
        pass  # XLA compiles one program for a step and runs it in one order

    def to_device(self, rows: Rows) -> Tensor:
        if len(rows) % self.parts:
            raise ConfigError(f"batch / accumulate must be a multiple of the {self.parts} XLA devices")
        tensor = torch.as_tensor(rows).to(torch.int32).to(self.device)
        self._spmd.mark_sharding(tensor, self._mesh, ("data", None))
        return tensor

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        return nullcontext() if dtype == "fp32" else torch.autocast(device_type="xla", dtype=torch.bfloat16)

    def compile(self, model: nn.Module) -> nn.Module:
        return model  # every step is compiled already

    def gradients(self, model: nn.Module, team: Team) -> Gradients:
        return PlainGradients(model.parameters())

    def optimizer(self, groups: list[dict[str, object]], config: OptimConfig) -> Optimizer:
        return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), foreach=False)

    def boundary(self) -> None:
        self._xla.sync()

    def synchronize(self) -> None:
        self._xla.sync(wait=True)

    def random_states(self) -> dict[str, Tensor]:
        # The model draws nothing on the device.
        return {"cpu": torch.get_rng_state()}

    def set_random_states(self, states: dict[str, Tensor]) -> None:
        torch.set_rng_state(states["cpu"])

    def peak_flops(self, dtype: DTypeName) -> float | None:
        peak = peak_flops(self.describe().name, dtype)
        return None if peak is None else peak * self.parts


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"device=xla: {name} cannot be imported ({error}); it needs torch==2.9.0 with torch_xla==2.9.0, "
            "in an environment of its own"
        ) from error
