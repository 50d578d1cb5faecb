"""The parser of the command line: `parse_config(["steps=200", "model.dim=128"])` returns a checked Config."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from trainer.config import AUTO, Config, Doc, ModelConfig, Scalar
from trainer.errors import ConfigError
from trainer.presets import PRESETS
from trainer.shape.limits import EXPERT_STEP
from trainer.shape.lora import list_adapted_experts

_EXPERT_SETTINGS = ("experts_per_token", "expert_hidden", "normalize_experts", "router_loss")
_LIMIT = 1 << 63  # the integers of numpy, torch and checkpoints

ALIASES: Mapping[str, str] = MappingProxyType({"data": "data.source", "tokenizer": "data.tokenizer"})
# Common names elsewhere: `gpu` is too different from `cuda` for a spelling check.
_COMMON_SYNONYMS: Mapping[str, str] = MappingProxyType(
    {
        "gpu": "cuda",
        "trainium": "neuron",
        "pytorch": "torch",
        "float32": "fp32",
        "bfloat16": "bf16",
        "float16": "bf16",
        "fp16": "bf16",
    }
)


def parse_config(words: Sequence[str]) -> Config:
    """Parse `key=value` words; a later one wins.

    Raises:
        ConfigError: The first word that is wrong, with what is allowed.
    """
    table = {key.name: key for key in list_keys()}
    given: dict[str, str] = {}
    preset: Mapping[str, str] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator:
            raise ConfigError(_describe_malformed_word(word, [*table, *ALIASES, "model"]))
        name = ALIASES.get(name, name)
        if name == "model":
            preset = _preset(text)
        elif name in table:
            given[name] = text
        else:
            raise ConfigError(_describe_unknown_key(name, [*table, *ALIASES, "model"]))
    texts = {**preset, **given}
    values = {name: table[name].parse_value(text) for name, text in texts.items()}
    _check_adapters(given)
    config: Config = _build(Config, "", values)
    _check_shapes(config.model)
    _check_experts(config)
    config.check_row(config.mesh.context, config.mesh.tensor)
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the command line.

    Attributes:
        name: Dotted, such as "model.dim".
        kind: bool, int, float, str, or the tuple of allowed words.
        default: The value if the key is not given.
        doc: Help text and allowed range.
    """

    name: str
    kind: type | tuple[str, ...]
    default: Scalar
    doc: Doc

    def parse_value(self, text: str) -> Scalar:
        """Return the typed value.

        Raises:
            ConfigError: The text is not allowed; the message names the key and what is allowed.
        """
        if isinstance(self.kind, tuple):
            if text not in self.words:
                near = _find_closest(text, self.words)
                hint = f"; did you mean {near}?" if near else ""
                raise ConfigError(f"{self.name}={text}: not one of {', '.join(self.words)}{hint}")
            return dict(self.doc.synonyms).get(text, text)
        if self.doc.auto and text == "auto":
            return AUTO
        if self.kind is bool:
            words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
            if text.lower() not in words:
                raise ConfigError(f"{self.name}={text}: not true or false")
            return words[text.lower()]
        if self.kind is str:
            return text
        return self._parse_number(text)

    def _parse_number(self, text: str) -> Scalar:
        what = "a whole number" if self.kind is int else "a number"
        try:
            value: int | float = int(text) if self.kind is int else float(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text}: not {what}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{self.name}={text}: not {what}")
        if isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
            raise ConfigError(f"{self.name}={text[:8]}...: has more than 64 bits")
        if self.doc.least is not None and value < self.doc.least:
            raise ConfigError(f"{self.name}={text}: must be at least {self.doc.least:g}")
        if self.doc.most is not None and value > self.doc.most:
            raise ConfigError(f"{self.name}={text}: must be at most {self.doc.most:g}")
        return value

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a choice, with their synonyms; none for other kinds."""
        return (*self.kind, *dict(self.doc.synonyms)) if isinstance(self.kind, tuple) else ()

    def value_in(self, config: Config) -> Scalar:
        """Return this key's value in a configuration."""
        value: Any = config
        for part in self.name.split("."):
            value = getattr(value, part)
        return cast("Scalar", value)

    @property
    def default_text(self) -> str:
        """The default as one would type it."""
        if self.doc.auto and self.default == AUTO:
            return "auto"
        return str(self.default).lower() if isinstance(self.default, bool) else f"{self.default}"


def list_keys() -> list[Key]:
    """Return every key, in the order of the classes."""
    return list(_walk(Config, ""))


def flatten_config(config: Config) -> dict[str, Scalar]:
    """Return all values by dotted key: what a checkpoint records."""
    return {key.name: key.value_in(config) for key in list_keys()}


