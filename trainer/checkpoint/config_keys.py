"""The keys of config.json that this trainer does not compute: each that a model was given is named.

A key that is known here is either read (families.py, family_experts.py), or of no meaning for a training: what it says
of special tokens, of files, of the library's outputs. Every other one with a value is named, known or not, so that no
setting of a model is dropped in silence. Source: the configurations of these families in transformers 5.24, November
2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from trainer.checkpoint.epoch import shorten

_READ = frozenset(
    {
        *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "tie_word_embeddings"),
        *("num_attention_heads", "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "attention_bias"),
        *("mlp_bias", "hidden_act", "hidden_activation", "rms_norm_eps", "quantization_config"),
        *("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "use_bidirectional_attention"),
        *("sliding_window_pattern", "_sliding_window_pattern", "final_logit_softcapping", "attn_logit_softcapping"),
        *("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
        *("router_aux_loss_coef", "decoder_sparse_step", "mlp_only_layers"),
    }
)
"""Keys that the import reads, and refuses where this trainer does not compute their value."""
_MEANINGLESS = frozenset(
    {
        *("architectures", "auto_map", "_name_or_path", "transformers_version", "torch_dtype", "dtype"),
        *("use_cache", "cache_implementation", "return_dict", "output_attentions", "output_hidden_states"),
        *("output_router_logits", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset"),
        *("max_position_embeddings", "initializer_range", "pretraining_tp", "chunk_size_feed_forward"),
        *("is_encoder_decoder", "is_decoder", "problem_type", "id2label", "label2id", "finetuning_task"),
        *("unsloth_version", "unsloth_fixed"),
    }
)
"""Keys that change nothing in a training: positions are as many as rows have, and first values are those of weights."""

_MOST_LINES = 20


def list_unused_keys(config: Mapping[str, Any]) -> Sequence[str]:
    """Return one line for each key whose value this trainer does not use; a value that turns it off counts as none."""
    unused = {
        key: value
        for key, value in config.items()
        if key not in _READ | _MEANINGLESS and not key.endswith(("_token_id", "_token_ids")) and value
    }
    lines = [
        f"note: config.json has {shorten(key)}: {shorten(value)}, which this trainer does not use: it trains without"
        for key, value in islice(unused.items(), _MOST_LINES)
    ]
    more = len(unused) - len(lines)
    return [*lines, f"note: config.json has {more:,} more keys that this trainer does not use"] if more else lines
