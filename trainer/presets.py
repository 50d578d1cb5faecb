"""Named model sizes: what `model=NAME` sets; a key that is given as well wins, in any position.

From 300m on a head is 128 wide and the feed-forward layer a multiple of it, which fills the matrix units of TPUs. Those
with a family's name have the shape of its published weights, so that a run can begin from them. Sources, read November
2026: config.json of meta-llama/Llama-3.2-1B (revision 4e20de3) and of Qwen/Qwen3-0.6B; Mistral 7B, arXiv 2310.06825,
table 1, and mistralai/Mistral-7B-v0.1; Mixtral 8x7B, arXiv 2401.04088, table 1; for Qwen3-30B-A3B transformers'
Qwen3MoeConfig, and slime, scripts/models/qwen3-30B-A3B.sh; for Gemma 2 2B AI-Hypercomputer/maxtext,
hf_model_configs.py, with transformers' Gemma2Config; for Gemma 3 1B google/tunix, models/gemma3/model.py, revision
0027ed2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _preset(
    dim: int, layers: int, heads: int, kv_heads: int, *, seq_len: int, lr: str, warmup: int, **more: str
) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "model.dim": str(dim),
            "model.layers": str(layers),
            "model.heads": str(heads),
            "model.kv_heads": str(kv_heads),
            "seq_len": str(seq_len),
            "optim.lr": lr,
            "optim.warmup": str(warmup),
            **{f"model.{key}": value for key, value in more.items()},
        }
    )


_QWEN3_EXPERTS: Mapping[str, str] = MappingProxyType(
    {"experts": "128", "experts_per_token": "8", "expert_hidden": "768"}
)
_GEMMA: Mapping[str, str] = MappingProxyType(
    {
        "activation": "gelu_tanh",
        "post_norm": "true",
        "norm_offset": "true",
        "embed_scale": "true",
        "norm_eps": "1e-6",
    }
)
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "tiny": _preset(128, 4, 4, 2, seq_len=128, lr="3e-3", warmup=20),
        "10m": _preset(384, 6, 6, 2, seq_len=256, lr="1e-3", warmup=100),
        "30m": _preset(512, 10, 8, 4, seq_len=512, lr="8e-4", warmup=200),
        "100m": _preset(768, 14, 12, 4, seq_len=1024, lr="6e-4", warmup=500),
        "300m": _preset(1024, 24, 8, 4, seq_len=2048, lr="4e-4", warmup=1000, ffn="2816"),
        "1b": _preset(2048, 22, 16, 4, seq_len=2048, lr="3e-4", warmup=1000, ffn="5632"),
        "3b": _preset(3072, 28, 24, 8, seq_len=4096, lr="2e-4", warmup=2000, ffn="8192"),
        "8b": _preset(4096, 32, 32, 8, seq_len=4096, lr="1.5e-4", warmup=2000, ffn="14336", tied="false"),
        "13b": _preset(5120, 40, 40, 8, seq_len=4096, lr="1.5e-4", warmup=2000, ffn="13824", tied="false"),
        "70b": _preset(8192, 80, 64, 8, seq_len=4096, lr="1e-4", warmup=2000, ffn="28672", tied="false"),
        "llama3.2-1b": _preset(
            2048,
            16,
            32,
            8,
            seq_len=4096,
            lr="3e-4",
            warmup=1000,
            ffn="8192",
            vocab="128256",
            rope_theta="500000",
            rope_scaling="llama3",
            rope_factor="32",
        ),
        "qwen3-0.6b": _preset(
            1024,
            28,
            16,
            8,
            seq_len=4096,
            lr="4e-4",
            warmup=1000,
            head="128",
            ffn="3072",
            vocab="151936",
            rope_theta="1000000",
            norm_eps="1e-6",
            qk_norm="true",
        ),
        "mistral-7b": _preset(
            4096,
            32,
            32,
            8,
            seq_len=8192,
            lr="1.5e-4",
            warmup=2000,
            ffn="14336",
            vocab="32000",
            tied="false",
            window="4096",
        ),
        "mixtral-8x7b": _preset(
            4096,
            32,
            32,
            8,
            seq_len=4096,
            lr="1.5e-4",
            warmup=2000,
            ffn="14336",
            experts="8",
            vocab="32000",
            tied="false",
            rope_theta="1000000",
        ),
        "qwen3-30b-a3b": _preset(
            2048,
            48,
            32,
            4,
            seq_len=4096,
            lr="3e-4",
            warmup=2000,
            head="128",
            ffn="6144",
            vocab="151936",
            tied="false",
            rope_theta="1000000",
            norm_eps="1e-6",
            qk_norm="true",
            **_QWEN3_EXPERTS,
        ),
        "gemma2-2b": _preset(
            2304,
            26,
            8,
            4,
            seq_len=4096,
            lr="2e-4",
            warmup=1000,
            head="256",
            ffn="9216",
            vocab="256000",
            window="4096",
            full_every="2",
            attention_softcap="50",
            softcap="30",
            **_GEMMA,
        ),
        "gemma3-1b": _preset(
            1152,
            26,
            4,
            1,
            seq_len=4096,
            lr="4e-4",
            warmup=1000,
            head="256",
            ffn="6912",
            vocab="262144",
            window="512",
            full_every="6",
            rope_theta="1000000",
            local_rope_theta="10000",
            qk_norm="true",
            **_GEMMA,
        ),
    }
)
