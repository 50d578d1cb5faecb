"""A model with its optimizer on one device, and its step. The rehearsal builds the same with pretended tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from trainer.accelerators.base import NativeAccelerator
from trainer.config import Config
from trainer.shape.limits import LOGITS_BYTES
from trainer.shape.mesh import Mesh
from trainer.torch_engine.adafactor import Adafactor
from trainer.torch_engine.adamw import AdamW
from trainer.torch_engine.compiling import Compiled
from trainer.torch_engine.gradients import NORM, Gradients, gradients_of
from trainer.torch_engine.loss import VocabularyShare, mean_loss, sliced_loss, whole_slice
from trainer.torch_engine.model import Block, Transformer
from trainer.torch_engine.optimizer import Averages, Optimizer
from trainer.torch_engine.parallel import Groups, divide, groups_of, vocabulary_share
from trainer.torch_engine.slots import Slot, fill, slots_of
from trainer.torch_engine.state import State
from trainer.torch_engine.untyped import backward, pretending, recompute


@dataclass(frozen=True, slots=True)
class Build:
    config: Config
    accelerator: NativeAccelerator
    mesh: Mesh
    model: Transformer
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    slots: Sequence[Slot]
    gradients: Gradients
    optimizer: Optimizer
    averages: Averages | None
    state: State
    compiled: Compiled | None

    def step(self, rows: Tensor, rate: float, stop: bool, step: int) -> Tensor:
        """One optimizer step. rows: int64 (rows of this process, seq_len + 1). Returns loss, stops and norm, on the
        device."""
        loss = self.backward(rows)
        summed = self.gradients.finish(loss, stop)
        self.optimizer.apply(summed.gradients, self._factor(summed.numbers[NORM]), rate, step)
        if self.averages is not None:
            self.averages.apply()
        return summed.numbers

    def begin(self, seed: int) -> None:
        """Write the first values."""
        fill(self.slots, seed)
        if self.averages is not None:
            self.averages.restart()

    def backward(self, rows: Tensor) -> Tensor:
        """Leaves the gradients. Returns this process's part of the mean loss."""
        self.gradients.begin()
        count = self.config.accumulate
        share = 1.0 / (count * self.mesh.shards)
        total = torch.zeros((), device=rows.device)
        for index, micro in enumerate(rows.chunk(count)):
            self.gradients.expect(last=index == count - 1)
            with self.accelerator.autocast(self.config.dtype):
                hidden = self.model(micro[:, :-1])
                loss = self.loss(hidden, self.model.head_weight(), micro[:, 1:]) * share
            backward(loss)
            total += loss.detach()
        return total

    def _factor(self, norm: Tensor) -> Tensor | None:
        """What the gradients are multiplied by, so that their norm is at most the limit. None: nothing to do."""
        limit = self.config.grad_clip
        if not limit or (norm.device.type == "cpu" and not pretending() and float(norm) + 1e-6 <= limit):
            return None
        return torch.clamp(limit / (norm + 1e-6), max=1.0)


@dataclass(frozen=True, slots=True)
class Divided:
    """A model on the meta device: divided, without memory."""

    model: Transformer
    groups: Groups
    compiled: Compiled | None


def divided(config: Config, accelerator: NativeAccelerator, mesh: Mesh) -> Divided:
    """The default process group must exist for more than one device."""
    groups = groups_of(mesh, accelerator.device)
    compiled = Compiled(accelerator.compiler) if config.compile and accelerator.flags.compile else None
    with torch.device("meta"):
        model = Transformer(config.model, config.seq_len, recompute if config.remat else None)
    if compiled is not None:
        for block in model.blocks:
            _compile(cast("Block", block), compiled, mesh)
        last: Any = model.norm  # a method is replaced
        last.forward = compiled(model.norm.forward)  # else ten passes over what one can do
    divide(model, config.model, mesh, groups, narrow=config.dtype != "fp32")
    return Divided(model, groups, compiled)


def _compile(block: Block, compiled: Compiled, mesh: Mesh) -> None:
    """Functions, not modules: hooks stay outside, and names stay as they are."""
    unchecked: Any = block  # a method is replaced
    if mesh.tensor == 1:
        unchecked.forward = compiled(block.forward)
    else:  # torch 2.13 cannot trace recomputing layers whose weights are DTensors: that stays outside
        unchecked.compute = compiled(block.compute)


def assemble(config: Config, accelerator: NativeAccelerator, mesh: Mesh, parts: Divided, index: int) -> Build:
    """In memory, without first values: `Build.begin` writes them. index: this process's place on the mesh."""
    model, groups, compiled = parts.model, parts.groups, parts.compiled
    model.to_empty(device=accelerator.device)
    with torch.no_grad():
        model.fill_tables()
    slots = slots_of(model, config.model, mesh, index)
    optimizer: Optimizer = (
        AdamW(slots, config.optim, fused=bool(accelerator.flags.fused))
        if config.optim.kind == "adamw"
        else Adafactor(slots, config.optim, mesh, groups)
    )
    averages = Averages(slots, config.optim) if config.optim.ema else None
    return Build(
        config=config,
        accelerator=accelerator,
        mesh=mesh,
        model=model,
        loss=_loss(config, mesh, vocabulary_share(config.model, mesh, groups, index), compiled),
        slots=slots,
        gradients=gradients_of(model, slots, mesh, groups),
        optimizer=optimizer,
        averages=averages,
        state=State(slots, optimizer, averages, mesh, index),
        compiled=compiled,
    )


def notes_of(build: Build) -> list[str]:
    """Fallbacks that are not the device's but ours."""
    notes: list[str] = []
    if build.compiled is not None and build.compiled.failure:
        notes.append(f"compile=true: the compiler failed, so the model runs uncompiled: {build.compiled.failure}")
    return notes


def _loss(
    config: Config, mesh: Mesh, share: VocabularyShare | None, compiled: Compiled | None
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Plain where the logits are small, in slices where they are large or divided."""
    vocab = config.model.tokens if share is None else share.count
    fit = max(1, LOGITS_BYTES // (4 * vocab))
    tokens = config.rows_per_micro_batch(mesh.shards) * config.seq_len
    if share is None and tokens <= fit:
        return mean_loss if compiled is None else compiled(mean_loss)

    slicer = compiled(whole_slice) if compiled is not None and share is None else None

    def sliced(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        return sliced_loss(hidden, weight, targets, rows=_slice_of(tokens, fit), share=share, slicer=slicer)

    return sliced


def _slice_of(tokens: int, fit: int) -> int:
    """Tokens of a slice: at most `fit`, and all slices alike where that does not make many more of them (a slice of
    another size would be compiled again)."""
    least = -(-tokens // fit)
    return next((tokens // count for count in range(least, 2 * least + 1) if tokens % count == 0), min(fit, tokens))
