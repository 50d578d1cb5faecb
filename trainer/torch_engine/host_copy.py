"""Copies of a device's values in host memory for a checkpoint; training waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STAGE_BYTES = 64 << 20


class HostCopier:
    """Copies through two pinned buffers on CUDA.

    A GPU writes fast only to pinned memory, so values take two hops: while one buffer is filled, the other is emptied.
    Pinning memory for a whole checkpoint would take it from the host permanently.
    """

    def __init__(self, device: torch.device, *, staged: bool | None = None, stage_bytes: int = STAGE_BYTES) -> None:
        """Remember the device.

        Args:
            device: Holds the values.
            staged: Whether to use the pinned buffers; None uses them on CUDA, where it is faster.
            stage_bytes: Size of a buffer.
        """
        self._cuda = device.type == "cuda"
        self._staged = self._cuda if staged is None else staged
        self._length = stage_bytes // 4
        self._stages: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copy each (values, target) pair, float32 and of equal shape; complete on return."""
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
    """A buffer that is being filled.

    Attributes:
        part: The used part of the buffer.
        target: Where the values go next.
        there: Event to wait for; None when the values are there.
    """

    part: Tensor
    target: Tensor
    there: Any

    def arrive(self) -> None:
        if self.there is not None:
            self.there.synchronize()
        self.target.copy_(self.part)


def _parts(pairs: Iterable[tuple[Tensor, Tensor]], length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield flat pieces of at most `length` values, each with its target."""
    for values, target in pairs:
        flat, into = values.reshape(-1), target.view(-1)
        for first in range(0, len(flat), length):
            yield flat[first : first + length], into[first : first + length]
