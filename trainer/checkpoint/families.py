"""The model families of Hugging Face that this trainer computes: their config.json and names of parameters.

All turn the halves of a head against each other (x_i with x_{i + half}), and keep matrices as (out, in), as this
trainer does, so the values are the same and only names differ. A family here is a combination of settings of the one
architecture. Source: transformers 5.24, models/{llama,mistral,qwen2,qwen3} and modeling_rope_utils.py, read November
2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from trainer.config import AUTO, ModelConfig
from trainer.errors import ConfigError
from trainer.shape.architecture import Parameter, list_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family, and the settings that set it apart.

    Attributes:
        name: `model_type` in config.json.
        architecture: Class in transformers.
        qkv_bias: Whether queries, keys and values have a bias.
        qk_norm: Whether queries and keys have a norm.
        window: Keys of config.json that switch the window on beside `sliding_window`; None: it has no window.
        defaults: What transformers assumes of keys that config.json lacks, where it is not what Llama has.
    """

    name: str
    architecture: str
    qkv_bias: bool = False
    qk_norm: bool = False
    window: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any]


_NONE: Mapping[str, Any] = MappingProxyType({})
_ON = MappingProxyType({"use_sliding_window": True, "max_window_layers": 0})
_QWEN = MappingProxyType({"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28})
# In the order in which export tries them: the first that has the settings of the model.
FAMILIES: Sequence[Family] = (
    Family(name="llama", architecture="LlamaForCausalLM", defaults=_NONE),
    Family(
        name="mistral",
        architecture="MistralForCausalLM",
        window=_NONE,
        defaults=MappingProxyType({"num_key_value_heads": 8, "sliding_window": 4096}),
    ),
    Family(name="qwen2", architecture="Qwen2ForCausalLM", qkv_bias=True, window=_ON, defaults=_QWEN),
    Family(
        name="qwen3",
        architecture="Qwen3ForCausalLM",
        qk_norm=True,
        window=_ON,
        defaults=MappingProxyType({**_QWEN, "head_dim": 128}),
    ),
)

_BLOCK: Mapping[str, str] = MappingProxyType(
    {
        "attention_norm.weight": "input_layernorm.weight",
        "attention.query.weight": "self_attn.q_proj.weight",
        "attention.key.weight": "self_attn.k_proj.weight",
        "attention.value.weight": "self_attn.v_proj.weight",
        "attention.out.weight": "self_attn.o_proj.weight",
        "attention.query_bias.weight": "self_attn.q_proj.bias",
        "attention.key_bias.weight": "self_attn.k_proj.bias",
        "attention.value_bias.weight": "self_attn.v_proj.bias",
        "attention.query_norm.weight": "self_attn.q_norm.weight",
        "attention.key_norm.weight": "self_attn.k_norm.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn.gate.weight": "mlp.gate_proj.weight",
        "ffn.up.weight": "mlp.up_proj.weight",
        "ffn.down.weight": "mlp.down_proj.weight",
    }
)
_REST: Mapping[str, str] = MappingProxyType(
    {
        "embedding.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }
)


def map_parameter_names(model: ModelConfig) -> Mapping[str, Parameter]:
    """Return the parameters by the names that Hugging Face has for them."""
    return {name_weight(parameter.name): parameter for parameter in list_parameters(model)}


def find_family(model: ModelConfig) -> Family:
    """Return the first family that computes what the model does.

    Raises:
        ConfigError: None does.
    """
    for family in FAMILIES:
        same = (family.qkv_bias, family.qk_norm) == (model.qkv_bias, model.qk_norm)
        if same and (not model.window or family.window is not None):
            return family
    raise ConfigError(
        "no model of transformers that this trainer knows has model.qkv_bias=true with model.qk_norm=true: "
        "this checkpoint cannot be exported"
    )


def make_hf_config(model: ModelConfig, seq_len: int, dtype: str, end: int | None) -> dict[str, Any]:
    """Return config.json.

    Args:
        model: The model.
        seq_len: Length of the rows that it was trained on.
        dtype: As torch names it.
        end: The token that ends a document, if known.

    Raises:
        ConfigError: No family computes what the model does.
    """
    family = find_family(model)
    rope = _make_rope(model)
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
        "rope_scaling": rope if model.rope_scaling != "none" else None,
        "rope_parameters": {**rope, "rope_theta": model.rope_theta},
        "rms_norm_eps": model.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        **({"sliding_window": model.window, **(family.window or {})} if model.window else {}),
        "max_position_embeddings": _count_positions(model, seq_len),
        "bos_token_id": end,
        "eos_token_id": end,
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
    rope = _find_rope(found)
    for key, value, supported in (
        ("rope_type", rope.get("rope_type", rope.get("type", "default")), ("default", "llama3")),
        ("partial_rotary_factor", rope.get("partial_rotary_factor", found.get("partial_rotary_factor", 1.0)), (1.0,)),
        ("hidden_act", found.get("hidden_act", "silu"), ("silu",)),
        ("attention_bias", found.get("attention_bias", False), (False,)),
        ("mlp_bias", found.get("mlp_bias", False), (False,)),
        ("quantization_config", found.get("quantization_config"), (None,)),
    ):
        if value not in supported:
            choices = " or ".join(repr(one) for one in supported)
            raise ConfigError(f"config.json has {key}={value!r}: this trainer computes only {choices}")
    try:
        return _parse(family, found, rope)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ConfigError(f"config.json cannot be used: {error!r}") from error


def _parse(family: Family, config: Mapping[str, Any], rope: Mapping[str, Any]) -> ModelConfig:
    dim, heads = _whole(config["hidden_size"]), _whole(config["num_attention_heads"])
    head = _whole(config.get("head_dim") or dim // heads)
    scaled = {} if "llama3" not in (rope.get("rope_type"), rope.get("type")) else _parse_scaling(config, rope)
    return ModelConfig(
        dim=dim,
        layers=_whole(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=_whole(config.get("num_key_value_heads") or heads),
        head=AUTO if head * heads == dim else head,
        ffn=_whole(config["intermediate_size"]),
        vocab=_whole(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        window=_parse_window(family, config),
        **scaled,
    )


def _parse_window(family: Family, config: Mapping[str, Any]) -> int:
    """Return the window of all layers; 0 for none.

    Raises:
        ConfigError: Some layers have one and others have not.
    """
    size = _whole(config.get("sliding_window") or 0)
    if family.window is None or not size or not all(config.get(key) for key in family.window if key.startswith("use_")):
        return 0
    layers = _whole(config["num_hidden_layers"])
    first = _whole(config["max_window_layers"]) if "max_window_layers" in family.window else 0
    kinds = cast("Sequence[str] | None", config.get("layer_types"))
    windowed = {kind == "sliding_attention" for kind in kinds} if kinds else {first <= 0, first < layers}
    if len(windowed) > 1:
        key = "layer_types" if kinds else "max_window_layers"
        raise ConfigError(f"config.json has {key}={config[key]!r}: this trainer computes one window for all layers")
    return size if windowed == {True} else 0


def _find_rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"config.json has rope_scaling={found!r}, which is not an object")
    return cast("Mapping[str, Any]", found)


def _whole(value: Any) -> int:
    """Return a whole number of the file. Raises TypeError for anything else, such as 8.9."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _parse_scaling(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rope_scaling": "llama3",
        "rope_factor": float(rope["factor"]),
        "rope_low_freq": float(rope["low_freq_factor"]),
        "rope_high_freq": float(rope["high_freq_factor"]),
        "rope_context": _whole(rope.get("original_max_position_embeddings") or config["max_position_embeddings"]),
    }


def _make_rope(model: ModelConfig) -> dict[str, Any]:
    if model.rope_scaling == "none":
        return {"rope_type": "default"}
    return {
        "rope_type": "llama3",
        "factor": model.rope_factor,
        "low_freq_factor": model.rope_low_freq,
        "high_freq_factor": model.rope_high_freq,
        "original_max_position_embeddings": model.rope_context,
    }


def _count_positions(model: ModelConfig, seq_len: int) -> int:
    """Return for how many positions the model is meant: scaled angles serve longer rows than those trained on."""
    return seq_len if model.rope_scaling == "none" else max(seq_len, int(model.rope_context * model.rope_factor))


def name_weight(ours: str) -> str:
    """Return the name that Hugging Face has for a parameter of the model."""
    if ours in _REST:
        return _REST[ours]
    _, layer, rest = ours.split(".", 2)
    return f"model.layers.{layer}.{_BLOCK[rest]}"
