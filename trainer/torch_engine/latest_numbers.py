"""Transfer of a step's numbers from the device without making it wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.engine import Numbers


@dataclass(frozen=True, slots=True)
class _Sent:
    """Numbers in transfer to the CPU.

    Attributes:
        values: Loss, stop requests, norm; with experts also those of the router.
        arrived: Event to wait for; None when reading the values waits.
    """

    values: Tensor
    arrived: Any


class LatestNumbers:
    """The numbers of the latest step, computed on `device`."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._newest: _Sent | None = None

    def put(self, numbers: Tensor) -> None:
        """Start the transfer of what BuiltModel.step returns."""
        if self._kind != "cuda":
            self._newest = _Sent(numbers, None)
            return
        values = numbers.to("cpu", non_blocking=True)
        unchecked: Any = torch.cuda
        arrived = unchecked.Event()
        arrived.record()
        self._newest = _Sent(values, arrived)

    def read(self) -> Numbers:
        """Wait for the numbers of the latest step, and return them."""
        if self._newest is None:
            raise AssertionError("no step has been run yet")
        if self._newest.arrived is not None:
            self._newest.arrived.synchronize()
        loss, stops, norm, *router = (float(number) for number in self._newest.values.cpu().unbind())
        router_loss, share = router or (None, None)
        return Numbers(loss=loss, grad_norm=norm, stops=round(stops), router_loss=router_loss, expert_share=share)
