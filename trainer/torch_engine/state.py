"""The training state of this process as regions of named tensors: what a checkpoint is made from, and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.box import Box, Piece
from trainer.shape.layout import layout_of
from trainer.shape.mesh import Mesh
from trainer.torch_engine.optimizer import Averages, Moment, Optimizer
from trainer.torch_engine.outward import Outward
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import from_numpy


@dataclass(frozen=True, slots=True)
class Held:
    """A region that is here. writer: the one of the devices that hold it which writes it."""

    piece: Piece
    values: Tensor
    writer: int


class State:
    def __init__(
        self, slots: Sequence[Slot], optimizer: Optimizer, averages: Averages | None, mesh: Mesh, device: int
    ) -> None:
        held = [_of_moment("model", Moment(slot, "", slot.weight), mesh, device) for slot in slots]
        held += [_of_moment("optimizer", moment, mesh, device) for moment in optimizer.moments()]
        if averages is not None:
            held += [_of_moment("average", moment, mesh, device) for moment in averages.moments()]
        self._held = {h.piece: h for h in held}
        self._written = [h.piece for h in held if h.writer == device]
        self._outward = Outward(slots[0].weight.device)

    def written(self) -> Sequence[Piece]:
        return self._written

    def needed(self) -> Sequence[Piece]:
        return list(self._held)

    def copy_out(self, into: Mapping[Piece, FloatArray]) -> None:
        self._outward.copy((self._held[piece].values, from_numpy(array)) for piece, array in into.items())

    @torch.no_grad()
    def load(self, values: Iterable[tuple[Piece, FloatArray]]) -> None:
        """Raises StorageError when a region is missing."""
        missing = set(self._held)
        for piece, array in values:
            held = self._held.get(piece)
            if held is None:
                raise StorageError(f"the checkpoint's tensor {piece.name} does not fit this model")
            held.values.copy_(from_numpy(np.ascontiguousarray(array)))
            missing.discard(piece)
        if missing:
            raise StorageError(f"the checkpoint lacks {len(missing)} tensors, such as {min(missing).name}")


def _of_moment(kind: str, moment: Moment, mesh: Mesh, device: int) -> Held:
    parameter, box = moment.slot.parameter, moment.slot.box
    axes = layout_of(parameter).spec(len(parameter.shape))
    if moment.axis is None:
        shape = parameter.shape
    else:
        shape, axes = (parameter.shape[moment.axis],), (axes[moment.axis],)
        box = Box((box.offset[moment.axis],), (box.extent[moment.axis],))
    name = f"{kind}/{parameter.name}" + (f"/{moment.suffix}" if moment.suffix else "")
    return Held(Piece(name, shape, box), moment.values, _writer(axes, moment.slot.position, mesh, device))


def _writer(axes: Sequence[str | None], position: int, mesh: Mesh, device: int) -> int:
    """As trainer.shape.layout.writer_of, for tensors that fewer axes divide: copies take turns by position."""
    _, fsdp, tensor = mesh.place(device)
    data = position % mesh.data
    if "fsdp" not in axes:
        fsdp = position % mesh.fsdp
    if "tensor" not in axes:
        tensor = position % mesh.tensor
    return (data * mesh.fsdp + fsdp) * mesh.tensor + tensor
