"""What the loop needs of a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.accelerators.discovery import Device
from trainer.config import DTypeName, OptimConfig
from trainer.data import Rows
from trainer.distributed import Backend, Team
from trainer.gradients import Gradients


class Accelerator(Protocol):
    """One device of this process, ready for use. The functions that make one raise DeviceError."""

    @property
    def name(self) -> str:
        """The word of `device=`."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def backend(self) -> Backend:
        """Of the process group that adds up gradients."""
        ...

    @property
    def read_every(self) -> int:
        """Steps between two looks at a step's numbers: 1 where a look is cheap."""
        ...

    @property
    def parts(self) -> int:
        """Devices that share the rows of this rank: their number divides every batch."""
        ...

    def describe(self) -> Device:
        """For people and for environment.json."""
        ...

    def note(self) -> str:
        """What the user should know about how the devices are used, or ""."""
        ...

    def set_deterministic(self) -> None: ...

    def to_device(self, rows: Rows) -> Tensor: ...

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]: ...

    def compile(self, model: nn.Module) -> nn.Module: ...

    def gradients(self, model: nn.Module, team: Team) -> Gradients: ...

    def optimizer(self, groups: list[dict[str, object]], config: OptimConfig) -> Optimizer: ...

    def boundary(self) -> None:
        """The end of a step: lazy devices run what was traced."""
        ...

    def synchronize(self) -> None:
        """Wait until everything asked for is done."""
        ...

    def random_states(self) -> dict[str, Tensor]:
        """State of each random generator, as bytes in processor memory."""
        ...

    def set_random_states(self, states: dict[str, Tensor]) -> None: ...

    def peak_flops(self, dtype: DTypeName) -> float | None:
        """Published peak of this device, or None when it is not in our table."""
        ...


def micro_batches(rows: Tensor, count: int) -> Iterator[Tensor]:
    """Split the rows of a rank into equal parts."""
    yield from rows.chunk(count) if count > 1 else (rows,)
