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
from trainer.shape.box import TensorRegion
from trainer.shape.initial_values import make_initial_values
from trainer.shape.layout import choose_writer, compute_box, get_layout
from trainer.shape.mesh import Mesh
from trainer.torch_engine.optimizer import AveragedWeights, Moment, Optimizer
from trainer.torch_engine.slots import Slot
from trainer.xla_engine.runtime import ShardingMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTensor:
    """A tensor of the state, which torch_xla presents as a whole, wherever its shards are.

    Attributes:
        name: In the checkpoint.
        parameter: The parameter to which it belongs.
        position: Index of the parameter in the list.
        values: The tensor, of the parameter's shape.
    """

    name: str
    parameter: Parameter
    position: int
    values: Tensor

    @property
    def axes(self) -> tuple[str | None, ...]:
        return get_layout(self.parameter).spec(len(self.parameter.shape))

    def piece(self, mesh: Mesh, device: int) -> TensorRegion:
        """Return the region on a device."""
        return TensorRegion(self.name, self.parameter.shape, compute_box(self.parameter, mesh, device))

    def divided(self, mesh: Mesh) -> bool:
        """Return whether devices have different regions."""
        sizes = {"fsdp": mesh.fsdp, "tensor": mesh.tensor, None: 1}
        return any(sizes[axis] > 1 for axis in self.axes)

    def writer(self, mesh: Mesh, device: int) -> int:
        """Return the device that writes the region on `device`."""
        return choose_writer(self.parameter, self.position, mesh, device)


class State:
    """All regions of the training state on the devices of this process, given by our indices."""

    def __init__(
        self,
        slots: Sequence[Slot],
        optimizer: Optimizer,
        averages: AveragedWeights | None,
        mesh: Mesh,
        marks: ShardingMarker,
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
        self.mark_shardings()

    def mark_shardings(self) -> None:
        """Set the sharding of each tensor again, for tensors that a program made without it."""
        for whole in self._wholes.values():
            self._marks.mark_sharding(whole.values, whole.axes)

    def fill(self, seed: int) -> None:
        """Write the initial values: weights from the seed, averages equal to the weights, moments zero."""
        self.load((piece, self._first(piece, seed)) for piece in self.needed())

    def written(self) -> Sequence[TensorRegion]:
        return self._written

    def needed(self) -> Sequence[TensorRegion]:
        return [piece for by_device in self._pieces.values() for piece in dict.fromkeys(by_device.values())]

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        names: dict[str, list[TensorRegion]] = defaultdict(list)
        for piece in into:
            names[piece.name].append(piece)
        for name, pieces in names.items():
            by_device = self._pieces[name]
            parts = {
                by_device[device]: shard.data for device, shard in self._marks.list_shards(self._wholes[name].values)
            }
            for piece in pieces:
                into[piece][...] = parts[piece].numpy()

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        """Replace the values.

        Raises:
            StorageError: A region is missing or unknown.
        """
        received: dict[str, dict[TensorRegion, Tensor]] = defaultdict(dict)
        missing = set(self.needed())
        for piece, array in values:
            if piece not in missing:
                raise StorageError(f"the checkpoint's tensor {piece.name} does not fit this model")
            missing.discard(piece)
            parts = received[piece.name]
            parts[piece] = torch.as_tensor(np.array(array, np.float32))
            if len(parts) == len(set(self._pieces[piece.name].values())):
                self._put(piece.name, received.pop(piece.name))
        if missing:
            raise StorageError(f"the checkpoint has no values for {len(missing)} tensors, such as {min(missing).name}")
        # The compiler treats values from the host and values made by a program as different inputs, which would need a
        # second compilation of the step.
        with torch.no_grad():
            for whole in self._wholes.values():
                whole.values.mul_(1.0)
        self.mark_shardings()
        self._marks.run_trace()

    def _put(self, name: str, parts: Mapping[TensorRegion, Tensor]) -> None:
        whole, by_device = self._wholes[name], self._pieces[name]
        values = whole.values
        if not whole.divided(self._mesh):
            (part,) = parts.values()
            with torch.no_grad():
                values.copy_(part)
            return
        self._marks.replace_values(values, {device: parts[piece] for device, piece in by_device.items()})

    def _first(self, piece: TensorRegion, seed: int) -> FloatArray:
        if piece.name.startswith("optimizer/"):
            return np.zeros(piece.box.extent, np.float32)
        return make_initial_values(self._wholes[piece.name].parameter, piece.box, seed)


def _wholes(slots: Sequence[Slot], optimizer: Optimizer, averages: AveragedWeights | None) -> Iterable[GlobalTensor]:
    for kind, moments in (
        ("model", [Moment(slot=slot, suffix="", values=slot.weight) for slot in slots]),
        ("optimizer", optimizer.moments()),
        ("average", averages.moments() if averages is not None else []),
    ):
        for moment in moments:
            parameter = moment.slot.parameter
            name = f"{kind}/{parameter.name}" + (f"/{moment.suffix}" if moment.suffix else "")
            yield GlobalTensor(name=name, parameter=parameter, position=moment.slot.position, values=moment.values)
