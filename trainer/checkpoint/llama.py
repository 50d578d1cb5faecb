"""The Hugging Face layout of a Llama: what our parameters and settings are called there.

Both turn the halves of a head against each other (x_i with x_{i + half}), and both keep matrices as (out, in), so the
values are the same and only names differ. Source: transformers, models/llama/modeling_llama.py (rotate_half,
LlamaConfig), read November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainer.config import AUTO, ModelConfig
from trainer.errors import ConfigError
from trainer.shape.architecture import Parameter, list_parameters

_BLOCK: Mapping[str, str] = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn.gate": "mlp.gate_proj",
        "ffn.up": "mlp.up_proj",
        "ffn.down": "mlp.down_proj",
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
    """Return the parameters by the names that Hugging Face's Llama has for them."""
    return {_name(parameter.name): parameter for parameter in list_parameters(model)}


def make_hf_config(model: ModelConfig, seq_len: int, dtype: str, end: int | None) -> dict[str, Any]:
    """config.json. dtype: as torch names it. end: the token that ends a document, if known."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.dim,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.hidden,
        "vocab_size": model.tokens,
        "tie_word_embeddings": model.tied,
        "rope_theta": model.rope_theta,  # read by transformers before version 5
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "rms_norm_eps": model.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": seq_len,
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": dtype,  # the same for versions before 5
        "dtype": dtype,
    }


def parse_hf_config(config: Mapping[str, Any]) -> ModelConfig:
    """Our settings for a config.json. Raises ConfigError for a model that this trainer does not compute alike."""
    if config.get("model_type") != "llama":
        raise ConfigError(f"config.json is of a {config.get('model_type')!r} model: only 'llama' can be imported")
    rope = _rope(config)
    for key, value, supported in (
        ("rope_type", rope.get("rope_type", rope.get("type", "default")), "default"),
        ("hidden_act", config.get("hidden_act", "silu"), "silu"),
        ("attention_bias", config.get("attention_bias", False), False),
        ("mlp_bias", config.get("mlp_bias", False), False),
    ):
        if value != supported:
            raise ConfigError(f"config.json has {key}={value!r}: this trainer computes only {supported!r}")
    try:
        dim, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        head = int(config.get("head_dim") or dim // heads)
        return ModelConfig(
            dim=dim,
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head=AUTO if head * heads == dim else head,
            ffn=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
            norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"config.json cannot be used: {error!r}") from error


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found


def _name(ours: str) -> str:
    if ours in _REST:
        return _REST[ours]
    _, layer, rest = ours.split(".", 2)
    return f"model.layers.{layer}.{_BLOCK[rest.removesuffix('.weight')]}.weight"
