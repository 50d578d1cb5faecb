"""The parameters of LoRA adapters, and which parameters a run trains.

An adapter of a layer y = x @ w.T adds scale * (x @ a.T) @ b.T. `a` has shape (rank, in) and begins with random values
whose deviation is that of peft's; `b` has shape (out, rank) and begins at zero, so a run begins as its base model.

Adapters are small, so each device of the data and fsdp axes has copies. Over the tensor axis:

- query, key, value, gate, up: `b` is sharded as the layer's outputs (lora_column). `a` is whole, and each device has
  the gradient of its outputs alone (lora_shared).
- out, down: `a` is sharded as the layer's inputs (lora_row). The sum of x @ a.T is scattered over the tokens, so `b` is
  whole, and each device has the gradient of its tokens alone (lora_copy).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from trainer.config import Config, LoraConfig, ModelConfig
from trainer.errors import ConfigError
from trainer.shape.architecture import (
    Parameter,
    Role,
    count_active_matrix_weights,
    count_flops_per_token,
    list_parameters,
)

ATTENTION = ("query", "key", "value", "out")
FFN = ("gate", "up", "down")
_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({"all": (*ATTENTION, *FFN), "attention": ATTENTION})


def refuse_muon(config: Config) -> None:
    """Refuse an optimizer of matrices that are frozen.

    Raises:
        ConfigError: The run has adapters, and Muon as its optimizer.
    """
    if config.lora.rank and config.optim.kind == "muon":
        raise ConfigError("optim.kind=muon: it updates the matrices that LoRA freezes; use optim.kind=adamw")


@lru_cache(maxsize=32)
def list_targets(lora: LoraConfig) -> tuple[str, ...]:
    """Return the layers of a block that have an adapter, in the order of the forward pass; none without LoRA.

    Raises:
        ConfigError: `lora.targets` names a layer that does not exist.
    """
    named = _GROUPS.get(lora.targets, tuple(word.strip() for word in lora.targets.split(",")))
    unknown = [name for name in named if name not in _GROUPS["all"]]
    if unknown:
        raise ConfigError(
            f"lora.targets={lora.targets}: {unknown[0]!r} is no layer; use all, attention, or some of "
            f"{','.join(_GROUPS['all'])}"
        )
    return tuple(name for name in _GROUPS["all"] if name in named) if lora.rank else ()


def list_adapted_experts(lora: LoraConfig) -> tuple[str, ...]:
    """Return the layers of the feed-forward part that the settings give an adapter; unknown names are left out."""
    named = _GROUPS.get(lora.targets, tuple(word.strip() for word in lora.targets.split(",")))
    return tuple(name for name in FFN if name in named) if lora.rank else ()


def list_adapters(model: ModelConfig, lora: LoraConfig) -> tuple[Parameter, ...]:
    """List the parameters of all adapters, in the order of the forward pass."""
    return tuple(parameter for pair in map_adapters(model, lora).values() for parameter in pair)


@lru_cache(maxsize=32)
def map_adapters(model: ModelConfig, lora: LoraConfig) -> Mapping[str, tuple[Parameter, Parameter]]:
    """Return `a` and `b` of each adapter by the name of the weight to which it belongs."""
    targets = list_targets(lora)
    weights = (one for one in list_parameters(model) if one.role in ("column", "row"))
    return MappingProxyType({one.name: _pair(one, lora.rank) for one in weights if one.name.split(".")[-2] in targets})


@lru_cache(maxsize=32)
def list_run_parameters(model: ModelConfig, lora: LoraConfig) -> tuple[Parameter, ...]:
    """List all parameters of a run: the model's, which are frozen where there are adapters, and the adapters'."""
    if not lora.rank:
        return list_parameters(model)
    return (*(replace(one, frozen=True) for one in list_parameters(model)), *list_adapters(model, lora))


@lru_cache(maxsize=32)
def count_trained_parameters(model: ModelConfig, lora: LoraConfig) -> int:
    """Return the number of values that training changes."""
    return sum(one.size for one in list_run_parameters(model, lora) if not one.frozen)


def count_run_flops_per_token(model: ModelConfig, lora: LoraConfig, seq_len: int) -> float:
    """Return the training FLOPs of one token of a run.

    A frozen matrix needs no product for its own gradient: 4 FLOPs for each weight instead of 6.
    """
    whole = count_flops_per_token(model, seq_len)
    if not lora.rank:
        return whole
    return whole - 2.0 * count_active_matrix_weights(model) + 6.0 * count_trained_parameters(model, lora)


def _pair(weight: Parameter, rank: int) -> tuple[Parameter, Parameter]:
    block, target, _ = weight.name.rsplit(".", 2)
    wide, inputs = weight.shape
    roles: tuple[Role, Role] = ("lora_shared", "lora_column") if weight.role == "column" else ("lora_row", "lora_copy")
    # peft draws `a` evenly from +-1 / sqrt(in) (kaiming_uniform_ with a = sqrt(5)): peft 0.21, tuners/lora/layer.py.
    deviation = 1.0 / math.sqrt(3.0 * inputs)
    return (
        Parameter(name=f"{block}.lora.{target}.a", shape=(rank, inputs), role=roles[0], std=deviation),
        Parameter(name=f"{block}.lora.{target}.b", shape=(wide, rank), role=roles[1], std=0.0),
    )
