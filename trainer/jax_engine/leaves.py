"""The arrays of the training state: which tensors of a checkpoint each holds, and how it is sharded.

A leaf holds one tensor, or the tensors of all layers, stacked, when the blocks are scanned. Checkpoints always have one
tensor per layer, so both forms can be read from the same checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainer.config import Config, LoraConfig, ModelConfig, OptimName
from trainer.jax_engine.model import EVERY_BLOCK
from trainer.shape.architecture import Parameter
from trainer.shape.layout import get_layout
from trainer.shape.limits import SCAN_FROM, SCAN_FROM_CPU
from trainer.shape.lora import list_run_parameters

Spec: TypeAlias = tuple[str | None, ...]
NO_LORA = LoraConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One array of weights.

    Attributes:
        name: Of the array.
        parameters: What it holds, one per layer when stacked.
        positions: Their indices in the list of parameters.
        stacked: Whether it has a leading dimension for the layers.
    """

    name: str
    parameters: tuple[Parameter, ...]
    positions: tuple[int, ...]
    stacked: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one layer."""
        return self.parameters[0].shape

    @property
    def spec(self) -> Spec:
        """Mesh axis of each dimension of one layer."""
        return get_layout(self.parameters[0]).spec(len(self.shape))

    @property
    def decays(self) -> bool:
        return self.parameters[0].decays

    @property
    def is_hidden_matrix(self) -> bool:
        return self.parameters[0].is_hidden_matrix

    @property
    def frozen(self) -> bool:
        return self.parameters[0].frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One array of the state.

    Attributes:
        key: In the state's dict.
        names: Of the tensors that it holds.
        weight: The weight to which it belongs.
        shape: Of one tensor.
        spec: Mesh axis of each dimension of one tensor.
    """

    key: str
    names: tuple[str, ...]
    weight: Weight
    shape: tuple[int, ...]
    spec: Spec

    @property
    def full_shape(self) -> tuple[int, ...]:
        return (len(self.names), *self.shape) if self.weight.stacked else self.shape

    @property
    def axes(self) -> Spec:
        """Mesh axis of each dimension of the array."""
        return (None, *self.spec) if self.weight.stacked else self.spec

    @property
    def bytes(self) -> int:
        return 4 * math.prod(self.full_shape)


def uses_scan(layers: int, platform: str) -> bool:
    """Return whether the blocks are scanned as one compiled block, not unrolled."""
    return layers >= (SCAN_FROM_CPU if platform == "cpu" else SCAN_FROM)


def list_weights(model: ModelConfig, scanned: bool, lora: LoraConfig = NO_LORA) -> tuple[Weight, ...]:
    """List the weights in the order of the forward pass, and then those of adapters."""
    groups: dict[str, list[tuple[int, Parameter]]] = {}
    for position, parameter in enumerate(list_run_parameters(model, lora)):
        groups.setdefault(_group(parameter.name) if scanned else parameter.name, []).append((position, parameter))
    return tuple(
        Weight(
            name=name,
            parameters=tuple(parameter for _, parameter in members),
            positions=tuple(position for position, _ in members),
            stacked=name.startswith(EVERY_BLOCK),
        )
        for name, members in groups.items()
    )


def list_leaves(config: Config, weights: Sequence[Weight]) -> tuple[Leaf, ...]:
    """List all arrays of the state: weights, moments, averages."""
    return tuple(leaf for weight in weights for leaf in _leaves(config, weight))


def weight_key(weight: Weight) -> str:
    """Return the key of a weight in the state."""
    return f"model/{weight.name}"


def moment_key(weight: Weight, moment: str) -> str:
    """Return the key of a moment in the state."""
    return f"optimizer/{weight.name}/{moment}"


def average_key(weight: Weight) -> str:
    """Return the key of an averaged weight in the state."""
    return f"average/{weight.name}"


def list_moments(kind: OptimName, weight: Weight) -> Iterator[tuple[str, tuple[int, ...], Spec]]:
    """Yield name, shape and spec of each moment of one layer."""
    shape, spec = weight.shape, weight.spec
    if kind == "muon" and weight.is_hidden_matrix:
        yield "momentum_buffer", shape, spec
    elif kind != "adafactor":
        yield "exp_avg", shape, spec
        yield "exp_avg_sq", shape, spec
    elif len(shape) == 1:
        yield "full", shape, spec
    else:
        yield "row", shape[:-1], spec[:-1]
        yield "column", shape[1:], spec[1:]


def _leaves(config: Config, weight: Weight) -> Iterator[Leaf]:
    names = [parameter.name for parameter in weight.parameters]
    yield Leaf(
        key=weight_key(weight),
        names=tuple(f"model/{name}" for name in names),
        weight=weight,
        shape=weight.shape,
        spec=weight.spec,
    )
    if weight.frozen:
        return
    for moment, shape, spec in list_moments(config.optim.kind, weight):
        held = tuple(f"optimizer/{name}/{moment}" for name in names)
        yield Leaf(key=moment_key(weight, moment), names=held, weight=weight, shape=shape, spec=spec)
    if config.optim.ema:
        yield Leaf(
            key=average_key(weight),
            names=tuple(f"average/{name}" for name in names),
            weight=weight,
            shape=weight.shape,
            spec=weight.spec,
        )


def _group(name: str) -> str:
    """Return `blocks.3.ffn.up.weight` as `blocks.*.ffn.up.weight`."""
    first, _, rest = name.partition(".")
    return EVERY_BLOCK + rest.partition(".")[2] if first == "blocks" else name
