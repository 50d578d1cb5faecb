"""Estimate of the bytes that a step needs on one device, at the moment that needs the most.

The counts (step_memory.py) follow the engines. The factors that cannot be counted were
fitted to the TPU compiler's results for this trainer's step; docs/performance.md has the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from trainer.accelerators.usable_memory import find_usable_bytes
from trainer.config import Config, RematLevel
from trainer.errors import ConfigError
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import list_stages
from trainer.shape.step_memory import FLOAT, Engine, StepCount, count_local_values

Moment: TypeAlias = Literal["step", "loss", "backward-start", "backward-end", "embedding"]
"""Moment of a step: the loss is computed; the last block's backward pass begins; the first block's ends; then comes the
embedding's gradient. Of a compiled step, "step": a compiler places all of its memory together."""
ESTIMATE_ERROR = 0.2  # tests compare the estimate with compilers and allocators; docs/performance.md has the ratios
TIGHT = 0.9  # share of the usable memory, because of ESTIMATE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device at the moment of a step that needs the most; the parts add up to `total`.

    Attributes:
        weights: In fp32.
        optimizer: Moments of the optimizer.
        averages: Averaged weights.
        gradients: With a second set where a sum over micro-batches needs one.
        gathered: Whole weights and gradients of the current blocks and tables, and copies in bf16.
        activations: Kept for the backward pass.
        block: Working memory of the backward pass of one block, and the mask of attention, which all blocks read.
        logits: With their gradient, and what else the loss needs.
        peak: The moment.
    """

    weights: int
    optimizer: int
    averages: int
    gradients: int = 0
    gathered: int = 0
    activations: int = 0
    block: int = 0
    logits: int = 0
    peak: Moment = "step"

    @property
    def state(self) -> int:
        """Bytes that are kept between two steps."""
        return self.weights + self.optimizer + self.averages

    @property
    def total(self) -> int:
        return self.state + self.gradients + self.gathered + self.activations + self.block + self.logits

    def as_json(self) -> dict[str, int]:
        """Return the parts and the total."""
        parts = {name: size for name, size in dataclasses.asdict(self).items() if name != "peak"}
        return {**parts, "total": self.total}


def estimate_usable_memory(hardware: Hardware) -> int | None:
    """Return the bytes of one device that a program can use; None when the size is unknown."""
    return find_usable_bytes(hardware.kind, hardware.chip, hardware.memory_bytes)


def estimate_memory(config: Config, mesh: Mesh, engine: Engine) -> Memory:
    """Estimate the memory that one device of the mesh needs; of a pipeline, one of the stage that needs the most.

    Raises:
        ConfigError: The batch does not divide.
    """
    stages = list_stages(config.model, mesh)  # the first has the most micro-batches in flight, the last the logits
    found = [_estimate_stage(StepCount(config, mesh, engine, stage)) for stage in {stages[0], stages[-1]}]
    return max(found, key=lambda memory: memory.total)


def _estimate_stage(count: StepCount) -> Memory:
    config, mesh, stage = count.config, count.mesh, count.stage
    local = count_local_values(count.parameters, mesh.fsdp, mesh.tensor)
    trained = count_local_values(count.trained, mesh.fsdp, mesh.tensor)
    in_flight = stage.count_in_flight(config.accumulate)
    activations = in_flight * len(stage.layers) * count.kept_of_block(config.recomputed) + count.passed_between_stages()
    step = Memory(
        weights=FLOAT * local,
        optimizer=count.optimizer(trained),
        averages=FLOAT * trained if config.optim.ema else 0,
        gradients=count.gradients(trained),
        gathered=count.gathered(local),
        activations=activations,
        block=count.working_of_block() + count.recomputed_of_block() + in_flight * count.attention_mask(),
        logits=count.logits() if stage.is_last else 0,
    )
    if count.engine == "jax":  # the compiler allocates for all of the step, and the factors were fitted to that
        return step
    return max(_list_moments(count, step, local), key=lambda moment: moment.total)


def _list_moments(count: StepCount, step: Memory, local: int) -> Iterator[Memory]:
    """Yield what torch needs at each moment of a step that may need the most, given all that the step needs."""
    late = count.gradients_come_late()
    step = replace(step, activations=step.activations + count.kept_of_last_norm())
    mask = count.stage.count_in_flight(count.config.accumulate) * count.attention_mask()
    if count.stage.is_last:
        yield replace(
            step,
            peak="loss",
            gradients=0 if late else step.gradients,
            gathered=count.gathered_for_loss(local),
            block=mask,
            logits=count.loss(),
        )
    backward = replace(step, logits=0)
    yield replace(
        backward,
        peak="backward-start",
        gradients=step.gradients if not late else count.head_gradient() if count.mesh.fsdp == 1 else 0,
        gathered=count.gathered_for_block(0 if count.config.recomputed != "none" else local),
    )
    yield replace(
        backward,
        peak="backward-end",
        gathered=count.gathered_for_block(0),
        activations=count.kept_of_block(count.config.recomputed) + count.passed_between_stages(),
    )
    yield replace(
        backward,
        peak="embedding",
        gathered=count.gathered_for_tables(late=late),
        activations=count.passed_between_stages(),
        block=mask,
    )


def list_levels(config: Config) -> tuple[RematLevel, ...]:
    """Return the levels of recomputation that the engine has, from the fastest to the smallest.

    torch_xla and float8 have no selective one. On a tensor axis torch recomputes compiled blocks from outside, and so
    whole.
    """
    if (
        config.float8 != "none"
        or config.device == "xla"
        or (config.engine != "jax" and config.compiled and config.mesh.tensor > 1)
    ):
        return ("none", "full")
    return ("none", "selective", "full")


def resolve_remat(config: Config, mesh: Mesh, engine: Engine, usable: int | None) -> Config:
    """Resolve `remat=auto`: the fastest level with which a step fits with a margin.

    Args:
        config: The settings.
        mesh: The mesh.
        engine: The engine.
        usable: Usable bytes of one device; None when unknown: nothing is recomputed.

    Raises:
        ConfigError: The engine does not have the level, or the batch does not divide.
    """
    levels = list_levels(config)
    if config.remat != "auto":
        if config.remat not in levels:
            why = "torch_xla has no" if config.device == "xla" else "compiled blocks on a tensor axis have no"
            raise ConfigError(f"remat={config.remat}: {why} selective recomputation: remat=full")
        return config
    tried = [dataclasses.replace(config, remat=level) for level in levels]
    if usable is None:
        return tried[0]
    fitting = (one for one in tried if estimate_memory(one, mesh, engine).total <= TIGHT * usable)
    return next(fitting, tried[-1])
