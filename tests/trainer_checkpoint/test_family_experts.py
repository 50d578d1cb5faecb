"""What config.json may say of experts, and what is refused by the name of its key."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.checkpoint.families import find_family, make_hf_config, parse_hf_config
from trainer.checkpoint.family_names import map_parameter_names
from trainer.config import ModelConfig
from trainer.errors import ConfigError
from trainer.shape.architecture import count_parameters

QWEN3: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 64,
    "num_experts": 8,
    "moe_intermediate_size": 24,
}


@pytest.mark.parametrize(("key", "value"), [("decoder_sparse_step", 2), ("mlp_only_layers", [0])])
def test_blocks_without_experts_beside_some_with_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"config.json has {key}="):
        parse_hf_config({**QWEN3, key: value})


def test_the_key_of_transformers_5_and_that_of_the_published_models_are_read() -> None:
    published = parse_hf_config(QWEN3)
    assert (published.experts, published.experts_per_token, published.expert_dim) == (8, 8, 24)
    assert not published.normalize_experts
    assert parse_hf_config({**QWEN3, "num_local_experts": 8, "num_experts": 3}) == published
    assert parse_hf_config(make_hf_config(published, 64, "float32", None)) == published


def test_each_expert_has_its_own_tensors_in_files_and_nothing_is_left_out() -> None:
    model = parse_hf_config(QWEN3)
    names = map_parameter_names(model)
    assert sum(one.size for one in names.values()) == count_parameters(model)
    assert names["model.layers.1.mlp.experts.7.down_proj.weight"].shape == (32, 24)


def test_a_combination_that_no_family_has_is_refused() -> None:
    assert find_family(ModelConfig(experts=4)).name == "mixtral"
    with pytest.raises(ConfigError, match=r"model\.qkv_bias=true with model\.experts=4"):
        find_family(ModelConfig(experts=4, qkv_bias=True))
