"""Assembles whole matrices from shards, each on another device of the mesh, and returns results to all devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.shape.architecture import Parameter
from trainer.shape.layout import compute_box
from trainer.shape.mesh import Mesh
from trainer.torch_engine.untyped import dist, split_flat


@dataclass(frozen=True, slots=True)
class MatrixBatch:
    """Matrices that are whole at the same time, the one at position d on device d.

    Attributes:
        indices: Their positions in the list that was batched.
        parameters: Their names and shapes.
    """

    indices: Sequence[int]
    parameters: Sequence[Parameter]


class MatrixExchange:
    """Moves matrices of the default process group's ranks, which are the mesh's devices; alone it only passes them on.

    A matrix is assembled from the shards of one replica. Its owner sends the result to every replica, so that all have
    the same bits.
    """

    def __init__(self, mesh: Mesh, device: int) -> None:
        self._mesh, self._device = mesh, device
        self._replica = mesh.fsdp * mesh.tensor  # devices of one

    def make_batches(self, parameters: Sequence[Parameter]) -> Sequence[MatrixBatch]:
        """Divide matrices into batches with one matrix a device, of similar size."""
        order = sorted(range(len(parameters)), key=lambda at: parameters[at].shape)
        each = self._mesh.devices
        batches = [order[first : first + each] for first in range(0, len(order), each)]
        return [MatrixBatch(indices, [parameters[at] for at in indices]) for indices in batches]

    def assemble(self, batch: MatrixBatch, shards: Sequence[Tensor]) -> Tensor | None:
        """Return this device's matrix of the batch; None where the batch has none for it.

        Args:
            batch: The matrices.
            shards: This device's shard of each.
        """
        if self._mesh.devices == 1:
            return shards[0]
        mine = batch.parameters[self._device] if self._device < len(batch.parameters) else None
        senders = [device for device in range(self._mesh.devices) if self._shares_replica(device)]
        boxes = {} if mine is None else {device: compute_box(mine, self._mesh, device) for device in senders}
        receivers = [shard for owner, shard in enumerate(shards) if self._shares_replica(owner)]
        received = self._exchange(
            torch.cat([shard.flatten() for shard in receivers]) if receivers else shards[0].new_empty(0),
            sent=[
                shards[owner].numel() if owner < len(shards) and self._shares_replica(owner) else 0
                for owner in range(self._mesh.devices)
            ],
            received=[boxes[device].size if device in boxes else 0 for device in range(self._mesh.devices)],
        )
        if mine is None:
            return None
        whole = received[0].new_empty(mine.shape)
        for device, box in boxes.items():
            whole[box.slices()] = received[device].view(box.extent)
        return whole

    def distribute(self, batch: MatrixBatch, result: Tensor | None, like: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return this device's shards of the results.

        Args:
            batch: The matrices.
            result: This device's whole matrix; None where the batch has none for it.
            like: This device's shards, of the same shapes and type.
        """
        if self._mesh.devices == 1:
            return [] if result is None else [result]
        parts: list[Tensor] = []
        if result is not None:
            mine = batch.parameters[self._device]
            parts = [result[compute_box(mine, self._mesh, to).slices()] for to in range(self._mesh.devices)]
        received = self._exchange(
            torch.cat([part.flatten() for part in parts]) if parts else like[0].new_empty(0),
            sent=[part.numel() for part in parts] or [0] * self._mesh.devices,
            received=[like[owner].numel() if owner < len(like) else 0 for owner in range(self._mesh.devices)],
        )
        return [values.view_as(shape) for values, shape in zip(received[: len(like)], like, strict=True)]

    def _shares_replica(self, device: int) -> bool:
        return device // self._replica == self._device // self._replica

    def _exchange(self, values: Tensor, *, sent: Sequence[int], received: Sequence[int]) -> Sequence[Tensor]:
        """Send consecutive parts of `values` to the devices in order, and return what each has sent here."""
        result = values.new_empty(sum(received))
        dist.all_to_all_single(result, values, list(received), list(sent))
        return split_flat(result, received)
