"""Copies of a device's values for a checkpoint, while training stands still for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STAGE_BYTES = 64 << 20


class Outward:
    """A GPU writes fast only into memory that the system may not move, so values take two steps through two buffers of
    such memory: while one is being filled, the other is emptied. (To take all of a checkpoint's memory in this way
    would take it from the host for good.)"""

    def __init__(self, device: torch.device, *, staged: bool | None = None, stage_bytes: int = STAGE_BYTES) -> None:
        """staged: take the two steps; None: where it is faster, which is on CUDA."""
        self._cuda = device.type == "cuda"
        self._staged = self._cuda if staged is None else staged
        self._length = stage_bytes // 4
        self._stages: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """pairs: (values, target), float32, of one shape each; targets lie in memory. Done on return."""
        if not self._staged:
            for values, target in pairs:
                target.copy_(values)
            return
        if not self._stages:
            self._stages = tuple(torch.empty(self._length, pin_memory=self._cuda) for _ in range(2))
        before: _Sent | None = None
        for index, (values, target) in enumerate(_parts(pairs, self._length)):
            sent = self._send(values, target, self._stages[index % 2])
            if before is not None:
                before.arrive()
            before = sent
        if before is not None:
            before.arrive()

    def _send(self, values: Tensor, target: Tensor, stage: Tensor) -> _Sent:
        part = stage[: len(values)]
        part.copy_(values, non_blocking=True)
        if not self._cuda:
            return _Sent(part, target, None)
        unchecked: Any = torch.cuda
        there = unchecked.Event()
        there.record()
        return _Sent(part, target, there)


@dataclass(frozen=True, slots=True)
class _Sent:
    """part: of a stage, on its way. there: an event to wait for; None: it has arrived."""

    part: Tensor
    target: Tensor
    there: Any

    def arrive(self) -> None:
        if self.there is not None:
            self.there.synchronize()
        self.target.copy_(self.part)


def _parts(pairs: Iterable[tuple[Tensor, Tensor]], length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Flat pieces of at most `length` values, each with its target."""
    for values, target in pairs:
        flat, into = values.reshape(-1), target.view(-1)
        for first in range(0, len(flat), length):
            yield flat[first : first + length], into[first : first + length]
