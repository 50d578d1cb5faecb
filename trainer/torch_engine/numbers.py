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

    def stops(self) -> int:
        if self.arrived is not None:
            self.arrived.synchronize()
        return round(float(self.values[1]))


class Newest:
    """The numbers of the newest step, and of the one before. device: where they are computed."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._newest: _Sent | None = None
        self._before: _Sent | None = None

    def put(self, numbers: Tensor) -> None:
        """numbers: loss, stops, norm."""
        self._before = self._newest
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
        stops = self._newest.stops()
        loss, _, norm = (float(number) for number in self._newest.values.cpu().unbind())
        return Numbers(loss=loss, grad_norm=norm, stops=stops)

    def stops_before(self) -> int | None:
        """On the processor the newest step's. On GPUs the step's before, which is done, or nearly, while the newest is
        under way; the answer is the same on every process, as "whatever is there by now" would not be. None elsewhere:
        a look would wait for the newest."""
        sent = {"cpu": self._newest, "cuda": self._before}.get(self._kind)
        return None if sent is None else sent.stops()
