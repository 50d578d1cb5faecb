"""The weights of this process as plain local tensors, however torch has wrapped them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainer.config import LoraConfig, ModelConfig
from trainer.shape.architecture import Parameter
from trainer.shape.box import Box
from trainer.shape.initial_values import make_initial_values
from trainer.shape.layout import compute_box
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import list_stage_parameters, make_stage
from trainer.torch_engine.model import NO_LORA
from trainer.torch_engine.untyped import from_numpy

_FILLERS = 8  # threads; each holds one weight in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter and the region of it on this process.

    Attributes:
        position: Index in the list of parameters.
        parameter: Its name and whole shape.
        box: The local region.
        handle: The torch parameter, which receives the gradient in the backward pass.
        weight: The local values, which training changes in place.
    """

    position: int
    parameter: Parameter
    box: Box
    handle: nn.Parameter
    weight: Tensor

    def gradient(self) -> Tensor:
        """Return the gradient of the local region; zeros when the backward pass did not reach the parameter."""
        grad = self.handle.grad
        if grad is None:
            return torch.zeros_like(self.weight)
        handle: Any = self.handle
        whole: Any = grad
        if is_sharded(grad) and whole.placements != handle.placements:
            # An embedding's gradient may be whole, although its weight is sharded.
            return get_local_tensor(whole.redistribute(placements=handle.placements))
        return get_local_tensor(grad)


def list_slots(
    model: nn.Module, config: ModelConfig, mesh: Mesh, device: int, lora: LoraConfig = NO_LORA
) -> Sequence[Slot]:
    """List the slots in the order of the list of parameters; `device` is this process's index on the mesh."""
    handles = dict(model.named_parameters())
    stage = make_stage(config, mesh.pipeline, mesh.get_stage(device))
    slots = [
        Slot(
            position=position,
            parameter=parameter,
            box=compute_box(parameter, mesh, device),
            handle=handle,
            weight=get_local_tensor(handle.data),
        )
        for position, parameter in list_stage_parameters(config, lora, stage)
        for handle in (handles.pop(parameter.name),)
    ]
    if handles:
        raise AssertionError(f"the model has parameters that are not listed: {sorted(handles)}")
    for slot in slots:
        if tuple(slot.weight.shape) != slot.box.extent:
            raise AssertionError(f"{slot.parameter.name} is {tuple(slot.weight.shape)} here, not {slot.box.extent}")
    return slots


def fill_initial_values(slots: Sequence[Slot], seed: int) -> None:
    """Write the initial values in several threads, because one core makes about 25 million values per second."""
    writing = Lock()

    def one(slot: Slot) -> None:
        values = from_numpy(make_initial_values(slot.parameter, slot.box, seed))
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


def get_local_tensor(tensor: Tensor) -> Tensor:
    """Return the part of the tensor on this process, sharing the memory."""
    if not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    return cast("Tensor", sharded.to_local())


def is_sharded(tensor: Tensor) -> bool:
    """Return whether torch has sharded the tensor.

    Importing DTensor takes a second; when it has not been imported, nothing is sharded.
    """
    loaded: Any = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)
