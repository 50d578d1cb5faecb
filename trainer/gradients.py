"""Gradients in a few flat buffers: added up over the ranks while the backward pass still runs.

The layout is fixed by the order of the parameters. (A layout that is rebuilt after the first step, as torch's
DistributedDataParallel has it, adds numbers in another order after a resume, and losses then differ in the
last bit.) The loss and the wish to stop ride at the end of the last buffer, so agreeing costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.distributed import Pending, Team

BUCKET_BYTES = 32 << 20
_EXTRAS = 2  # loss, wish to stop


@dataclass(frozen=True, slots=True)
class Summary:
    """What a step amounted to, still on the device. loss: mean over all rows; stops: ranks that want to stop."""

    loss: Tensor
    stops: Tensor
    grad_norm: Tensor


class Gradients(Protocol):
    def zero(self) -> None:
        """Forget the last step."""
        ...

    def expect_last(self) -> None:
        """The next backward pass is the step's last: buffers may be sent as they fill."""
        ...

    def finish(self, loss: Tensor, stop: bool, limit: float) -> Summary:
        """Wait for the sums, then clip the gradients to the norm `limit` (0: no limit).

        loss: this rank's share, already divided by ranks and micro-batches. Raises PeerError.
        """
        ...


class FlatGradients:
    """For devices that run each operation at once."""

    def __init__(self, parameters: Iterable[nn.Parameter], team: Team, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._team = team
        # Backward reaches the last layers first, so their buffer is the first to be sent.
        self._buckets = _fill(list(parameters)[::-1], bucket_bytes)
        self._sent = 0
        self._last = False
        self._pending: list[Pending] = []
        for index, bucket in enumerate(self._buckets):
            for parameter in bucket.parameters:
                hooked: Any = parameter  # torch does not annotate this method
                hooked.register_post_accumulate_grad_hook(partial(self._arrived, index))

    def zero(self) -> None:
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.parameters)
        self._sent = 0
        self._last = False

    def expect_last(self) -> None:
        self._last = True

    def finish(self, loss: Tensor, stop: bool, limit: float) -> Summary:
        extras = self._buckets[-1].extras
        extras[0], extras[1] = loss, float(stop)
        while self._sent < len(self._buckets):
            self._send()
        with self._team.waiting("gradients"):
            for work in self._pending:
                work.wait()
        self._pending.clear()
        grads = [bucket.grads for bucket in self._buckets]
        norm = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()
        if limit > 0:
            factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
            for grad in grads:
                grad.mul_(factor)
        return Summary(loss=extras[0], stops=extras[1], grad_norm=norm)

    def _arrived(self, index: int, _: Tensor) -> None:
        if not self._last:
            return
        self._buckets[index].missing -= 1
        # In order, so that every rank starts the same sums in the same order. The last waits for its extras.
        while self._sent < len(self._buckets) - 1 and self._buckets[self._sent].missing == 0:
            self._send()

    def _send(self) -> None:
        work = self._team.start_sum(self._buckets[self._sent].flat)
        self._sent += 1
        if work is not None:
            self._pending.append(work)


class PlainGradients:
    """For devices that trace lazily: no views into buffers. One process; the compiler adds up over its devices."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)

    def zero(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def expect_last(self) -> None:
        pass

    def finish(self, loss: Tensor, stop: bool, limit: float) -> Summary:
        norm = nn.utils.clip_grad_norm_(self._parameters, limit if limit > 0 else float("inf"), foreach=False)
        return Summary(loss=loss, stops=torch.tensor(float(stop)), grad_norm=norm)


@dataclass(slots=True)
class _Bucket:
    """parameters: whose gradients are views into `flat`, which ends with the extras of the last bucket."""

    parameters: Sequence[nn.Parameter]
    flat: Tensor
    grads: Tensor
    extras: Tensor
    missing: int


def _fill(parameters: Sequence[nn.Parameter], limit: int) -> list[_Bucket]:
    groups: list[list[nn.Parameter]] = [[]]
    size = 0
    for parameter in parameters:
        count = parameter.numel() * 4
        if size and size + count > limit:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += count
    return [_bucket(group, extras=_EXTRAS if group is groups[-1] else 0) for group in groups]


def _bucket(parameters: Sequence[nn.Parameter], extras: int) -> _Bucket:
    total = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(total + extras, dtype=torch.float32, device=parameters[0].device)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.grad = flat[start:end].view_as(parameter)
        start = end
    return _Bucket(parameters, flat, flat[:total], flat[total:], len(parameters))
