"""The one sharding plan: which dimension of each parameter lies along which axis of the mesh.

Engines turn it into FSDP2 and DTensor placements, torch_xla partition specs, or JAX PartitionSpecs. Weights are divided
over `fsdp` always along a dimension of size model.dim, so one division decides; over `tensor`, matrices are divided
along their heads, their hidden units or the vocabulary, and norms not at all. `data` holds copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.shape.architecture import Parameter, Role
from trainer.shape.box import Box
from trainer.shape.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Layout:
    """fsdp, tensor: the dimension that is divided over that axis; None for copies."""

    fsdp: int
    tensor: int | None

    def spec(self, dimensions: int) -> tuple[str | None, ...]:
        """The axis of each dimension, as a PartitionSpec has it."""
        axes: list[str | None] = [None] * dimensions
        axes[self.fsdp] = "fsdp"
        if self.tensor is not None:
            axes[self.tensor] = "tensor"
        return tuple(axes)


_BY_ROLE: Mapping[Role, Layout] = MappingProxyType(
    {
        "embedding": Layout(fsdp=1, tensor=0),
        "head": Layout(fsdp=1, tensor=0),
        "norm": Layout(fsdp=0, tensor=None),
        "column": Layout(fsdp=1, tensor=0),
        "row": Layout(fsdp=0, tensor=1),
    }
)


def layout_of(parameter: Parameter) -> Layout:
    return _BY_ROLE[parameter.role]


def box_of(parameter: Parameter, mesh: Mesh, device: int) -> Box:
    """The region of the parameter that lies on a device."""
    layout = layout_of(parameter)
    _, fsdp, tensor = mesh.place(device)
    offset, extent = [0] * len(parameter.shape), list(parameter.shape)
    for dimension, axis, index in ((layout.fsdp, mesh.fsdp, fsdp), (layout.tensor, mesh.tensor, tensor)):
        if dimension is not None:
            extent[dimension] //= axis
            offset[dimension] = index * extent[dimension]
    return Box(tuple(offset), tuple(extent))


def writer_of(parameter: Parameter, position: int, mesh: Mesh, device: int) -> int:
    """The device that writes what lies on `device`: among the devices that hold the same region, one in turn.

    position: of the parameter in the list; spreads the copies' work. The same on every process.
    """
    _, fsdp, tensor = mesh.place(device)
    data = position % mesh.data
    if layout_of(parameter).tensor is None:
        tensor = position % mesh.tensor
    return (data * mesh.fsdp + fsdp) * mesh.tensor + tensor
