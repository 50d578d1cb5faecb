"""Checks whether a checkpoint fits this run, and plans where each tensor is read from.

The model must have the same parameters; settings that change what it computes from them, such as model.rope_theta and
model.window, are reported when they differ, and so is another arithmetic (dtype, float8, residual) where a run resumes.
How else it is trained (the optimizer's numbers, mesh.*) may change without a note: each manifest records it. Averaged
weights begin as the weights in a run that keeps them from here on. Moments begin at zero after an import; a change of
the optimizer is refused. LoRA adapters begin with their initial values in a run that starts from a checkpoint without
any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from trainer.checkpoint.regions import Tensor
from trainer.config import Config, LoraConfig, ModelConfig, Scalar
from trainer.data.sources import HUB_SCHEME
from trainer.data.state import SettingChange
from trainer.errors import ConfigError, StorageError
from trainer.options import flatten_config
from trainer.shape.architecture import Parameter
from trainer.shape.box import TensorRegion
from trainer.shape.lora import list_adapters, list_targets

_SHAPED = (
    ("dim", "dim"),
    ("layers", "layers"),
    ("heads", "heads"),
    ("kv_heads", "kv_heads"),
    ("head", "head_dim"),
    ("ffn", "hidden"),
    ("vocab", "tokens"),
    ("tied", "tied"),
    ("qkv_bias", "qkv_bias"),
    ("qk_norm", "qk_norm"),
    ("post_norm", "post_norm"),
    ("norm_offset", "norm_offset"),
    ("experts", "experts"),
    ("expert_hidden", "expert_dim"),
)
"""Key below `model.`, and the attribute with `auto` filled in."""
_FREE = (
    "rope_theta",
    "norm_eps",
    "window",
    "full_every",
    "local_rope_theta",
    "activation",
    "embed_scale",
    "query_scale",
    "attention_softcap",
    "softcap",
    "rope_scaling",
    "experts_per_token",
    "router_loss",
    "normalize_experts",
)
_ARITHMETIC = ("dtype", "float8", "residual")
_OF_HUB = ("data.tokenizer", "data.column")
_OF_SCALING = ("rope_factor", "rope_low_freq", "rope_high_freq", "rope_context")


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is read from a checkpoint, and what is not.

    Attributes:
        read: The regions to read, by the name of the checkpoint's tensor.
        zeros: The regions that begin at zero.
        initial: The regions that begin with the initial values of a parameter.
        notes: For the user.
    """

    read: Mapping[str, Sequence[TensorRegion]]
    zeros: Sequence[TensorRegion]
    initial: Sequence[tuple[TensorRegion, Parameter]]
    notes: Sequence[str]


def read_model_config(config: Mapping[str, Scalar]) -> ModelConfig:
    """Return the model in a manifest's configuration.

    Raises:
        ConfigError: A value is unusable.
    """
    values: dict[str, Any] = {
        field.name: config[f"model.{field.name}"] for field in fields(ModelConfig) if f"model.{field.name}" in config
    }
    try:
        model = ModelConfig(**values)
        _ = model.hidden, model.head_dim, model.tokens
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ConfigError(f"the checkpoint's configuration describes no valid model: {error}") from error
    return model


def list_mask_changes(before: Mapping[str, Scalar], config: Config) -> list[str]:
    """Return a note where the checkpoint's run had another `data.document_mask`; earlier versions had none."""
    now, was = config.data.document_mask, before.get("data.document_mask", False)
    if was == now:
        return []
    return [f"note: data.document_mask={_text(now)}, but the checkpoint was made with {_text(was)}"]


def list_arithmetic_changes(before: Mapping[str, Scalar], config: Config) -> list[str]:
    """Return one note where this run computes with other numbers of digits than the checkpoint's.

    Args:
        before: The checkpoint's configuration; earlier versions had no `float8` and no `residual`.
        config: That of this run, with `dtype` resolved.
    """
    now = flatten_config(config)
    was = {name: before.get(name, getattr(Config(), name)) for name in _ARITHMETIC}
    changed = [name for name in _ARITHMETIC if "auto" not in (was[name], now[name]) and was[name] != now[name]]
    if not changed:
        return []
    given, saved = (" ".join(f"{name}={_text(values[name])}" for name in changed) for values in (now, was))
    return [f"note: {given}, but the checkpoint was made with {saved}; steps from here on round differently"]


def list_data_changes(before: Mapping[str, Scalar], config: Config) -> list[SettingChange]:
    """Return the settings that decide what is trained on and were others in the checkpoint's run.

    Args:
        before: The checkpoint's configuration; earlier versions had fewer settings.
        config: That of this run, with `data.loss` resolved.
    """
    now = flatten_config(config)
    names = ["data.source", *(_OF_HUB if config.data.source.startswith(HUB_SCHEME) else ())]
    if before.get("data.loss") in ("all", "marked"):  # others were recorded as `auto`
        names.append("data.loss")
    if _held_out_share(before) != _held_out_share(now):
        names += ["eval.every"] if bool(before.get("eval.every")) != bool(config.eval.every) else []
        names += ["eval.share", "eval.source"] if before.get("eval.every") else []
    return [
        SettingChange(name=name, before=_text(before[name]), now=_text(now[name]))
        for name in names
        if name in before and before[name] != now[name]
    ]


def _held_out_share(config: Mapping[str, Scalar]) -> Scalar:
    """Return the share of the data that is evaluated and not trained on."""
    return config.get("eval.share", 0) if config.get("eval.every") and not config.get("eval.source") else 0


