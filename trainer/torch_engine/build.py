"""A model with its optimizer on one device, and its step; the rehearsal builds the same from fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from trainer.accelerators.base import NativeAccelerator
from trainer.config import Config
from trainer.shape.limits import LOGITS_BYTES
from trainer.shape.lora import list_targets, refuse_muon
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import make_stage
from trainer.torch_engine.adafactor import Adafactor
from trainer.torch_engine.adamw import AdamW
from trainer.torch_engine.attention_mask import LEAST_HEAD_DIM, split_documents
from trainer.torch_engine.compiling import TorchCompiler
from trainer.torch_engine.context import ContextShare, take_own_tokens
from trainer.torch_engine.float8 import convert_blocks, list_compiler_options
from trainer.torch_engine.gradients import NORM, Gradients, make_gradients
from trainer.torch_engine.loss import (
    VocabularyShare,
    compute_marked_loss,
    compute_mean_loss,
    compute_slice_loss,
    compute_sliced_loss,
)
from trainer.torch_engine.model import Block, Transformer
from trainer.torch_engine.muon import Muon
from trainer.torch_engine.optimizer import AveragedWeights, Optimizer
from trainer.torch_engine.parallel import AxisGroups, get_vocabulary_share, make_axis_groups, shard_model
from trainer.torch_engine.recomputation import choose_rerun
from trainer.torch_engine.router_loss import RouterLoss
from trainer.torch_engine.slots import Slot, fill_initial_values, list_slots
from trainer.torch_engine.state import State
from trainer.torch_engine.untyped import dist, is_fake_mode_active, run_backward

if TYPE_CHECKING:
    from trainer.torch_engine.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel:
    """A model with everything that a step needs."""

    config: Config
    accelerator: NativeAccelerator
    mesh: Mesh
    model: Transformer
    context: ContextShare | None
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    slots: Sequence[Slot]
    gradients: Gradients
    optimizer: Optimizer
    averages: AveragedWeights | None
    state: State
    compiled: TorchCompiler | None
    router_loss: RouterLoss | None = None
    pipeline: Pipeline | None = None

    def step(self, rows: Tensor, rate: float, stop: bool, step: int) -> Tensor:
        """Run one optimizer step.

        Args:
            rows: int64, shape (rows of this process, seq_len + 1); trainer/data has marks.py and document_starts.py.
            rate: Learning rate.
            stop: Whether this process requests a stop.
            step: Number of steps done before this one.

        Returns:
            Loss, number of stop requests and gradient norm, float32 on the device, shape (3,); with experts then those
            of RouterLoss.numbers.
        """
        loss = self.backward(rows)
        summed = self.gradients.finish(loss, stop)
        self.optimizer.apply(summed.gradients, self._factor(summed.numbers[NORM]), rate, step)
        if self.averages is not None:
            self.averages.apply()
        if self.router_loss is None:
            return summed.numbers
        return torch.cat((summed.numbers, self.router_loss.numbers()))

    def initialize_weights(self, seed: int) -> None:
        """Write the initial values of the weights and averages."""
        fill_initial_values(self.slots, seed)
        if self.averages is not None:
            self.averages.restart()

    def backward(self, rows: Tensor) -> Tensor:
        """Compute the gradients, and return this process's part of the mean loss."""
        self.gradients.begin()
        if self.router_loss is not None:
            self.router_loss.begin()
        count = self.config.accumulate
        share = self._weigh_micro_batch(rows)
        if self.pipeline is not None:
            return self.pipeline.backward(*self._split_rows(rows), share)
        total = torch.zeros((), device=rows.device)
        for index, micro in enumerate(rows.chunk(count)):
            self.gradients.expect_backward(last=index == count - 1)
            loss = self._compute_loss(micro) * share
            total += loss.detach()
            if self.router_loss is not None and self.model.balance is not None:
                loss = loss + self.router_loss.add(self.model.balance)
            run_backward(loss)
        return total

    @torch.no_grad()
    def evaluate(self, rows: Tensor) -> Tensor:
        """Return the mean loss of all processes' rows, in which unmarked tokens count as 0; nothing changes."""
        total = torch.zeros((), device=rows.device)
        if self.pipeline is not None:
            total += self.pipeline.evaluate(*self._split_rows(rows))
        else:
            for micro in rows.chunk(self.config.accumulate):
                total += self._compute_loss(micro)
        total /= self.config.accumulate * self.mesh.stage_devices
        if self.mesh.devices > 1:
            dist.all_reduce(total)
        return total

    def _compute_loss(self, rows: Tensor) -> Tensor:
        """Return the mean loss of a micro-batch, in which unmarked tokens count as 0."""
        tokens, targets, documents = self._split_rows(rows)
        with self.accelerator.autocast(self.config.products):
            hidden = self.model(tokens, documents)
            return self.loss(hidden, self.model.head_weight(), targets)

    def _split_rows(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return this process's tokens and targets, and the numbers of documents of whole rows."""
        documents = None
        if self.config.data.document_mask:
            rows, documents = split_documents(rows)
        tokens, targets = (take_own_tokens(self.context, part) for part in (rows[:, :-1], rows[:, 1:]))
        if self.config.marked:
            tokens = torch.where(tokens < 0, ~tokens, tokens)
        return tokens, targets, documents

    def _weigh_micro_batch(self, rows: Tensor) -> float | Tensor:
        """Return the factor of a micro-batch's loss; together they make the mean over the step's marked tokens."""
        share = 1.0 / (self.config.accumulate * self.mesh.tensor_groups)
        if not self.config.marked:
            return share
        marked = (rows[:, 1:] >= 0).sum(dtype=torch.int32)
        if self.mesh.devices > 1:  # before the backward pass: afterwards the buckets of gradients are on their way
            dist.all_reduce(marked)
        # Devices that have counted the same rows.
        sharers = self.mesh.tensor * self.mesh.context * self.mesh.pipeline
        return share * self.config.batch * self.config.seq_len * sharers / marked.clamp(min=1)

    def _factor(self, norm: Tensor) -> Tensor | None:
        """Return the factor that clips the gradients to the norm limit; None when nothing is clipped."""
        limit = self.config.grad_clip
        if not limit or (norm.device.type == "cpu" and not is_fake_mode_active() and float(norm) + 1e-6 <= limit):
            return None
        return torch.clamp(limit / (norm + 1e-6), max=1.0)


@dataclass(frozen=True, slots=True)
class ShardedModel:
    """A sharded model on the meta device, without memory."""

    model: Transformer
    groups: AxisGroups
    compiled: TorchCompiler | None


def build_sharded_model(config: Config, accelerator: NativeAccelerator, mesh: Mesh) -> ShardedModel:
    """Build and shard the model on the meta device.

    More than one device needs the default process group.
    """
    refuse_muon(config)
    groups = make_axis_groups(mesh, accelerator.device, config.dist.timeout)
    compiled = TorchCompiler(accelerator.compiler) if config.compiled and accelerator.capabilities.compile else None
    with torch.device("meta"):
        # Without a compiler flex_attention would keep all scores.
        tiled = compiled is not None and accelerator.name == "cuda" and config.model.head_dim >= LEAST_HEAD_DIM
        rerun = choose_rerun(config.recomputed, len(list_targets(config.lora)), experts=config.model.experts > 0)
        model = Transformer(
            config.model,
            config.seq_len,
            rerun,
            config.lora,
            tiled=tiled,
            residual=config.residual,
            context=groups.context,
            stage=make_stage(config.model, mesh.pipeline, dist.get_rank(groups.pipeline) if groups.pipeline else 0),
        )
        convert_blocks(model, config.float8, accelerator)
    if compiled is not None:
        for block in model.blocks:
            _compile(cast("Block", block), compiled, mesh, list_compiler_options(config.float8))
        if model.stage.is_last:
            last: Any = model.norm  # a method is replaced
            last.forward = compiled(model.norm.forward)  # one pass over the data, not ten
    shard_model(model, config.model, mesh, groups, narrow=config.products != "fp32")
    return ShardedModel(model, groups, compiled)


def _compile(block: Block, compiled: TorchCompiler, mesh: Mesh, options: Mapping[str, bool]) -> None:
    """Compile functions, not modules: hooks stay outside, and names stay unchanged."""
    unchecked: Any = block  # a method is replaced
    if mesh.tensor == 1:
        unchecked.forward = compiled(block.forward, options)
    else:  # torch 2.13 cannot trace recomputation of layers whose weights are DTensors: that stays outside
        unchecked.compute = compiled(block.compute, options)


def assemble_model(
    config: Config, accelerator: NativeAccelerator, mesh: Mesh, parts: ShardedModel, index: int
) -> BuiltModel:
    """Allocate the model and its optimizer, without initial values.

    Args:
        config: The settings.
        accelerator: The device.
        mesh: The mesh.
        parts: The sharded model on the meta device.
        index: This process's device index on the mesh.
    """
    model, groups, compiled = parts.model, parts.groups, parts.compiled
    model.to_empty(device=accelerator.device)
    with torch.no_grad():
        model.fill_tables()
    slots = list_slots(model, config.model, mesh, index, config.lora)
    trained = [slot for slot in slots if not slot.parameter.frozen]
    optimizer = _make_optimizer(config, accelerator, mesh, trained, groups, index)
    averages = AveragedWeights(trained, config.optim) if config.optim.ema else None
    loss = _loss(config, mesh, get_vocabulary_share(config.model, mesh, groups, index), compiled)
    gradients = make_gradients(model, trained, mesh, groups, model.stage.twin)
    return BuiltModel(
        config=config,
        accelerator=accelerator,
        mesh=mesh,
        model=model,
        context=groups.context,
        loss=loss,
        slots=slots,
        gradients=gradients,
        router_loss=RouterLoss(config, mesh) if config.model.experts else None,
        optimizer=optimizer,
        averages=averages,
        state=State(slots, optimizer, averages, mesh, index),
        compiled=compiled,
        pipeline=_make_pipeline(config, accelerator, mesh, parts, loss, gradients) if mesh.pipeline > 1 else None,
    )


def _make_pipeline(
    config: Config,
    accelerator: NativeAccelerator,
    mesh: Mesh,
    parts: ShardedModel,
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    gradients: Gradients,
) -> Pipeline:
    from trainer.torch_engine.pipeline import Pipeline

    model = parts.model

    def compute(values: Tensor, documents: Tensor | None) -> Tensor:
        with accelerator.autocast(config.products):
            return cast("Tensor", model(values, documents))

    def compute_loss(hidden: Tensor, targets: Tensor) -> Tensor:
        with accelerator.autocast(config.products):
            return loss(hidden, model.head_weight(), targets)

    return Pipeline(
        config,
        mesh,
        model.stage,
        parts.groups.pipeline,
        accelerator.device,
        compute=compute,
        loss=compute_loss,
        before_backward=lambda last: gradients.expect_backward(last=last),
    )


def _make_optimizer(
    config: Config,
    accelerator: NativeAccelerator,
    mesh: Mesh,
    slots: Sequence[Slot],
    groups: AxisGroups,
    index: int,
) -> Optimizer:
    fused = bool(accelerator.capabilities.fused)
    match config.optim.kind:
        case "adamw":
            return AdamW(slots, config.optim, fused=fused)
        case "muon":
            return Muon(slots, config.optim, mesh, index, narrow=config.orthogonalized != "fp32", fused=fused)
        case "adafactor":
            return Adafactor(slots, config.optim, mesh, groups)


def list_notes(build: BuiltModel) -> list[str]:
    """List the fallbacks that the engine, not the device, has chosen."""
    notes: list[str] = []
    if build.config.model.attention_softcap:
        notes.append("model.attention_softcap: attention runs as plain products, because no fused kernel bounds scores")
    if build.compiled is not None and build.compiled.failure:
        notes.append(f"compile=true: the compiler failed, so the model runs uncompiled: {build.compiled.failure}")
    return notes


def _loss(
    config: Config, mesh: Mesh, share: VocabularyShare | None, compiled: TorchCompiler | None
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the loss function: plain where the logits are small, in slices where they are large or sharded."""
    vocab = config.model.tokens if share is None else share.count
    fit = max(1, LOGITS_BYTES // (4 * vocab))
    tokens = config.rows_per_micro_batch(mesh.shards) * config.seq_len // mesh.context
    if share is None and tokens <= fit:
        plain = compute_marked_loss if config.marked else compute_mean_loss
        return partial(plain if compiled is None else compiled(plain), softcap=config.model.softcap)

    slicer = compiled(compute_slice_loss) if compiled is not None and share is None else None

    def sliced(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        size = _choose_slice(tokens // mesh.tensor, max(1, fit // mesh.tensor))
        return compute_sliced_loss(
            hidden,
            weight,
            targets,
            rows=size,
            share=share,
            slicer=slicer,
            marked=config.marked,
            softcap=config.model.softcap,
        )

    return sliced


def _choose_slice(tokens: int, fit: int) -> int:
    """Return the number of tokens per slice, at most `fit`.

    All slices are equal where that does not need many more of them, because a slice of another size is compiled again.
    """
    least = -(-tokens // fit)
    return next((tokens // count for count in range(least, 2 * least + 1) if tokens % count == 0), min(fit, tokens))
