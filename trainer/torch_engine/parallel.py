"""Divide a plain model over the mesh, from outside: DTensor for `tensor`, FSDP2 for `fsdp` (with `data`: HSDP).

Copies alone (`data`) need nothing here: gradients.py adds up. The plan follows trainer/shape/layout.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import ModelConfig
from trainer.shape.architecture import parameters
from trainer.shape.layout import layout_of
from trainer.shape.mesh import Mesh
from trainer.torch_engine.loss import VocabularyShare
from trainer.torch_engine.model import Transformer


@dataclass(frozen=True, slots=True)
class Groups:
    """The process groups along the axes; None where an axis has one device."""

    mesh: DeviceMesh | None
    data: Any
    fsdp: Any
    tensor: Any


def groups_of(mesh: Mesh, device: torch.device) -> Groups:
    """Every process must call it: it makes process groups. The default group must exist for more than one device."""
    if mesh.devices == 1:
        return Groups(None, None, None, None)
    whole = init_device_mesh(
        device.type, (mesh.data, mesh.fsdp, mesh.tensor), mesh_dim_names=("data", "fsdp", "tensor")
    )
    unchecked: Any = whole  # torch annotates slices of a mesh only in part
    found = {
        name: unchecked.get_group(name) if size > 1 else None
        for name, size in (("data", mesh.data), ("fsdp", mesh.fsdp), ("tensor", mesh.tensor))
    }
    return Groups(whole, **found)


def divide(model: Transformer, config: ModelConfig, mesh: Mesh, groups: Groups, *, narrow: bool) -> None:
    """The model may be on the meta device. After it, parameters are DTensors where an axis divides them.

    narrow: weights are gathered in bf16, for products in bf16. (Autocast alone would keep a narrow copy of every whole
    weight until the backward pass.)
    """
    if groups.mesh is None:
        return
    whole: Any = groups.mesh  # see groups_of
    if mesh.tensor > 1:
        _divide_layers(model, whole["tensor"])
    if mesh.fsdp > 1:
        _divide_weights(model, config, whole["data", "fsdp"] if mesh.data > 1 else whole["fsdp"], narrow)


def vocabulary_share(config: ModelConfig, mesh: Mesh, groups: Groups, device: int) -> VocabularyShare | None:
    if mesh.tensor == 1:
        return None
    count = config.tokens // mesh.tensor
    return VocabularyShare(groups.tensor, mesh.place(device)[2] * count, count)


def _divide_layers(model: Transformer, mesh: DeviceMesh) -> None:
    """Heads, hidden units and the vocabulary over the tensor axis; the residual stream is the same on all."""
    # Imported here and below: they take a second, which runs on copies or one device need not wait for.
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    whole, cut = (Replicate(),), ColwiseParallel
    plan: dict[str, Any] = {"embedding": RowwiseParallel(input_layouts=Replicate())}
    if model.head is not None:
        plan["head"] = cut()
    for layer in range(len(model.blocks)):
        # One conversion for all layers that read x, so that its gradient is added up over the axis once.
        plan[f"blocks.{layer}.attention"] = PrepareModuleInput(
            input_layouts=(Replicate(), None, None), desired_input_layouts=(Replicate(), None, None)
        )
        plan[f"blocks.{layer}.ffn"] = PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole)
        for name in ("attention.query", "attention.key", "attention.value", "ffn.gate", "ffn.up"):
            plan[f"blocks.{layer}.{name}"] = cut()
        for name in ("attention.out", "ffn.down"):
            plan[f"blocks.{layer}.{name}"] = RowwiseParallel()
    parallelize_module(model, mesh, plan)
    model.embedding.register_forward_hook(_arrived)


def _arrived(_module: nn.Module, _arguments: Any, embedded: Tensor) -> Tensor:
    function: Any = _Arrived  # torch leaves `apply` untyped
    result: Tensor = function.apply(embedded)
    return result


class _Arrived(torch.autograd.Function):
    """Waits for a sum over processes: what is compiled loses the gradient of one under way (torch 2.13)."""

    @staticmethod
    def forward(ctx: Any, embedded: Tensor) -> Tensor:
        coming: Any = embedded  # torch's AsyncCollectiveTensor, where its hooks make one
        return cast("Tensor", coming.wait()) if hasattr(coming, "wait") else embedded.view_as(embedded)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return upstream[0]


def _divide_weights(model: Transformer, config: ModelConfig, mesh: DeviceMesh, narrow: bool) -> None:
    """Each block is gathered as it is needed; the embedding, the last norm and the head stay with the whole model."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard

    handles = dict(model.named_parameters())
    along = {id(handles[parameter.name]): layout_of(parameter).fsdp for parameter in parameters(config)}

    def place(handle: nn.Parameter) -> Shard:
        return Shard(along[id(handle)])

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if narrow else None, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for block in model.blocks:
        fully_shard(block, mesh=mesh, shard_placement_fn=place, mp_policy=policy)
    fully_shard(model, mesh=mesh, shard_placement_fn=place, mp_policy=policy)
    for part in (model, *model.blocks):
        # The loss is divided by the rows of the whole step beforehand: gradients are sums.
        unchecked: Any = part  # fully_shard adds the methods to the module's class
        unchecked.set_gradient_divide_factor(1.0)
        unchecked.set_force_sum_reduction_for_comms(True)
