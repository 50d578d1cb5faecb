"""The weights of this process as plain tensors, however torch has wrapped them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.shape.architecture import Parameter, parameters
from trainer.shape.box import Box
from trainer.shape.initial import initial
from trainer.shape.layout import box_of
from trainer.shape.mesh import Mesh
from trainer.torch_engine.untyped import from_numpy

_FILLERS = 8  # threads; each holds one weight in memory


@dataclass(frozen=True, slots=True)
class Slot:
    """position: in the list of parameters. box: the region that is here. weight: its values, which training changes
    in place. handle: what torch's backward pass leaves the gradient at."""

    position: int
    parameter: Parameter
    box: Box
    handle: nn.Parameter
    weight: Tensor

    def gradient(self) -> Tensor:
        """Of the region that is here. Zeros when the backward pass did not reach the parameter."""
        grad = self.handle.grad
        if grad is None:
            return torch.zeros_like(self.weight)
        handle: Any = self.handle
        whole: Any = grad
        if is_divided(grad) and whole.placements != handle.placements:
            # An embedding's gradient may come whole, although its weight is divided.
            return local(whole.redistribute(placements=handle.placements))
        return local(grad)


def slots_of(model: nn.Module, config: ModelConfig, mesh: Mesh, device: int) -> Sequence[Slot]:
    """In the order of the list of parameters. device: this process's place on the mesh."""
    handles = dict(model.named_parameters())
    slots = [
        Slot(position, parameter, box_of(parameter, mesh, device), handle, local(handle.data))
        for position, parameter in enumerate(parameters(config))
        for handle in (handles.pop(parameter.name),)
    ]
    if handles:
        raise AssertionError(f"the model has parameters that are not in the list: {sorted(handles)}")
    for slot in slots:
        if tuple(slot.weight.shape) != slot.box.extent:
            raise AssertionError(f"{slot.parameter.name} is {tuple(slot.weight.shape)} here, not {slot.box.extent}")
    return slots


def fill(slots: Sequence[Slot], seed: int) -> None:
    """Write the first values. One processor makes some 25 million a second, so several do."""
    writing = Lock()

    def one(slot: Slot) -> None:
        values = from_numpy(initial(slot.parameter, slot.box, seed))
        with writing, torch.no_grad():
            slot.weight.copy_(values)

    workers = min(_FILLERS, torch.get_num_threads())
    if workers == 1:
        for slot in slots:
            one(slot)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(one, slots):
            pass


def local(tensor: Tensor) -> Tensor:
    """What this process holds of it, sharing the memory."""
    if not is_divided(tensor):
        return tensor
    divided: Any = tensor
    return cast("Tensor", divided.to_local())


def is_divided(tensor: Tensor) -> bool:
    """Whether torch has divided it. Importing DTensor takes a second: where nobody did, nothing is divided."""
    loaded: Any = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)
