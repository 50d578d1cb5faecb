"""Sharding of a plain model over the mesh, from outside: DTensor for `tensor`, FSDP2 for `fsdp` (with `data`: HSDP).

Replicas alone (`data`) need nothing here: gradients.py sums. The plan follows trainer/shape/layout.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from trainer.config import ModelConfig
from trainer.shape.architecture import list_parameters
from trainer.shape.layout import get_layout
from trainer.shape.mesh import Mesh
from trainer.torch_engine.context import ContextShare
from trainer.torch_engine.experts import ExpertFeedForward, Router
from trainer.torch_engine.loss import VocabularyShare
from trainer.torch_engine.model import AdaptedLayers, Adapter, Bias, Transformer
from trainer.torch_engine.untyped import dist


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisGroups:
    """The process groups along the axes; None where an axis has one device.

    `shards` has all devices of data and fsdp that have the same position along tensor, `context` those of them with the
    same rows. `pipeline` has the devices with the same position in all stages; the other groups are of one stage.
    """

    mesh: DeviceMesh | None
    data: Any
    fsdp: Any
    tensor: Any
    shards: Any = None
    context: ContextShare | None = None
    pipeline: Any = None


def make_axis_groups(mesh: Mesh, device: torch.device, timeout: float) -> AxisGroups:
    """Create the process groups.

    Every process must call it. More than one device needs the default process group.

    Args:
        mesh: The mesh.
        device: The device of this process.
        timeout: Seconds after which a process that waits for another in a group fails.
    """
    if mesh.devices == 1:
        return AxisGroups(mesh=None, data=None, fsdp=None, tensor=None)
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    if mesh.pipeline > 1:
        sizes = {"pipeline": mesh.pipeline, **sizes}
    ranks = torch.arange(mesh.devices).view(*sizes.values())
    limit = timedelta(seconds=timeout)
    # Not init_device_mesh: its groups wait for torch's own deadline, which is half an hour with gloo.
    groups = [_make_group(ranks.movedim(at, -1), size, limit) for at, size in enumerate(sizes.values())]
    unchecked: Any = DeviceMesh  # annotated only partly
    whole: DeviceMesh = unchecked.from_group(groups, device.type, ranks, mesh_dim_names=tuple(sizes))
    found = {name: group if sizes[name] > 1 else None for name, group in zip(sizes, groups, strict=True)}
    if mesh.fsdp > 1:
        shards = ranks.view(mesh.pipeline, mesh.data * mesh.fsdp, mesh.tensor).movedim(1, -1)
        found["shards"] = _make_group(shards, shards.shape[-1], limit) if mesh.data > 1 else found["fsdp"]
    if mesh.pipeline > 1:
        from trainer.torch_engine.pipeline import meet_stages

        meet_stages(found["pipeline"], device)
    return AxisGroups(mesh=whole, context=_make_context_share(mesh, limit), **found)


def _make_group(ranks: Tensor, size: int, limit: timedelta) -> Any:
    """Return this process's group, given all of them one after the other."""
    rows: Any = ranks.reshape(-1, size)  # torch leaves the elements of lists untyped
    every: list[list[int]] = rows.tolist()
    if len(every) == 1:
        return dist.group.WORLD
    return dist.new_subgroups_by_enumeration(every, timeout=limit)[0]


def _make_context_share(mesh: Mesh, limit: timedelta) -> ContextShare | None:
    if mesh.context == 1:
        return None
    ranks = torch.arange(mesh.devices).view(-1, mesh.context, mesh.tensor)
    group = _make_group(ranks.movedim(1, -1), mesh.context, limit)
    return ContextShare(group=group.group_name, size=mesh.context, index=dist.get_rank(group))


def shard_model(model: Transformer, config: ModelConfig, mesh: Mesh, groups: AxisGroups, *, narrow: bool) -> None:
    """Shard the parameters in place; afterwards they are DTensors where an axis shards them.

    Args:
        model: May be on the meta device.
        config: Sizes of the model.
        mesh: The mesh.
        groups: Its process groups.
        narrow: Gather weights in bf16, for products in bf16. (Autocast alone would keep a bf16 copy of every whole
            weight until the backward pass.)
    """
    if groups.mesh is None:
        return
    whole: Any = groups.mesh  # see groups_of
    if mesh.tensor > 1:
        _shard_layers(model, whole["tensor"])
    if mesh.fsdp > 1:
        _shard_weights(model, config, whole["data", "fsdp"] if mesh.data > 1 else whole["fsdp"], narrow)


def get_vocabulary_share(config: ModelConfig, mesh: Mesh, groups: AxisGroups, device: int) -> VocabularyShare | None:
    """Return the device's rows of the vocabulary; None when it is not sharded."""
    if mesh.tensor == 1:
        return None
    count = config.tokens // mesh.tensor
    return VocabularyShare(groups.tensor, mesh.coordinates(device)[2] * count, count)


