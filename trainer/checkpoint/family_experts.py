"""What config.json says of experts: Mixtral and Qwen 3 MoE.

Source: transformers 5.24, models/{mixtral,qwen3_moe} and conversion_mapping.py, read November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainer.config import ModelConfig
from trainer.errors import ConfigError

EXPERT_FAMILIES = ("mixtral", "qwen3_moe")
QWEN3_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": False,
        "router_aux_loss_coef": 0.001,
    }
)
MIXTRAL_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "num_key_value_heads": 8,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-5,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "router_aux_loss_coef": 0.001,
    }
)


def parse_whole(value: Any) -> int:
    """Return a whole number of the file. Raises TypeError for anything else, such as 8.9."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def parse_experts(family: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of experts; none for other families.

    Raises:
        ConfigError: Some blocks have experts and others have not.
    """
    if family not in EXPERT_FAMILIES:
        return {}
    for key in ("decoder_sparse_step", "mlp_only_layers"):
        if config.get(key) not in (None, 1 if key == "decoder_sparse_step" else []):
            raise ConfigError(f"config.json has {key}={config[key]!r}: this trainer computes experts in all layers")
    mixtral = family == "mixtral"
    # transformers 5 writes num_local_experts for both, the published Qwen 3 have num_experts.
    experts = config["num_local_experts"] if mixtral or "num_local_experts" in config else config["num_experts"]
    return {
        "experts": parse_whole(experts),
        "experts_per_token": parse_whole(config["num_experts_per_tok"]),
        "expert_hidden": parse_whole(config["intermediate_size" if mixtral else "moe_intermediate_size"]),
        "normalize_experts": mixtral or bool(config["norm_topk_prob"]),
        "router_loss": float(config["router_aux_loss_coef"]),
    }


def make_expert_settings(family: str, model: ModelConfig) -> dict[str, Any]:
    """Return the keys of config.json that only models with experts have."""
    if family not in EXPERT_FAMILIES:
        return {}
    shared = {
        "num_local_experts": model.experts,
        "num_experts_per_tok": model.experts_per_token,
        "router_aux_loss_coef": model.router_loss,
        "output_router_logits": False,
    }
    if family == "mixtral":
        return {**shared, "intermediate_size": model.expert_dim}
    return {
        **shared,
        "num_experts": model.experts,
        "moe_intermediate_size": model.expert_dim,
        "norm_topk_prob": model.normalize_experts,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
