"""The arrays of the training state, by what they hold: which tensors of a checkpoint, how they are divided.

A leaf holds one tensor, or one of every layer, stacked, when the blocks are scanned. Tensors in checkpoints are always
one a layer, so either way of running reads the other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainer.config import Config, ModelConfig, OptimName
from trainer.jax_engine.model import EVERY
from trainer.shape.architecture import Parameter, parameters
from trainer.shape.layout import layout_of
from trainer.shape.limits import SCAN_FROM, SCAN_FROM_CPU

Spec: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """One array of weights. parameters: what it holds, one a layer when stacked. positions: theirs in the list."""

    name: str
    parameters: tuple[Parameter, ...]
    positions: tuple[int, ...]
    stacked: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one layer."""
        return self.parameters[0].shape

    @property
    def spec(self) -> Spec:
        """The axis of each dimension of one layer."""
        return layout_of(self.parameters[0]).spec(len(self.shape))

    @property
    def decays(self) -> bool:
        return self.parameters[0].decays


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of the state. key: in the state's dict. names: of the tensors it holds. shape, spec: of one of them."""

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
        """The axis of each dimension of the array."""
        return (None, *self.spec) if self.weight.stacked else self.spec

    @property
    def bytes(self) -> int:
        return 4 * math.prod(self.full_shape)


def scans(layers: int, platform: str) -> bool:
    """Whether the blocks are scanned, as one piece of program, or written out one after the other."""
    return layers >= (SCAN_FROM_CPU if platform == "cpu" else SCAN_FROM)


def weights_of(model: ModelConfig, scanned: bool) -> tuple[Weight, ...]:
    """In the order of the forward pass."""
    groups: dict[str, list[tuple[int, Parameter]]] = {}
    for position, parameter in enumerate(parameters(model)):
        groups.setdefault(_group(parameter.name) if scanned else parameter.name, []).append((position, parameter))
    return tuple(
        Weight(
            name,
            parameters=tuple(parameter for _, parameter in members),
            positions=tuple(position for position, _ in members),
            stacked=name.startswith(EVERY),
        )
        for name, members in groups.items()
    )


def leaves_of(config: Config, weights: Sequence[Weight]) -> tuple[Leaf, ...]:
    return tuple(leaf for weight in weights for leaf in _leaves(config, weight))


def weight_key(weight: Weight) -> str:
    return f"model/{weight.name}"


def moment_key(weight: Weight, moment: str) -> str:
    return f"optimizer/{weight.name}/{moment}"


def average_key(weight: Weight) -> str:
    return f"average/{weight.name}"


def moments_of(kind: OptimName, weight: Weight) -> Iterator[tuple[str, tuple[int, ...], Spec]]:
    """Name, shape and spec of each moment of one layer."""
    shape, spec = weight.shape, weight.spec
    if kind == "adamw":
        yield "exp_avg", shape, spec
        yield "exp_avg_sq", shape, spec
    elif len(shape) == 1:
        yield "full", shape, spec
    else:
        yield "row", shape[:-1], spec[:-1]
        yield "column", shape[1:], spec[1:]


def _leaves(config: Config, weight: Weight) -> Iterator[Leaf]:
    names = [parameter.name for parameter in weight.parameters]
    yield Leaf(weight_key(weight), tuple(f"model/{name}" for name in names), weight, weight.shape, weight.spec)
    for moment, shape, spec in moments_of(config.optim.kind, weight):
        held = tuple(f"optimizer/{name}/{moment}" for name in names)
        yield Leaf(moment_key(weight, moment), held, weight, shape, spec)
    if config.optim.ema:
        yield Leaf(average_key(weight), tuple(f"average/{name}" for name in names), weight, weight.shape, weight.spec)


def _group(name: str) -> str:
    """`blocks.3.ffn.up.weight` as `blocks.*.ffn.up.weight`."""
    first, _, rest = name.partition(".")
    return EVERY + rest.partition(".")[2] if first == "blocks" else name