def _shard_layers(model: Transformer, mesh: DeviceMesh) -> None:
    """Shard heads, hidden units and the vocabulary over the tensor axis, and between them the tokens of each row.

    Products with sharded outputs read all tokens, which are gathered for them. What products with sharded inputs add up
    to is scattered over the tokens (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2). So norms stay plain
    modules, and each device has its tokens' part of the gradients of their weights; see gradients.py.
    """
    # Imported here and below: importing takes a second, which runs on replicas or one device do not need.
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    own, whole, cut = Shard(1), Replicate(), ColwiseParallel
    dense = not any(isinstance(module, ExpertFeedForward) for module in model.modules())
    plan: dict[str, Any] = {}
    if hasattr(model, "embedding"):  # some stages of a pipeline have none
        plan["embedding"] = RowwiseParallel(input_layouts=whole, output_layouts=own)
    if model.head is not None:
        plan["head"] = cut()
    for layer, _ in model.blocks.named_children():
        # One conversion for all layers that read x, so that it is gathered, and its gradient scattered, once.
        plan[f"blocks.{layer}.attention"] = PrepareModuleInput(
            input_layouts=(own, None, None, None), desired_input_layouts=(whole, None, None, None)
        )
        if dense:
            plan[f"blocks.{layer}.ffn"] = PrepareModuleInput(input_layouts=own, desired_input_layouts=whole)
        for name in ("attention.query", "attention.key", "attention.value", *(("ffn.gate", "ffn.up") if dense else ())):
            plan[f"blocks.{layer}.{name}"] = cut()
        for name in ("attention.out", *(("ffn.down",) if dense else ())):
            plan[f"blocks.{layer}.{name}"] = RowwiseParallel(output_layouts=own)
    parallelize_module(model, mesh, plan)
    for module in model.modules():
        if isinstance(module, Bias):
            module.part = mesh.get_local_rank()
        if isinstance(module, AdaptedLayers):
            for name, adapter in module.lora.items():
                _shard_adapter(cast("Adapter", adapter), mesh, by_outputs=name not in ("out", "down"))
        if isinstance(module, ExpertFeedForward):
            _shard_experts(module, mesh)
    if hasattr(model, "embedding"):
        model.embedding.register_forward_hook(_wait_for_sum)


def _shard_experts(ffn: ExpertFeedForward, mesh: DeviceMesh) -> None:
    """Keep this device's experts as plain tensors."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    unchecked: Any = DTensor

    def enter(x: Tensor) -> Tensor:
        own: Any = unchecked.from_local(x, mesh, (Shard(0),), run_check=False)
        whole: Any = own.redistribute(placements=(Replicate(),))
        return cast("Tensor", whole.to_local(grad_placements=(Partial(),)))

    def join(y: Tensor) -> Tensor:
        parts: Any = unchecked.from_local(y, mesh, (Partial(),), run_check=False)
        return cast("Tensor", parts.redistribute(placements=(Shard(0),)).to_local())

    ffn.enter, ffn.join = enter, join
    experts = ffn.experts
    count = experts.gate.shape[0] // mesh.size()
    ffn.first = mesh.get_local_rank() * count
    for name in ("gate", "up", "down"):
        setattr(experts, name, nn.Parameter(getattr(experts, name).detach()[:count].clone()))


def _shard_adapter(adapter: Adapter, mesh: DeviceMesh, *, by_outputs: bool) -> None:
    """Keep this device's part of an adapter as plain tensors; trainer/shape/lora.py describes the parts."""
    from torch.distributed.tensor import DTensor, Partial, Shard

    def enter(x: Tensor) -> Tensor:
        whole: Any = x  # a DTensor, whose gradient is scattered once for all layers that read it
        return cast("Tensor", whole.to_local(grad_placements=(Partial(),)))

    def join(narrow: Tensor) -> Tensor:
        unchecked: Any = DTensor
        summed: Any = unchecked.from_local(narrow, mesh, (Partial(),)).redistribute(placements=(Shard(1),))
        return cast("Tensor", summed.to_local())

    if by_outputs:
        adapter.enter = enter
        adapter.b = nn.Parameter(adapter.b.detach()[: adapter.b.shape[0] // mesh.size()].clone())
    else:
        adapter.join = join
        adapter.a = nn.Parameter(adapter.a.detach()[:, : adapter.a.shape[1] // mesh.size()].clone())


def _wait_for_sum(_module: nn.Module, _arguments: Any, embedded: Tensor) -> Tensor:
    function: Any = _WaitForSum  # torch leaves `apply` untyped
    result: Tensor = function.apply(embedded)
    return result


class _WaitForSum(torch.autograd.Function):
    """Waits for a sum over processes, because compiled code loses the gradient of a pending one (torch 2.13)."""

    @staticmethod
    def forward(ctx: Any, embedded: Tensor) -> Tensor:
        pending: Any = embedded  # torch's AsyncCollectiveTensor, where its hooks make one
        return cast("Tensor", pending.wait()) if hasattr(pending, "wait") else embedded.view_as(embedded)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return upstream[0]


def _shard_weights(model: Transformer, config: ModelConfig, mesh: DeviceMesh, narrow: bool) -> None:
    """Shard each block, which is gathered on demand; embedding, last norm and head stay with the whole model."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard

    handles = dict(model.named_parameters())
    along = {
        id(handles[parameter.name]): get_layout(parameter).fsdp or 0
        for parameter in list_parameters(config)
        if parameter.name in handles  # other stages of a pipeline have the others
    }

    def place(handle: nn.Parameter) -> Shard:
        return Shard(along[id(handle)])

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if narrow else None, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    # Routers stay float32, which the policy would gather in bf16; gradients.py sums their gradients.
    whole = (module for module in model.modules() if isinstance(module, Adapter | Router))
    copies = {one for module in whole for one in module.parameters()}
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, shard_placement_fn=place, mp_policy=policy, ignored_params=copies)
    for part in (model, *model.blocks):
        # The loss is already divided by the rows of the whole step, so gradients are summed.
        unchecked: Any = part  # fully_shard adds the methods to the module's class
        unchecked.set_gradient_divide_factor(1.0)
        unchecked.set_force_sum_reduction_for_comms(True)
