"""From the gradients of this process's rows to those of the whole step, and what the step amounted to.

Alone: nothing to add up. Buckets: copies of the model add their gradients up in flat buffers while the backward pass
still runs. The layout is fixed by the order of the parameters. (A layout that is rebuilt after the first step, as
torch's DistributedDataParallel has it, adds numbers in another order after a resume, and losses then differ in the
last bit.) The loss and the wish to stop ride at the end of the last buffer, so agreeing costs nothing.
Divided: FSDP2 adds up, and the loss, the wish to stop and the squared norm take one small sum of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.shape.layout import layout_of
from trainer.shape.mesh import Mesh
from trainer.torch_engine.parallel import Groups
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import dist, norms, split, vector_norm

BUCKET_BYTES = 32 << 20
LOSS, STOPS, NORM = range(3)  # of the step's numbers


@dataclass(frozen=True, slots=True)
class Summed:
    """gradients: of the whole step, one for each slot in order, not clipped. numbers: loss, stops, norm; float32."""

    gradients: Sequence[Tensor]
    numbers: Tensor


class Gradients(Protocol):
    def begin(self) -> None:
        """Forget the last step."""
        ...

    def expect(self, *, last: bool) -> None:
        """A backward pass comes. last: the step's last one, so sums may be sent as they are ready."""
        ...

    def finish(self, loss: Tensor, stop: bool) -> Summed:
        """Wait for the sums. loss: this process's part, already divided by shards and micro-batches."""
        ...


def gradients_of(model: nn.Module, slots: Sequence[Slot], mesh: Mesh, groups: Groups) -> Gradients:
    if mesh.devices == 1:
        return Alone(slots)
    if mesh.fsdp > 1:
        return Divided(model, slots, mesh)
    if mesh.data > 1:
        return Buckets(slots, mesh, groups.data)
    return Alone(slots, mesh)


class Alone:
    """One copy of the model, whose rows all came through here. mesh: its tensor axis divides the weights."""

    def __init__(self, slots: Sequence[Slot], mesh: Mesh | None = None) -> None:
        self._slots = slots
        self._agreement = None if mesh is None else Agreement(slots, mesh)

    def begin(self) -> None:
        for slot in self._slots:
            slot.handle.grad = None

    def expect(self, *, last: bool) -> None:
        pass

    def finish(self, loss: Tensor, stop: bool) -> Summed:
        gradients = [slot.gradient() for slot in self._slots]
        if self._agreement is not None:
            return Summed(gradients, self._agreement.numbers(gradients, loss, stop))
        norm = vector_norm(norms(gradients))
        return Summed(gradients, torch.stack((loss.float(), torch.full_like(norm, float(stop)), norm)))


class Divided:
    """Weights that FSDP2 divides. Between micro-batches the sums over `fsdp` are made all the same: whole gradients
    would need as much memory as whole weights. Those over `data` wait for the last."""

    def __init__(self, model: nn.Module, slots: Sequence[Slot], mesh: Mesh) -> None:
        self._model: Any = model  # fully_shard adds methods to the module's class
        self._slots, self._mesh = slots, mesh
        self._agreement = Agreement(slots, mesh)

    def begin(self) -> None:
        for slot in self._slots:
            slot.handle.grad = None

    def expect(self, *, last: bool) -> None:
        self._model.set_is_last_backward(last)
        if self._mesh.data > 1:
            self._model.set_requires_all_reduce(last)

    def finish(self, loss: Tensor, stop: bool) -> Summed:
        gradients = [slot.gradient() for slot in self._slots]
        return Summed(gradients, self._agreement.numbers(gradients, loss, stop))


