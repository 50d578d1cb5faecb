"""The model families of Hugging Face that this trainer computes: their config.json and names of parameters.

All turn the halves of a head against each other (x_i with x_{i + half}), and keep matrices as (out, in), as this
trainer does, so the values are the same and only names differ. A family here is a combination of settings of the one
architecture. Source: transformers 5.24, models/{llama,mistral,qwen2,qwen3,gemma2,gemma3} and modeling_rope_utils.py,
read November 2026.
family_experts.py has what is said of experts, and family_names.py the names of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from trainer.checkpoint.family_experts import (
    EXPERT_FAMILIES,
    MIXTRAL_DEFAULTS,
    QWEN3_DEFAULTS,
    make_expert_settings,
    parse_experts,
    parse_whole,
)
from trainer.config import AUTO, ModelConfig, Scalar
from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family, and the settings that set it apart.

    Attributes:
        name: `model_type` in config.json.
        architecture: Class in transformers.
        traits: Settings of each of its models; the others of `_STYLE` have their defaults.
        free: Settings of `_STYLE` that its config.json has.
        activation: Key of config.json for the activation function.
        window: Keys of config.json that switch the window on beside `sliding_window`; None: it has no window.
        defaults: What transformers assumes of keys that config.json lacks, where it is not what Llama has.
    """

    name: str
    architecture: str
    traits: Mapping[str, Any]
    free: frozenset[str] = frozenset()
    activation: str = "hidden_act"
    window: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any]


