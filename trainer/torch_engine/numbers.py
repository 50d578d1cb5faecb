"""A step's numbers on their way from the device, without making it wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.engine import Numbers


@dataclass(frozen=True, slots=True)
class _Sent:
    """values: loss, stops, norm, on their way to the processor. arrived: to wait for; None: waits by itself."""

    values: Tensor
    arrived: Any


class Newest:
    """The numbers of the newest step. device: where they are computed."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._newest: _Sent | None = None

    def put(self, numbers: Tensor) -> None:
        """numbers: loss, stops, norm."""
        if self._kind != "cuda":
            self._newest = _Sent(numbers, None)
            return
        values = numbers.to("cpu", non_blocking=True)
        unchecked: Any = torch.cuda
        arrived = unchecked.Event()
        arrived.record()
        self._newest = _Sent(values, arrived)

    def read(self) -> Numbers:
        if self._newest is None:
            raise AssertionError("no step was made yet")
        if self._newest.arrived is not None:
            self._newest.arrived.synchronize()
        loss, stops, norm = (float(number) for number in self._newest.values.cpu().unbind())
        return Numbers(loss=loss, grad_norm=norm, stops=round(stops))