class Buckets:
    """Copies of the model, each with rows of its own."""

    def __init__(self, slots: Sequence[Slot], mesh: Mesh, group: Any, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._group = group
        # Each tensor device sums the same loss over its own copies; stops must be counted over all of them.
        self._agreement = Agreement(slots, mesh) if mesh.tensor > 1 else None
        # Backward reaches the last layers first, so their buffer is the first to be sent.
        self._buckets = _fill(slots[::-1], bucket_bytes)
        self._sent = 0
        self._last = False
        self._pending: list[Any] = []
        for index, bucket in enumerate(self._buckets):
            for slot, view in zip(bucket.slots, bucket.views, strict=True):
                hooked: Any = slot.handle  # torch does not annotate this method
                hooked.register_post_accumulate_grad_hook(partial(self._arrived, index, slot, view))

    def begin(self) -> None:
        for bucket in self._buckets:
            bucket.missing = len(bucket.slots)
            for slot in bucket.slots:
                slot.handle.grad = None
        self._sent = 0
        self._last = False

    def expect(self, *, last: bool) -> None:
        self._last = last

    def finish(self, loss: Tensor, stop: bool) -> Summed:
        extras = self._buckets[-1].extras
        extras[LOSS], extras[STOPS] = loss, float(stop)
        while self._sent < len(self._buckets):
            self._send()
        for work in self._pending:
            work.wait()
        self._pending.clear()
        views = [view for bucket in self._buckets for view in bucket.views][::-1]
        if self._agreement is not None:
            return Summed(views, self._agreement.numbers(views, loss, stop))
        norm = vector_norm(torch.stack([vector_norm(bucket.grads) for bucket in self._buckets]))
        return Summed(views, torch.cat((extras, norm[None])))

    def _arrived(self, index: int, slot: Slot, view: Tensor, handle: Tensor) -> None:
        if not self._last:
            return
        view.copy_(slot.gradient())
        handle.grad = None
        self._buckets[index].missing -= 1
        # In order, so that every rank starts the same sums in the same order. The last waits for its extras.
        while self._sent < len(self._buckets) - 1 and self._buckets[self._sent].missing == 0:
            self._send()

    def _send(self) -> None:
        self._pending.append(dist.all_reduce(self._buckets[self._sent].flat, group=self._group, async_op=True))
        self._sent += 1


class Agreement:
    """Loss, stops and norm over all processes, by one sum. Copies of a region share its square between them."""

    def __init__(self, slots: Sequence[Slot], mesh: Mesh) -> None:
        copies = [mesh.data * (mesh.tensor if layout_of(slot.parameter).tensor is None else 1) for slot in slots]
        # Made once: a list that becomes a tensor on a GPU makes the processor wait for all that was asked before.
        self._copies = torch.tensor(copies, dtype=torch.float32, device=slots[0].weight.device)
        self._tensor = mesh.tensor

    @torch.no_grad()
    def numbers(self, gradients: Sequence[Tensor], loss: Tensor, stop: bool) -> Tensor:
        shared = (norms(gradients).square_() / self._copies).sum()
        numbers = torch.stack((loss.float() / self._tensor, torch.full_like(shared, float(stop)), shared))
        dist.all_reduce(numbers)
        numbers[NORM].sqrt_()
        return numbers


@dataclass(slots=True)
class _Bucket:
    """views: into `flat`, which ends with the extras of the last bucket, one for each slot."""

    slots: Sequence[Slot]
    flat: Tensor
    grads: Tensor
    extras: Tensor
    views: Sequence[Tensor]
    missing: int = 0


def _fill(slots: Sequence[Slot], limit: int) -> list[_Bucket]:
    groups: list[list[Slot]] = [[]]
    size = 0
    for slot in slots:
        count = slot.weight.numel() * 4
        if size and size + count > limit:
            groups.append([])
            size = 0
        groups[-1].append(slot)
        size += count
    return [_bucket(group, extras=2 if group is groups[-1] else 0) for group in groups]


def _bucket(slots: Sequence[Slot], extras: int) -> _Bucket:
    sizes = [slot.weight.numel() for slot in slots]
    total = sum(sizes)
    flat = torch.zeros(total + extras, dtype=torch.float32, device=slots[0].weight.device)
    parts = split(flat[:total], sizes)
    views = [part.view(slot.box.extent) for part, slot in zip(parts, slots, strict=True)]
    return _Bucket(slots, flat, flat[:total], flat[total:], views)
