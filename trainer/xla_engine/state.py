"""The training state on the devices of this process, as regions of named tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.architecture import Parameter
from trainer.shape.box import Box, Piece
from trainer.shape.initial import initial
from trainer.shape.layout import box_of, layout_of
from trainer.shape.mesh import Mesh
from trainer.torch_engine.optimizer import Averages, Moment, Optimizer
from trainer.torch_engine.slots import Slot
from trainer.xla_engine.runtime import Marks


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor of the state: torch_xla shows it whole, wherever its parts lie. axes: which divide each dimension.

    axis: the dimension of the parameter along which it lies; None: it has the parameter's shape.
    """

    name: str
    parameter: Parameter
    position: int
    values: Tensor
    axis: int | None

    @property
    def axes(self) -> tuple[str | None, ...]:
        axes = layout_of(self.parameter).spec(len(self.parameter.shape))
        return axes if self.axis is None else (axes[self.axis],)

    def piece(self, mesh: Mesh, device: int) -> Piece:
        """The region on a device."""
        shape, box = self.parameter.shape, box_of(self.parameter, mesh, device)
        if self.axis is not None:
            shape, box = (shape[self.axis],), Box((box.offset[self.axis],), (box.extent[self.axis],))
        return Piece(self.name, shape, box)

    def divided(self, mesh: Mesh) -> bool:
        """Whether devices have different regions."""
        sizes = {"fsdp": mesh.fsdp, "tensor": mesh.tensor, None: 1}
        return any(sizes[axis] > 1 for axis in self.axes)

    def writer(self, mesh: Mesh, device: int) -> int:
        """The device that writes what lies on `device`: among those that hold the same, one in turn."""
        _, fsdp, tensor = mesh.place(device)
        data = self.position % mesh.data
        if "fsdp" not in self.axes:
            fsdp = self.position % mesh.fsdp
        if "tensor" not in self.axes:
            tensor = self.position % mesh.tensor
        return (data * mesh.fsdp + fsdp) * mesh.tensor + tensor


class State:
    """devices: of this process, in our order."""

    def __init__(
        self,
        slots: Sequence[Slot],
        optimizer: Optimizer,
        averages: Averages | None,
        mesh: Mesh,
        marks: Marks,
        devices: Sequence[int],
    ) -> None:
        self._marks, self._mesh = marks, mesh
        self._wholes = {whole.name: whole for whole in _wholes(slots, optimizer, averages)}
        self._pieces = {
            name: {device: whole.piece(mesh, device) for device in devices} for name, whole in self._wholes.items()
        }
        self._written = [
            piece
            for name, by_device in self._pieces.items()
            for device, piece in by_device.items()
            if self._wholes[name].writer(mesh, device) == device
        ]
        self.divide()

    def divide(self) -> None:
        """Say again how each tensor lies on the devices: for tensors whose program was not told."""
        for whole in self._wholes.values():
            self._marks.divide(whole.values, whole.axes)

    def fill(self, seed: int) -> None:
        """Write the first values of the weights; averages begin as these, moments as zeros."""
        self.load((piece, self._first(piece, seed)) for piece in self.needed())

    def written(self) -> Sequence[Piece]:
        return self._written

    def needed(self) -> Sequence[Piece]:
        return [piece for by_device in self._pieces.values() for piece in dict.fromkeys(by_device.values())]

    def copy_out(self, into: Mapping[Piece, FloatArray]) -> None:
        names: dict[str, list[Piece]] = defaultdict(list)
        for piece in into:
            names[piece.name].append(piece)
        for name, pieces in names.items():
            by_device = self._pieces[name]
            parts = {by_device[device]: shard.data for device, shard in self._marks.shards(self._wholes[name].values)}
            for piece in pieces:
                into[piece][...] = parts[piece].numpy()

    def load(self, values: Iterable[tuple[Piece, FloatArray]]) -> None:
        """Raises StorageError when a region is missing."""
        came: dict[str, dict[Piece, Tensor]] = defaultdict(dict)
        missing = set(self.needed())
        for piece, array in values:
            if piece not in missing:
                raise StorageError(f"the checkpoint's tensor {piece.name} does not fit this model")
            missing.discard(piece)
            parts = came[piece.name]
            parts[piece] = torch.as_tensor(np.array(array, np.float32))
            if len(parts) == len(set(self._pieces[piece.name].values())):
                self._put(piece.name, came.pop(piece.name))
        if missing:
            raise StorageError(f"the checkpoint lacks {len(missing)} tensors, such as {min(missing).name}")
        # Values that came from outside are other inputs to the compiler than values that a program made, and would cost
        # a second compilation of the step.
        with torch.no_grad():
            for whole in self._wholes.values():
                whole.values.mul_(1.0)
        self.divide()
        self._marks.run()

    def _put(self, name: str, parts: Mapping[Piece, Tensor]) -> None:
        whole, by_device = self._wholes[name], self._pieces[name]
        values = whole.values
        if not whole.divided(self._mesh):
            (part,) = parts.values()
            with torch.no_grad():
                values.copy_(part)
            return
        self._marks.put(values, {device: parts[piece] for device, piece in by_device.items()})

    def _first(self, piece: Piece, seed: int) -> FloatArray:
        if piece.name.startswith("optimizer/"):
            return np.zeros(piece.box.extent, np.float32)
        return initial(self._wholes[piece.name].parameter, piece.box, seed)


def _wholes(slots: Sequence[Slot], optimizer: Optimizer, averages: Averages | None) -> Iterable[Whole]:
    for kind, moments in (
        ("model", [Moment(slot, "", slot.weight) for slot in slots]),
        ("optimizer", optimizer.moments()),
        ("average", averages.moments() if averages is not None else []),
    ):
        for moment in moments:
            parameter = moment.slot.parameter
            name = f"{kind}/{parameter.name}" + (f"/{moment.suffix}" if moment.suffix else "")
            yield Whole(name, parameter, moment.slot.position, moment.values, moment.axis)
