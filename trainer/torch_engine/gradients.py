"""Sums of the gradients of all processes, with the loss and the number of stop requests.

LocalGradients have nothing to sum. BucketedGradients sum the gradients of replicas in flat buffers while the backward
pass still runs. The layout of the buffers is fixed by the order of the parameters. (A layout that is rebuilt after the
first step, as in torch's DistributedDataParallel, sums in another order after a resume, and losses then differ in the
last bit.) The loss and the stop requests are appended to the last buffer, so they need no separate message.
ShardedGradients are summed by FSDP2; the loss, the stop requests and the squared norm share one small sum.

A tensor axis shards tokens, heads and hidden units. Of a weight that it does not shard, each device has its tokens' or
its heads' part of the gradient. One more sum completes them. So it is over the other axes with routers, which FSDP2
does not shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.shape.layout import Layout, get_layout
from trainer.shape.mesh import Mesh
from trainer.torch_engine.parallel import AxisGroups
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import compute_norm, compute_norms, dist, split_flat

BUCKET_BYTES = 32 << 20
LOSS, STOPS, NORM = range(3)  # indices of the step's numbers


@dataclass(frozen=True, slots=True)
class SummedGradients:
    """The gradients of the whole step.

    Attributes:
        gradients: One per slot, in order, not clipped.
        numbers: Loss, number of stop requests, gradient norm; float32, shape (3,).
    """

    gradients: Sequence[Tensor]
    numbers: Tensor


class Gradients(Protocol):
    """Collects the gradients of a step over micro-batches and processes."""

    def begin(self) -> None:
        """Discard the last step's gradients."""
        ...

    def expect_backward(self, *, last: bool) -> None:
        """Prepare for a backward pass.

        Args:
            last: Whether it is the step's last, so that sums can start when they are ready.
        """
        ...

    def finish(self, loss: Tensor, stop: bool) -> SummedGradients:
        """Wait for the sums.

        Args:
            loss: This process's part, already divided by shards and micro-batches.
            stop: Whether this process requests a stop.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The other stage of a pipeline that has the embedding, too, because it is also the head.

    Attributes:
        group: The devices with the same position in all stages.
        peer: Its index in the group.
        slot: Index of the embedding among the slots.
    """

    group: Any
    peer: int
    slot: int

    @torch.no_grad()
    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Add both stages' parts of the embedding's gradient, in place: the same sum on both."""
        own = gradients[self.slot]
        sent, received = own.contiguous(), torch.empty(own.shape, dtype=own.dtype, device=own.device)
        messages = ((dist.isend, sent), (dist.irecv, received))
        for work in dist.batch_isend_irecv(
            [dist.P2POp(operation, values, group=self.group, group_peer=self.peer) for operation, values in messages]
        ):
            work.wait()
        own += received


def make_gradients(
    model: nn.Module, slots: Sequence[Slot], mesh: Mesh, groups: AxisGroups, twin_stage: int | None = None
) -> Gradients:
    """Choose the implementation for the mesh; `twin_stage` is the other stage that has the embedding, if one has."""
    if mesh.devices == 1:
        return LocalGradients(slots)
    twin = None
    if twin_stage is not None:
        at = next(at for at, slot in enumerate(slots) if slot.parameter.role == "embedding")
        twin = Twin(group=groups.pipeline, peer=twin_stage, slot=at)
    if mesh.fsdp > 1 and get_layout(slots[0].parameter).fsdp is None:  # adapters: copies on all devices of a shard
        copies = Mesh(mesh.tensor_groups, 1, mesh.tensor)
        return BucketedGradients(slots, copies, groups.shards, tensor=groups.tensor)
    if mesh.fsdp > 1:
        return ShardedGradients(model, slots, mesh, groups, twin)
    if mesh.data > 1:
        return BucketedGradients(slots, mesh, groups.data, tensor=groups.tensor, twin=twin)
    return LocalGradients(slots, mesh, groups.tensor, twin)


class LocalGradients:
    """Gradients of one replica whose rows were all computed here; the tensor axis of `mesh` may shard the weights."""

    def __init__(
        self, slots: Sequence[Slot], mesh: Mesh | None = None, tensor: Any = None, twin: Twin | None = None
    ) -> None:
        self._slots = slots
        self._reduction = None if mesh is None else Reduction(slots, mesh, tensor, twin)

    def begin(self) -> None:
        for slot in self._slots:
            slot.handle.grad = None

    def expect_backward(self, *, last: bool) -> None:
        pass

    def finish(self, loss: Tensor, stop: bool) -> SummedGradients:
        gradients = [slot.gradient() for slot in self._slots]
        if self._reduction is not None:
            return SummedGradients(gradients, self._reduction.reduce(gradients, loss, stop))
        norm = compute_norm(compute_norms(gradients))
        return SummedGradients(gradients, torch.stack((loss.float(), torch.full_like(norm, float(stop)), norm)))


class ShardedGradients:
    """Gradients of weights that FSDP2 shards.

    Sums over `fsdp` are made after each micro-batch, because whole gradients would need as much memory as whole
    weights. Sums over `data` wait for the last micro-batch.
    """

    def __init__(
        self, model: nn.Module, slots: Sequence[Slot], mesh: Mesh, groups: AxisGroups, twin: Twin | None = None
    ) -> None:
        self._model: Any = model  # fully_shard adds methods to the module's class
        self._slots, self._mesh = slots, mesh
        self._reduction = Reduction(slots, mesh, groups.tensor, twin)
        self._copies = [at for at, slot in enumerate(slots) if get_layout(slot.parameter).fsdp is None]
        self._shards = groups.shards

    def begin(self) -> None:
        for slot in self._slots:
            slot.handle.grad = None

    def expect_backward(self, *, last: bool) -> None:
        self._model.set_is_last_backward(last)
        if self._mesh.data > 1:
            self._model.set_requires_all_reduce(last)

    def finish(self, loss: Tensor, stop: bool) -> SummedGradients:
        gradients = [slot.gradient() for slot in self._slots]
        if self._copies:
            _sum_over([gradients[at] for at in self._copies], self._shards)
        return SummedGradients(gradients, self._reduction.reduce(gradients, loss, stop))


class BucketedGradients:
    """Gradients of replicas, each with its own rows."""

    def __init__(
        self,
        slots: Sequence[Slot],
        mesh: Mesh,
        group: Any,
        bucket_bytes: int = BUCKET_BYTES,
        *,
        tensor: Any = None,
        twin: Twin | None = None,
    ) -> None:
        self._group = group
        # Each tensor device sums the same loss over its replicas; stop requests are counted over all of them.
        alone = mesh.tensor == mesh.pipeline == 1
        self._reduction = None if alone else Reduction(slots, mesh, tensor, twin)
        # The backward pass reaches the last layers first, so their buffer is sent first.
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

    def expect_backward(self, *, last: bool) -> None:
        self._last = last

    def finish(self, loss: Tensor, stop: bool) -> SummedGradients:
        extras = self._buckets[-1].extras
        extras[LOSS], extras[STOPS] = loss, float(stop)
        while self._sent < len(self._buckets):
            self._send()
        for work in self._pending:
            work.wait()
        self._pending.clear()
        views = [view for bucket in self._buckets for view in bucket.views][::-1]
        if self._reduction is not None:
            return SummedGradients(views, self._reduction.reduce(views, loss, stop))
        norm = compute_norm(torch.stack([compute_norm(bucket.grads) for bucket in self._buckets]))
        return SummedGradients(views, torch.cat((extras, norm[None])))

    def _arrived(self, index: int, slot: Slot, view: Tensor, handle: Tensor) -> None:
        if not self._last:
            return
        view.copy_(slot.gradient())
        handle.grad = None
        self._buckets[index].missing -= 1
        # Every rank must start the same sums in the same order. The last bucket waits for its extras.
        while self._sent < len(self._buckets) - 1 and self._buckets[self._sent].missing == 0:
            self._send()

    def _send(self) -> None:
        self._pending.append(dist.all_reduce(self._buckets[self._sent].flat, group=self._group, async_op=True))
        self._sent += 1


class Reduction:
    """Completes the gradients over the tensor axis, and sums loss, stop requests and norm over all processes.

    Each copy of a region contributes an equal share of its squared norm. Of a pipeline only the last stage has a loss,
    and two stages may have parts of the embedding's gradient.
    """

    def __init__(self, slots: Sequence[Slot], mesh: Mesh, tensor: Any, twin: Twin | None = None) -> None:
        copies = [_count_copies(get_layout(slot.parameter), mesh) for slot in slots]
        self._twin = twin
        if twin is not None:
            copies[twin.slot] *= 2
        # Created once: converting a list to a GPU tensor makes the CPU wait for all queued work.
        self._copies = torch.tensor(copies, dtype=torch.float32, device=slots[0].weight.device)
        self._tensor, self._group = mesh.tensor, tensor
        self._partial = [at for at, slot in enumerate(slots) if get_layout(slot.parameter).tensor is None]

    @torch.no_grad()
    def reduce(self, gradients: Sequence[Tensor], loss: Tensor, stop: bool) -> Tensor:
        """Return the numbers of SummedGradients, and complete the gradients in place."""
        if self._tensor > 1 and self._partial:
            _sum_over([gradients[at] for at in self._partial], self._group)
        if self._twin is not None:
            self._twin.sum_gradients(gradients)
        shared = (compute_norms(gradients).square_() / self._copies).sum()
        numbers = torch.stack((loss.float() / self._tensor, torch.full_like(shared, float(stop)), shared))
        dist.all_reduce(numbers)
        numbers[NORM].sqrt_()
        return numbers


@torch.no_grad()
def _sum_over(parts: Sequence[Tensor], group: Any) -> None:
    """Sum the tensors in place over the processes of a group, in one message."""
    flat = torch.cat([part.flatten() for part in parts])
    dist.all_reduce(flat, group=group)
    for part, summed in zip(parts, split_flat(flat, [part.numel() for part in parts]), strict=True):
        part.copy_(summed.view_as(part))


def _count_copies(layout: Layout, mesh: Mesh) -> int:
    return mesh.data * (mesh.fsdp if layout.fsdp is None else 1) * (mesh.tensor if layout.tensor is None else 1)


@dataclass(slots=True, kw_only=True)
class _Bucket:
    """A flat buffer of gradients.

    Attributes:
        slots: The weights.
        flat: The whole buffer.
        grads: Its part with gradients.
        extras: Loss and stop requests, at the end of the last bucket; else empty.
        views: Into `flat`, one per slot.
        missing: Number of slots whose gradient is not there yet.
    """

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
    parts = split_flat(flat[:total], sizes)
    views = [part.view(slot.box.extent) for part, slot in zip(parts, slots, strict=True)]
    return _Bucket(slots=slots, flat=flat, grads=flat[:total], extras=flat[total:], views=views)
