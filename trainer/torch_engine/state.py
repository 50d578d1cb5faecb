"""The training state of this process as regions of named tensors, for writing and loading checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.engine import FloatArray
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion
from trainer.shape.layout import choose_writer_of, get_layout
from trainer.shape.mesh import Mesh
from trainer.torch_engine.host_copy import HostCopier
from trainer.torch_engine.optimizer import AveragedWeights, Moment, Optimizer
from trainer.torch_engine.slots import Slot
from trainer.torch_engine.untyped import from_numpy


@dataclass(frozen=True, slots=True)
class HeldRegion:
    """A region on this process.

    Attributes:
        piece: Its name and box.
        values: The local tensor.
        writer: The one of the devices with this region that writes it.
    """

    piece: TensorRegion
    values: Tensor
    writer: int


class State:
    """All regions of the training state on one device."""

    def __init__(
        self, slots: Sequence[Slot], optimizer: Optimizer, averages: AveragedWeights | None, mesh: Mesh, device: int
    ) -> None:
        held = [_of_moment("model", Moment(slot=slot, suffix="", values=slot.weight), mesh, device) for slot in slots]
        held += [_of_moment("optimizer", moment, mesh, device) for moment in optimizer.moments()]
        if averages is not None:
            held += [_of_moment("average", moment, mesh, device) for moment in averages.moments()]
        self._held = {h.piece: h for h in held}
        self._written = [h.piece for h in held if h.writer == device]
        self._outward = HostCopier(slots[0].weight.device)

    def written(self) -> Sequence[TensorRegion]:
        return self._written

    def needed(self) -> Sequence[TensorRegion]:
        return list(self._held)

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        self._outward.copy((self._held[piece].values, from_numpy(array)) for piece, array in into.items())

    @torch.no_grad()
    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        """Replace the values.

        Raises:
            StorageError: A region is missing or unknown.
        """
        missing = set(self._held)
        for piece, array in values:
            held = self._held.get(piece)
            if held is None:
                raise StorageError(f"the checkpoint's tensor {piece.name} does not fit this model")
            held.values.copy_(from_numpy(np.ascontiguousarray(array)))
            missing.discard(piece)
        if missing:
            raise StorageError(f"the checkpoint has no values for {len(missing)} tensors, such as {min(missing).name}")


def _of_moment(kind: str, moment: Moment, mesh: Mesh, device: int) -> HeldRegion:
    parameter, box = moment.slot.parameter, moment.slot.box
    axes = get_layout(parameter).spec(len(parameter.shape))
    if moment.axis is None:
        shape = parameter.shape
    else:
        shape, axes = (parameter.shape[moment.axis],), (axes[moment.axis],)
        box = Box((box.offset[moment.axis],), (box.extent[moment.axis],))
    name = f"{kind}/{parameter.name}" + (f"/{moment.suffix}" if moment.suffix else "")
    writer = choose_writer_of(parameter.role, axes, moment.slot.position, mesh, device)
    return HeldRegion(TensorRegion(name, shape, box), moment.values, writer)
