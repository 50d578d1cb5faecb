"""The estimated speed of mixtures of experts beside what other programs published.

data/published_experts.csv, of runs in bf16, read 2026-11-27. Column `used`: `fit` where the row is a source of the
trainer's shares (trainer/shape/timing.py), `unseen` where it was read after these were written. Where the experts were
divided over devices, the tensor axis divides them here. Sources:

- maxtext-tiering: AI-Hypercomputer/maxtext, docs/reference/models/tiering.md, v0.2.2
- trillium, ironwood: AI-Hypercomputer/tpu-recipes, logs in the README of each model, and training/ironwood/README.md
- megatron-core: NVIDIA/Megatron-LM, megatron/core/transformer/moe/README.md, 022bcb5a (version 0.9)
- megatron-bands: NVIDIA-NeMo/Megatron-Bridge, skills/perf-techniques/moe-hardware-configs: "low 300s" and "low 200s"
  of TFLOP/s
- kempner: KempnerInstitute/KempnerForge, benchmarks/moe_packed/moe_packed_benchmark.md, abbbac33: FSDP over two hosts
  of four H200, whose links are taken as four of 400 Gbit/s

GPT-OSS has windows and biases, which hardly change its FLOPs, and are left out. Megatron sends tokens to experts on
other hosts; this trainer gathers the experts there. So its runs are compared with one micro-batch, and those of GPT-OSS
not at all, which the network would decide.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.arithmetic import resolve_arithmetic
from trainer.options import parse_config
from trainer.shape.architecture import count_flops_per_token
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.mesh import Mesh
from trainer.shape.timing import estimate_timing

# Width, layers, heads, heads of keys and values, width of a head, experts, experts of a token, their width, vocabulary.
SHAPES = MappingProxyType({
    "mixtral-8x7b": (4096, 32, 32, 8, 128, 8, 2, 14336, 32000),
    "mixtral-8x22b": (6144, 56, 48, 8, 128, 8, 2, 16384, 32768),
    "qwen3-235b": (4096, 94, 64, 4, 128, 128, 8, 1536, 151936),
    "qwen3-30b": (2048, 48, 32, 4, 128, 128, 8, 768, 151936),
    "gpt-oss-120b": (2880, 36, 64, 8, 64, 128, 4, 2880, 201088),
    "kempner-8": (2048, 24, 16, 4, 128, 8, 2, 7168, 128256), "kempner-16": (2048, 24, 16, 4, 128, 16, 2, 7168, 128256),
})  # fmt: skip
NAMES = ("dim", "layers", "heads", "kv_heads", "head", "experts", "experts_per_token", "expert_hidden", "vocab")
PEAKS = MappingProxyType({"H100": 989e12, "H200": 989e12, "B200": 2250e12})
FAST = MappingProxyType({"H100": 8, "B200": 8, "H200": 4})  # GPUs of a host
NETWORK = MappingProxyType({"H100": 400e9, "B200": 400e9, "H200": 200e9})  # bytes a second of a host


def compare(row: dict[str, str]) -> tuple[float, float, float]:
    """Return the tokens a second of a chip: the estimate's lowest, what was published, the estimate's highest."""
    generation = next((one for one in GENERATIONS if one.name == row["chip"].lower()), None)
    kind: Kind = "cuda" if generation is None else "tpu"
    chips = int(row["chips"])
    words = [f"model.{name}={size}" for name, size in zip(NAMES, SHAPES[row["model"]], strict=True)]
    words += [
        "model.tied=false",
        f"seq_len={row['seq_len']}",
        f"batch={row['rows']}",
        f"accumulate={row['accumulate']}",
    ]
    words.append(f"remat={'full' if row['remat'] == '1' else 'none'}")
    config = resolve_arithmetic(replace(parse_config(words), engine="torch" if kind == "cuda" else "jax"), kind)
    if generation is None:
        hosts = chips // FAST[row["chip"]]
        hardware = Hardware(
            name=row["chip"], kind=kind, chip=row["chip"], devices=chips, hosts=hosts, slices=hosts,
            peak_flops=PEAKS[row["chip"]], network=NETWORK[row["chip"]],
        )  # fmt: skip
    else:
        peak = generation.peak_flops / generation.devices
        devices = chips * generation.devices
        hardware = Hardware(
            name=generation.name, kind=kind, chip=generation.name, devices=devices, hosts=chips // 4, peak_flops=peak
        )
    tensor = int(row["tensor"])
    timing = estimate_timing(config, Mesh(1, hardware.devices // tensor, tensor), hardware)
    assert timing.seconds is not None and "experts reach" in timing.source
    shortest, longest = timing.seconds
    measured = float(row["tokens_per_chip"] or 0)
    if row["tflops"]:
        measured = float(row["tflops"]) * 1e12 / count_flops_per_token(config.model, config.seq_len)
    return timing.tokens / longest / chips, measured, timing.tokens / shortest / chips


@pytest.mark.parametrize("used", ["fit", "unseen"])
def test_published_speeds_of_experts_are_within_the_estimate(used: str) -> None:
    with (Path(__file__).parent / "data" / "published_experts.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["used"] == used]
    found = [(f"{row['model']} on {row['chips']} x {row['chip']}", *compare(row)) for row in rows]
    outside = [
        f"{name}: {measured:,.0f} not in {low:,.0f}..{high:,.0f}"
        for name, low, measured, high in found
        if not low <= measured <= high
    ]
    assert len(found) >= 3 and not outside, "\n".join(outside)
    assert max(high / low for _, low, _, high in found) < 6
