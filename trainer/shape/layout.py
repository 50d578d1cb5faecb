"""The one sharding plan: which dimension of each parameter is sharded over which axis of the mesh.

Engines turn it into FSDP2 and DTensor placements, torch_xla partition specs, or JAX PartitionSpecs. Weights are sharded
over `fsdp` always along a dimension of size model.dim, and vectors along their only one (trainer/shape/mesh.py checks
that they divide); LoRA adapters and routers are not. Over `tensor`, matrices are sharded along their heads, their
hidden units, their experts or the vocabulary, and vectors not at all: then each device has a part of the gradient, of
its tokens or its heads, and the parts are summed. `data` holds copies.

Each stage of a pipeline divides its parameters (trainer/shape/pipeline.py) like this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from trainer.shape.architecture import Parameter, Role
from trainer.shape.box import Box
from trainer.shape.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Layout:
    """The sharded dimensions of a parameter.

    Attributes:
        fsdp: Dimension that is sharded over the fsdp axis; None for copies.
        tensor: Dimension that is sharded over the tensor axis; None for copies.
    """

    fsdp: int | None
    tensor: int | None

    def spec(self, dimensions: int) -> tuple[str | None, ...]:
        """Return the axis of each dimension, as a PartitionSpec has it."""
        axes: list[str | None] = [None] * dimensions
        if self.fsdp is not None:
            axes[self.fsdp] = "fsdp"
        if self.tensor is not None:
            axes[self.tensor] = "tensor"
        return tuple(axes)


_BY_ROLE: Mapping[Role, Layout] = MappingProxyType(
    {
        "embedding": Layout(fsdp=1, tensor=0),
        "head": Layout(fsdp=1, tensor=0),
        "norm": Layout(fsdp=0, tensor=None),
        "head_vector": Layout(fsdp=0, tensor=None),
        "column": Layout(fsdp=1, tensor=0),
        "row": Layout(fsdp=0, tensor=1),
        "router": Layout(fsdp=None, tensor=None),
        "expert_column": Layout(fsdp=2, tensor=0),
        "expert_row": Layout(fsdp=1, tensor=0),
        "lora_shared": Layout(fsdp=None, tensor=None),
        "lora_column": Layout(fsdp=None, tensor=0),
        "lora_row": Layout(fsdp=None, tensor=1),
        "lora_copy": Layout(fsdp=None, tensor=None),
    }
)


def get_layout(parameter: Parameter) -> Layout:
    """Return the layout of a parameter."""
    return _BY_ROLE[parameter.role]


def compute_box(parameter: Parameter, mesh: Mesh, device: int) -> Box:
    """Return the region of the parameter on a device."""
    layout = get_layout(parameter)
    _, fsdp, tensor = mesh.coordinates(device)
    offset, extent = [0] * len(parameter.shape), list(parameter.shape)
    for dimension, axis, index in ((layout.fsdp, mesh.fsdp, fsdp), (layout.tensor, mesh.tensor, tensor)):
        if dimension is not None:
            extent[dimension] //= axis
            offset[dimension] = index * extent[dimension]
    return Box(tuple(offset), tuple(extent))


def choose_writer(parameter: Parameter, position: int, mesh: Mesh, device: int) -> int:
    """Return the device that writes the region on `device`: the devices that hold the same region take turns.

    Args:
        parameter: The parameter.
        position: Index of the parameter in the list; spreads the work over the copies.
        mesh: The mesh.
        device: Index on the mesh.

    Returns:
        A device index, the same on every process.
    """
    return choose_writer_of(parameter.role, get_layout(parameter).spec(len(parameter.shape)), position, mesh, device)


def choose_writer_of(role: Role, axes: Sequence[str | None], position: int, mesh: Mesh, device: int) -> int:
    """Return the same for a tensor of a parameter of this role that only these axes shard."""
    _, fsdp, tensor = mesh.coordinates(device)
    # The last stage of a pipeline has an embedding, too, where the head is the embedding.
    stage = 0 if role == "embedding" else mesh.get_stage(device)
    data = position % mesh.data
    if "fsdp" not in axes:
        fsdp = position % mesh.fsdp
    if "tensor" not in axes:
        tensor = position % mesh.tensor
    return mesh.get_device(stage, data, fsdp, tensor)
