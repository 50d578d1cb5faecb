"""Run transformers' own models in a process apart: `python hugging_face.py make|load FOLDER`.

make: for each case, write FOLDER/CASE/hf as transformers saves it, and expected.npz with the logits, loss and gradients
of FOLDER/rows.npy, and the logits where each row packs documents that begin at DOCUMENTS. load: write again.npz with
the logits of FOLDER/CASE/again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch import Tensor

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
DOCUMENTS = (0, 5, 11)
WINDOW = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.1": ("llama", {"rope_parameters": LLAMA3}),
    "llama-3.2": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}),
    "mistral": ("mistral", {"sliding_window": 5, "head_dim": 16, "rms_norm_eps": 1e-5}),
    "mistral-0.3": ("mistral", {"sliding_window": None}),
    "qwen2.5": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", {**WINDOW, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-window": ("qwen3", {"head_dim": 8, **WINDOW, "rope_parameters": LLAMA3}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "router_aux_loss_coef": 0.1}),
    "mixtral-window": ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 5}),
    "qwen3_moe": (
        "qwen3_moe",
        {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "router_aux_loss_coef": 0.1},
    ),
    "qwen3_moe-normalized": (
        "qwen3_moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "norm_topk_prob": True,
            "head_dim": 16,
        },
    ),
    "gemma2": (
        "gemma2",
        {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma2-uncapped": (
        "gemma2",
        {
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "sliding_attention"],
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "tie_word_embeddings": False,
        },
    ),
    "gemma3_text": (
        "gemma3_text",
        {
            "num_hidden_layers": 8,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 5,
        },
    ),
    "gemma3_text-linear": (
        "gemma3_text",
        {
            "num_hidden_layers": 7,
            "head_dim": 8,
            "query_pre_attn_scalar": 12,
            "sliding_window": 6,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
}


def main(command: str, folder: Path) -> None:
    torch.set_num_threads(1)
    rows = torch.from_numpy(np.load(folder / "rows.npy").astype(np.int64))
    for name, (family, changes) in CASES.items():
        if command == "make":
            np.savez(folder / name / "expected.npz", **_make(folder / name / "hf", family, changes, rows))
        else:
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                folder / name / "again", dtype=torch.float32, attn_implementation="eager"
            )
            with torch.no_grad():
                np.savez(folder / name / "again.npz", logits=loaded(rows[:, :-1]).logits.numpy())


def _make(folder: Path, family: str, changes: dict[str, Any], rows: Tensor) -> dict[str, np.ndarray]:
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    draw = torch.Generator().manual_seed(5)
    unit = 0.0 if family.startswith("gemma") else 1.0  # Gemma's norms multiply by 1 + weight
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw) * 0.2 + unit * ("norm" in key))
    model.save_pretrained(folder)
    routed = {"output_router_logits": True} if hasattr(config, "router_aux_loss_coef") else {}
    found = model(rows[:, :-1], **routed)
    logits = found.logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    balance = found.aux_loss if routed else torch.zeros(())
    (loss + config.router_aux_loss_coef * balance if routed else loss).backward()
    gradients: dict[str, np.ndarray] = {}
    for key, weight in model.named_parameters():
        if weight.grad is not None:
            gradients |= _name_as_in_files(family, key, weight.grad.numpy())
    # transformers keeps apart what begins at position 0 again (5.24, masking_utils.find_packed_sequence_indices).
    at = torch.arange(logits.shape[1])
    positions = at - torch.tensor(DOCUMENTS)[torch.bucketize(at, torch.tensor(DOCUMENTS), right=True) - 1]
    with torch.no_grad():
        packed = model(rows[:, :-1], position_ids=positions.expand(len(rows), -1), use_cache=False).logits
    numbers = {"loss": loss.detach().numpy(), "router_loss": balance.detach().numpy()}
    return {"logits": logits.detach().numpy(), "packed": packed.numpy(), **numbers, **gradients}


def _name_as_in_files(family: str, key: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Name a gradient as the saved weights are named: in files each expert has its own, and gate and up are apart."""
    if family == "mixtral":
        key = key.replace(".mlp.", ".block_sparse_moe.")
    prefix, found, last = key.partition(".experts.")
    if not found:
        return {key: values}
    gate, up, down = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    result: dict[str, np.ndarray] = {}
    for expert, own in enumerate(values):
        parts = {down: own} if last == "down_proj" else dict(zip((gate, up), np.split(own, 2), strict=True))
        result |= {f"{prefix}.experts.{expert}.{name}.weight": part for name, part in parts.items()}
    return result


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