def _walk(cls: Any, prefix: str) -> Iterator[Key]:
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{field.name}.")
            continue
        kind, doc = get_args(hint)
        words: tuple[str, ...] = get_args(kind)
        default = cast("Scalar", field.default)
        yield Key(
            name=f"{prefix}{field.name}", kind=words if get_origin(kind) is Literal else kind, default=default, doc=doc
        )


def _build(cls: Any, prefix: str, values: Mapping[str, Scalar]) -> Any:
    hints = get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _build(hints[field.name], f"{name}.", values)
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)


def _preset(name: str) -> Mapping[str, str]:
    if name not in PRESETS:
        sized = [one for one in PRESETS if one.endswith(f"-{name}")]  # 7b: mistral-7b
        near = sized[0] if sized else _find_closest(name, list(PRESETS))
        hint = f"did you mean {near}? " if near else ""
        raise ConfigError(f"model={name}: no such preset; {hint}there are {', '.join(PRESETS)}")
    return PRESETS[name]


def _find_closest(word: str, known: Sequence[str]) -> str:
    """Return the known word that was probably meant, or ""; `300` and `300M` mean 300m."""
    low = word.lower()
    if _COMMON_SYNONYMS.get(low) in known:
        return _COMMON_SYNONYMS[low]
    for candidate in known:
        if candidate in (low, f"{low}m", f"{low}b"):
            return candidate
    return next(iter(difflib.get_close_matches(low, known, n=1, cutoff=0.6)), "")


def _describe_malformed_word(word: str, known: Sequence[str]) -> str:
    name = word.lstrip("-")
    hint = f"write {name}=VALUE" if name in known else "`python -m trainer --help` lists the keys"
    return f"not a key=value word: {word!r}; {hint}"


def find_nearest_name(name: str, known: Sequence[str]) -> str:
    """Return the known name that was probably meant, or ""; the last part alone is enough: `lr` is `optim.lr`."""
    tails = [key for key in known if key.rsplit(".", 1)[-1] == name]
    return next(iter(tails or difflib.get_close_matches(name, known, n=1, cutoff=0.6)), "")


def _describe_unknown_key(name: str, known: Sequence[str]) -> str:
    near = find_nearest_name(name, known)
    hint = f"did you mean {near}?" if near else "`python -m trainer --help` lists the keys"
    return f"unknown key {name!r}; {hint}"


def _check_adapters(given: Mapping[str, str]) -> None:
    """Refuse settings of adapters without `lora.rank`: the run would train all weights."""
    without = [name for name in given if name.startswith("lora.") and "lora.rank" not in given]
    if without:
        raise ConfigError(
            f"{without[0]} without lora.rank: all weights would be trained; add lora.rank=16, or leave {without[0]} out"
        )


def _check_shapes(model: ModelConfig) -> None:
    if not model.head and model.dim % model.heads:
        raise ConfigError(f"model.dim={model.dim} is not a multiple of model.heads={model.heads}")
    if model.head_dim % 2:
        raise ConfigError(f"a head is {model.head_dim} wide, but must be even (rotary positions)")
    if model.rope_scaling != "none" and model.rope_high_freq <= model.rope_low_freq:
        raise ConfigError(
            f"model.rope_high_freq={model.rope_high_freq:g} is not above model.rope_low_freq={model.rope_low_freq:g}"
        )
    if model.heads % model.kv_heads:
        raise ConfigError(f"model.heads={model.heads} is not a multiple of model.kv_heads={model.kv_heads}")


def _check_experts(config: Config) -> None:
    model = config.model
    if not model.experts:
        default = ModelConfig()
        for name in _EXPERT_SETTINGS:
            if getattr(model, name) != getattr(default, name):
                raise ConfigError(f"model.{name} without model.experts: the model would be dense: add model.experts=8")
        return
    if model.experts_per_token > model.experts:
        raise ConfigError(
            f"model.experts_per_token={model.experts_per_token} is more than model.experts={model.experts}"
        )
    for name, size in (("dim", model.dim), ("expert_hidden", model.expert_dim)):
        if size % EXPERT_STEP:
            raise ConfigError(
                f"model.{name}={size} is not a multiple of {EXPERT_STEP}, which the grouped products of experts need"
            )
    if config.optim.kind != "adamw":
        raise ConfigError(f"optim.kind={config.optim.kind}: a model with experts has only optim.kind=adamw")
    if adapted := list_adapted_experts(config.lora):
        raise ConfigError(
            f"lora.targets={config.lora.targets}: experts have no adapters ({', '.join(adapted)}); "
            "use lora.targets=attention"
        )