_NONE: Mapping[str, Any] = MappingProxyType({})
_ON = MappingProxyType({"use_sliding_window": True, "max_window_layers": 0})
_QWEN = MappingProxyType({"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28})
_STYLE = (
    "qkv_bias",
    "qk_norm",
    "activation",
    "post_norm",
    "norm_offset",
    "embed_scale",
    "query_scale",
    "attention_softcap",
    "softcap",
    "full_every",
    "local_rope_theta",
    "normalize_experts",
)
"""Settings that only some families have."""
_GEMMA: Mapping[str, Any] = MappingProxyType(
    {"activation": "gelu_tanh", "post_norm": True, "norm_offset": True, "embed_scale": True, "qk_norm": False}
)
_GEMMA_DEFAULTS = MappingProxyType(
    {
        "head_dim": 256,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "hidden_activation": "gelu_pytorch_tanh",
    }
)
_ACTIVATIONS = MappingProxyType({"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"})
# In the order in which export tries them: the first that has the settings of the model.
FAMILIES: Sequence[Family] = (
    Family(name="llama", architecture="LlamaForCausalLM", traits=_NONE, defaults=_NONE),
    Family(
        name="mistral",
        architecture="MistralForCausalLM",
        traits=_NONE,
        window=_NONE,
        defaults=MappingProxyType({"num_key_value_heads": 8, "sliding_window": 4096}),
    ),
    Family(
        name="qwen2",
        architecture="Qwen2ForCausalLM",
        traits=MappingProxyType({"qkv_bias": True}),
        window=_ON,
        defaults=_QWEN,
    ),
    Family(
        name="qwen3",
        architecture="Qwen3ForCausalLM",
        traits=MappingProxyType({"qk_norm": True}),
        window=_ON,
        defaults=MappingProxyType({**_QWEN, "head_dim": 128}),
    ),
    Family(
        name="mixtral",
        architecture="MixtralForCausalLM",
        traits=_NONE,
        window=_NONE,
        defaults=MIXTRAL_DEFAULTS,
    ),
    Family(
        name="qwen3_moe",
        architecture="Qwen3MoeForCausalLM",
        traits=MappingProxyType({"qk_norm": True}),
        free=frozenset({"normalize_experts"}),
        window=MappingProxyType({"use_sliding_window": True}),
        defaults=QWEN3_DEFAULTS,
    ),
    Family(
        name="gemma2",
        architecture="Gemma2ForCausalLM",
        traits=_GEMMA,
        free=frozenset({"query_scale", "softcap", "attention_softcap", "full_every"}),
        activation="hidden_activation",
        window=_NONE,
        defaults=MappingProxyType(
            {
                **_GEMMA_DEFAULTS,
                "final_logit_softcapping": 30.0,
                "attn_logit_softcapping": 50.0,
                "sliding_window_pattern": 2,
            }
        ),
    ),
    Family(
        name="gemma3_text",
        architecture="Gemma3ForCausalLM",
        traits=MappingProxyType({**_GEMMA, "qk_norm": True}),
        free=frozenset({"query_scale", "softcap", "full_every", "local_rope_theta"}),
        activation="hidden_activation",
        window=_NONE,
        defaults=MappingProxyType(
            {
                **_GEMMA_DEFAULTS,
                "rope_theta": 1_000_000.0,
                "rope_local_base_freq": 10_000.0,
                "sliding_window_pattern": 6,
            }
        ),
    ),
)


def find_family(model: ModelConfig, preferred: str | None = None) -> Family:
    """Return a family that computes what the model does: the preferred one if it does, else the first.

    Raises:
        ConfigError: None does.
    """
    for family in sorted(FAMILIES, key=lambda one: one.name != preferred):
        if _has_style(family, model) and (not model.window or family.window is not None):
            return family
    default = ModelConfig()
    changed = [
        f"model.{key}={_text(value)}"
        for key in (*_STYLE, "experts")
        if (value := getattr(model, key)) != getattr(default, key)
    ]
    raise ConfigError(
        f"no model of transformers that this trainer knows has {' with '.join(changed)}: "
        "this checkpoint cannot be exported"
    )


def _has_style(family: Family, model: ModelConfig) -> bool:
    default = ModelConfig()
    return (family.name in EXPERT_FAMILIES) == (model.experts > 0) and all(
        key in family.free or getattr(model, key) == family.traits.get(key, getattr(default, key)) for key in _STYLE
    )


def _text(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def make_hf_config(model: ModelConfig, seq_len: int, dtype: str, preferred: str | None = None) -> dict[str, Any]:
    """Return config.json without special tokens.

    Args:
        model: The model.
        seq_len: Length of the rows that it was trained on.
        dtype: As torch names it.
        preferred: The family that is taken where it computes the model, as others do too.

    Raises:
        ConfigError: No family computes what the model does.
    """
    family = find_family(model, preferred)
    rope = _make_rope(model)
    parameters = {**rope, "rope_theta": model.rope_theta}
    return {
        "architectures": [family.architecture],
        "model_type": family.name,
        "hidden_size": model.dim,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.hidden,
        "vocab_size": model.tokens,
        "tie_word_embeddings": model.tied,
        # `rope_theta` and `rope_scaling` are read by transformers before version 5.
        "rope_theta": model.rope_theta,
        **({"rope_scaling": rope} if model.rope_scaling != "none" else {}),
        "rope_parameters": _make_local_rope(model, parameters) if "local_rope_theta" in family.free else parameters,
        "rms_norm_eps": model.norm_eps,
        family.activation: _ACTIVATIONS[model.activation],
        "attention_bias": False,
        "mlp_bias": False,
        **_make_window(family, model),
        **(_make_gemma(family, model) if "full_every" in family.free else {}),
        **make_expert_settings(family.name, model),
        "max_position_embeddings": _count_positions(model, seq_len),
        "torch_dtype": dtype,  # the same for versions before 5
        "dtype": dtype,
    }


def parse_hf_config(config: Mapping[str, Any]) -> ModelConfig:
    """Return our settings for a config.json.

    Raises:
        ConfigError: This trainer does not compute the model alike.
    """
    family = next((one for one in FAMILIES if one.name == config.get("model_type")), None)
    if family is None:
        names = ", ".join(repr(one.name) for one in FAMILIES)
        raise ConfigError(f"config.json is of a {config.get('model_type')!r} model: only {names} can be imported")
    found = {**family.defaults, **config}
    separate = "local_rope_theta" in family.free
    rope = _find_rope(found, separate=separate)
    for key, value, supported in (
        ("rope_type", rope.get("rope_type", rope.get("type", "default")), ("default", "llama3", "linear")),
        ("partial_rotary_factor", rope.get("partial_rotary_factor", found.get("partial_rotary_factor", 1.0)), (1.0,)),
        (
            family.activation,
            found.get(family.activation, "silu"),
            (_ACTIVATIONS[str(family.traits.get("activation", "silu"))],),
        ),
        ("attention_bias", found.get("attention_bias", False), (False,)),
        ("mlp_bias", found.get("mlp_bias", False), (False,)),
        ("quantization_config", found.get("quantization_config"), (None,)),
        ("use_bidirectional_attention", found.get("use_bidirectional_attention"), (None, False)),
    ):
        if value not in supported:
            choices = " or ".join(repr(one) for one in supported)
            raise ConfigError(f"config.json has {key}={value!r}: this trainer computes only {choices}")
    try:
        return _parse(family, found, rope)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ConfigError(f"config.json cannot be used: {error!r}") from error


def _parse(family: Family, config: Mapping[str, Any], rope: Mapping[str, Any]) -> ModelConfig:
    dim, heads = parse_whole(config["hidden_size"]), parse_whole(config["num_attention_heads"])
    head = parse_whole(config.get("head_dim") or dim // heads)
    styled: dict[str, Any] = {**_parse_windows(family, config), **family.traits}
    return ModelConfig(
        dim=dim,
        layers=parse_whole(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=parse_whole(config.get("num_key_value_heads") or heads),
        head=AUTO if head * heads == dim else head,
        ffn=parse_whole(config["intermediate_size"]),
        vocab=parse_whole(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        **styled,
        **parse_experts(family.name, config),
        **_parse_free(family, config, rope),
        **_parse_scaling(config, rope),
    )


def _parse_free(family: Family, config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that only some families have."""
    head = float(config.get("head_dim") or 0)
    scale = float(config.get("query_pre_attn_scalar") or 0)
    found = {
        "query_scale": 0.0 if scale == head else scale,
        "softcap": float(config.get("final_logit_softcapping") or 0),
        "attention_softcap": float(config.get("attn_logit_softcapping") or 0),
        "local_rope_theta": _parse_local_theta(config, rope) if "local_rope_theta" in family.free else 0.0,
    }
    return {key: value for key, value in found.items() if key in family.free}


def _parse_local_theta(config: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    """Return the base of layers with a window; 0 where all layers have the same angles.

    Raises:
        ConfigError: The angles of layers with a window are scaled otherwise.
    """
    found = cast("Mapping[str, Any]", config.get("rope_parameters") or {})
    local = cast("Mapping[str, Any]", found.get("sliding_attention") or {})
    theta = float(local.get("rope_theta", config["rope_local_base_freq"]))
    same = {**rope, "rope_theta": float(rope.get("rope_theta", config["rope_theta"]))}
    if {"rope_type": "default", **local, "rope_theta": theta} == {"rope_type": "default", **same}:
        return 0.0
    if local.get("rope_type", "default") != "default":
        raise ConfigError(
            f"config.json has rope_type={local['rope_type']!r} of sliding_attention: "
            "this trainer scales only the angles of layers without a window"
        )
    return theta


def _parse_windows(family: Family, config: Mapping[str, Any]) -> dict[str, int]:
    """Return the settings of windows."""
    if "full_every" not in family.free:
        return {"window": _parse_window(family, config)}
    size = parse_whole(config.get("sliding_window") or 0)
    layers, every = parse_whole(config["num_hidden_layers"]), parse_whole(config["sliding_window_pattern"])
    kinds = cast("Sequence[str] | None", config.get("layer_types"))
    if kinds:
        every = list(kinds).index("full_attention") + 1 if "full_attention" in kinds else 0
        expected = [
            "full_attention" if every and (layer + 1) % every == 0 else "sliding_attention" for layer in range(layers)
        ]
        if list(kinds) != expected:
            raise ConfigError(
                f"config.json has layer_types={kinds!r}: this trainer computes a window in all layers, or in all but "
                "every n-th"
            )
    return {"window": 0, "full_every": 0} if every == 1 else {"window": size, "full_every": every if size else 0}


def _parse_window(family: Family, config: Mapping[str, Any]) -> int:
    """Return the window of all layers; 0 for none.

    Raises:
        ConfigError: Some layers have one and others have not.
    """
    size = parse_whole(config.get("sliding_window") or 0)
    if family.window is None or not size or not all(config.get(key) for key in family.window if key.startswith("use_")):
        return 0
    layers = parse_whole(config["num_hidden_layers"])
    first = parse_whole(config["max_window_layers"]) if "max_window_layers" in family.window else 0
    kinds = cast("Sequence[str] | None", config.get("layer_types"))
    windowed = {kind == "sliding_attention" for kind in kinds} if kinds else {first <= 0, first < layers}
    if len(windowed) > 1:
        key = "layer_types" if kinds else "max_window_layers"
        raise ConfigError(f"config.json has {key}={config[key]!r}: this trainer computes one window for all layers")
    return size if windowed == {True} else 0


def _find_rope(config: Mapping[str, Any], *, separate: bool) -> Mapping[str, Any]:
    found: Any = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if separate and isinstance(found, Mapping) and "full_attention" in found:
        found = cast("Mapping[str, Any]", found)["full_attention"] or {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"config.json has rope_scaling={found!r}, which is not an object")
    return cast("Mapping[str, Any]", found)


def _parse_scaling(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return {}
    if kind == "linear":
        return {"rope_scaling": "linear", "rope_factor": float(rope["factor"])}
    return {
        "rope_scaling": "llama3",
        "rope_factor": float(rope["factor"]),
        "rope_low_freq": float(rope["low_freq_factor"]),
        "rope_high_freq": float(rope["high_freq_factor"]),
        "rope_context": parse_whole(rope.get("original_max_position_embeddings") or config["max_position_embeddings"]),
    }


def _make_rope(model: ModelConfig) -> dict[str, Any]:
    if model.rope_scaling == "none":
        return {"rope_type": "default"}
    if model.rope_scaling == "linear":
        return {"rope_type": "linear", "factor": model.rope_factor}
    return {
        "rope_type": "llama3",
        "factor": model.rope_factor,
        "low_freq_factor": model.rope_low_freq,
        "high_freq_factor": model.rope_high_freq,
        "original_max_position_embeddings": model.rope_context,
    }


def _make_local_rope(model: ModelConfig, rope: Mapping[str, Any]) -> dict[str, Any]:
    local = {"rope_type": "default", "rope_theta": model.local_rope_theta} if model.local_rope_theta else rope
    return {"full_attention": rope, "sliding_attention": local}


def _make_window(family: Family, model: ModelConfig) -> dict[str, Any]:
    """Return the keys for a window; where there is none, those that turn off what transformers assumes."""
    if family.window is None or model.window:
        return {"sliding_window": model.window, **(family.window or {})} if model.window else {}
    if "full_every" in family.free:
        return {}  # layer_types has no layer with one
    return {"sliding_window": None, **{key: False for key in family.window if key.startswith("use_")}}


def _make_gemma(family: Family, model: ModelConfig) -> dict[str, Any]:
    """Return the keys that only Gemma has. Versions of transformers before 5 read the last two."""
    windows = [model.get_window(layer) for layer in range(model.layers)]
    scale = model.query_scale or model.head_dim
    if scale != int(scale):
        raise ConfigError(f"model.query_scale={scale:g}: config.json has only whole numbers for it")
    return {
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        "query_pre_attn_scalar": int(scale),
        "final_logit_softcapping": model.softcap or None,
        "attn_logit_softcapping": model.attention_softcap or None,
        "sliding_window_pattern": (model.full_every or model.layers + 1) if model.window else 1,
        **(
            {"rope_local_base_freq": model.local_rope_theta or model.rope_theta}
            if "local_rope_theta" in family.free
            else {}
        ),
    }


def _count_positions(model: ModelConfig, seq_len: int) -> int:
    """Return for how many positions the model is meant: scaled angles serve longer rows than those trained on."""
    return seq_len if model.rope_scaling != "llama3" else max(seq_len, int(model.rope_context * model.rope_factor))
