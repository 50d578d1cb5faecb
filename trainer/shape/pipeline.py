"""Stages of a pipeline: which blocks and parameters each has, which runs can have them, and how long they wait.

The devices of a stage pass the values between blocks to those of the next, micro-batch by micro-batch, and gradients
return likewise. Each stage starts with as many micro-batches as there are stages from it to the end, and then computes
one backward and one forward pass in turn (1F1B: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training
on GPU Clusters Using Megatron-LM", arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from trainer.config import Config, LoraConfig, ModelConfig
from trainer.errors import ConfigError
from trainer.shape.architecture import Parameter
from trainer.shape.lora import list_run_parameters
from trainer.shape.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the model, on separate devices; the only stage of a mesh without a pipeline is the model.

    Attributes:
        index: Of this one.
        count: Of all.
        layers: Its blocks.
        tied: Whether the head is the embedding. The first and the last stage then both have it.
    """

    index: int
    count: int
    layers: range
    tied: bool

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.count - 1

    @property
    def has_embedding(self) -> bool:
        return self.is_first or (self.is_last and self.tied)

    @property
    def twin(self) -> int | None:
        """The other stage that has the embedding; None where there is none."""
        if self.count == 1 or not (self.tied and (self.is_first or self.is_last)):
            return None
        return self.count - 1 - self.index

    def has(self, parameter: Parameter) -> bool:
        """Return whether the stage has a parameter."""
        first, *rest = parameter.name.split(".")
        if first == "blocks":
            return int(rest[0]) in self.layers
        return self.has_embedding if first == "embedding" else self.is_last

    def count_in_flight(self, micro_batches: int) -> int:
        """Return the most micro-batches whose backward pass the stage still has to compute."""
        return min(micro_batches, self.count - self.index)


def make_stage(model: ModelConfig, count: int, index: int) -> Stage:
    """Return one of so many stages, each with an equal number of blocks."""
    each = model.layers // count
    return Stage(index=index, count=count, layers=range(index * each, (index + 1) * each), tied=model.tied)


@lru_cache(maxsize=32)
def list_stages(model: ModelConfig, mesh: Mesh) -> tuple[Stage, ...]:
    """Return all stages of a mesh."""
    return tuple(make_stage(model, mesh.pipeline, index) for index in range(mesh.pipeline))


@lru_cache(maxsize=128)
def list_stage_parameters(model: ModelConfig, lora: LoraConfig, stage: Stage) -> tuple[tuple[int, Parameter], ...]:
    """List the parameters of a stage, each with its position in the list of all."""
    return tuple(_walk(model, lora, stage))


def _walk(model: ModelConfig, lora: LoraConfig, stage: Stage) -> Iterator[tuple[int, Parameter]]:
    for position, parameter in enumerate(list_run_parameters(model, lora)):
        if stage.has(parameter):
            yield position, parameter


def compute_slowdown(mesh: Mesh, micro_batches: int) -> float:
    """Return how much longer a step takes because stages wait for the first and the last micro-batches.

    Of (stages - 1) / (micro-batches + stages - 1) of the step each stage waits.
    """
    return (micro_batches + mesh.pipeline - 1) / micro_batches


def refuse_pipeline(config: Config, mesh: Mesh, device: str) -> None:
    """Refuse stages where they cannot run.

    Args:
        config: The settings.
        mesh: The mesh.
        device: What computes, for the message; empty where its programs have stages: torch on CPUs and NVIDIA GPUs.

    Raises:
        ConfigError: The mesh has stages, and something excludes them.
    """
    if mesh.pipeline == 1:
        return
    stages = mesh.pipeline
    problems = (
        (
            bool(device),
            f"{device} has no pipeline parallelism: leave it out, or use engine=torch on CPUs and NVIDIA GPUs",
        ),
        (
            config.model.layers % stages > 0,
            f"stages have equal numbers of blocks, and it does not divide model.layers={config.model.layers}",
        ),
        (
            config.accumulate < stages,
            f"stages need as many micro-batches: use accumulate={stages} or more, not {config.accumulate}",
        ),
        (config.optim.kind != "adamw", f"optim.kind={config.optim.kind} has none: use optim.kind=adamw"),
        (config.lora.rank > 0, "adapters have none: use lora.rank=0, or mesh.fsdp instead"),
        (config.model.experts > 0, "experts have none: use mesh.fsdp or mesh.tensor instead"),
        (config.float8 != "none", "products in float8 have none: use float8=none"),
    )
    problem = next((text for found, text in problems if found), "")
    if problem:
        raise ConfigError(f"mesh.pipeline={stages}: {problem}")