def check_same_model(before: Mapping[str, Scalar], now: ModelConfig) -> list[str]:
    """Return notes on settings that may change.

    Raises:
        ConfigError: The checkpoint's model has another shape.
    """
    model = read_model_config(before)
    for key, attribute in _SHAPED:
        was, requested = getattr(model, attribute), getattr(now, attribute)
        if was != requested:
            raise ConfigError(
                f"model.{key}={_text(requested)}, but the checkpoint was made with model.{key}={_text(was)}: "
                "give that value, or another checkpoint.uri to start a new run"
            )
    scaled = "none" not in (model.rope_scaling, now.rope_scaling)
    return [
        f"note: model.{key}={_text(getattr(now, key))}, but the checkpoint was made with {_text(getattr(model, key))}"
        for key in (*_FREE, *(_OF_SCALING if scaled else ()))
        if getattr(model, key) != getattr(now, key)
    ]


def read_lora_config(config: Mapping[str, Scalar]) -> LoraConfig:
    """Return the adapters in a manifest's configuration; none in one that was written before there were any.

    Raises:
        ConfigError: A value is unusable.
    """
    found: dict[str, Any] = {
        field.name: config[f"lora.{field.name}"] for field in fields(LoraConfig) if f"lora.{field.name}" in config
    }
    for name, value in found.items():
        if type(value) is not type(getattr(LoraConfig(), name)) or (name != "targets" and value < 0):
            raise ConfigError(f"the checkpoint's configuration has lora.{name}={value!r}")
    lora = LoraConfig(**found)
    list_targets(lora)
    return lora


def check_same_adapters(before: Mapping[str, Scalar], now: LoraConfig, *, own: bool) -> list[str]:
    """Return notes on settings of the adapters that may change.

    Args:
        before: The checkpoint's configuration.
        now: The run's adapters.
        own: Whether the checkpoint is of this run, and not one that it starts from.

    Raises:
        ConfigError: The checkpoint has other adapters, or has some where the run has none.
    """
    was = read_lora_config(before)
    if not was.rank and now.rank and own:
        raise ConfigError(
            f"lora.rank={now.rank}, but this run's checkpoint was made without LoRA: to fine-tune its weights, name "
            "its step's folder as checkpoint.start, and another checkpoint.uri"
        )
    if was.rank and not now.rank:
        raise ConfigError(
            f"lora.rank=0, but the checkpoint was made with lora.rank={was.rank}: give that value; to train all "
            "weights from here, `export` the checkpoint, which merges its adapters, and `import` it again"
        )
    if was.rank and (was.rank, list_targets(was)) != (now.rank, list_targets(now)):
        raise ConfigError(
            f"lora.rank={now.rank} lora.targets={now.targets}, but the checkpoint was made with lora.rank={was.rank} "
            f"lora.targets={was.targets}: give those values, or another checkpoint.uri to start a new run"
        )
    if was.rank and was.scale != now.scale:
        return [f"note: adapters are multiplied with {now.scale:g}, but the checkpoint was made with {was.scale:g}"]
    return []


def plan_restore(
    needed: Sequence[TensorRegion],
    tensors: Mapping[str, Tensor],
    before: Mapping[str, Scalar],
    config: Config,
    *,
    weights_only: bool,
) -> RestorePlan:
    """Plan where each needed region is read from.

    Raises:
        ConfigError: A tensor has another shape, or the optimizer is another.
        StorageError: The checkpoint lacks a tensor.
    """
    read: dict[str, list[TensorRegion]] = {}
    zeros: list[TensorRegion] = []
    initial: list[tuple[TensorRegion, Parameter]] = []
    new = {} if read_lora_config(before).rank else {one.name: one for one in list_adapters(config.model, config.lora)}
    notes = dict.fromkeys(_dropped(needed, tensors))
    for piece in needed:
        source = piece.name
        if source not in tensors:
            kind, _, rest = source.partition("/")
            if kind == "optimizer" and rest.rpartition("/")[0] in new:
                zeros.append(piece)
                continue
            if rest in new:
                initial.append((piece, new[rest]))
                continue
            if kind == "average":
                source = f"model/{rest}"
                notes["note: the averaged weights begin as the checkpoint's weights: it has none"] = None
            elif kind == "optimizer":
                _check_optimizer(source, before, config, weights_only=weights_only)
                notes["note: the optimizer starts at zero: the checkpoint holds weights alone"] = None
                zeros.append(piece)
                continue
        if source not in tensors:
            raise StorageError(f"the checkpoint has no tensor {source}: it was made by another program")
        if tensors[source].shape != piece.shape:
            raise ConfigError(
                f"{source} has the shape {list(tensors[source].shape)} in the checkpoint, here {list(piece.shape)}: "
                "give the same model.* values, or another checkpoint.uri to start a new run"
            )
        read.setdefault(source, []).append(piece)
    return RestorePlan(MappingProxyType(read), tuple(zeros), tuple(initial), tuple(notes))


def _check_optimizer(name: str, before: Mapping[str, Scalar], config: Config, *, weights_only: bool) -> None:
    if weights_only:
        return
    was = before.get("optim.kind", "adamw")
    if was != config.optim.kind:
        raise ConfigError(
            f"optim.kind={config.optim.kind}, but the checkpoint was made with optim.kind={was}, whose state it holds: "
            "give that value; to continue from the weights alone, `export` the checkpoint and `import` it again"
        )
    raise StorageError(f"the checkpoint has no tensor {name}: it was made by another program")


def _dropped(needed: Sequence[TensorRegion], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    averaged = any(name.startswith("average/") for name in tensors)
    if averaged and not any(piece.name.startswith("average/") for piece in needed):
        yield "note: the checkpoint's averaged weights are dropped: optim.ema=0"


def _text(value: Scalar) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
