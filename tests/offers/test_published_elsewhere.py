"""The estimated speed of trainings beside what other programs published on TPUs, GPUs and Trainium.

data/published_elsewhere.csv. Column `used`: `fit` where the publication is a source of the trainer's tables of speed,
`unseen` where none of its rows had been read when these were made; the tables have not been changed since. Sources, all
read 2026-11-26, of dense models in bf16:

- maxtext-tiering: AI-Hypercomputer/maxtext, docs/reference/models/tiering.md, 20a91e12; maxtext-llama2: the same,
  getting_started/Run_Llama2.md (2024), utilisation with full attention counted
- ironwood: AI-Hypercomputer/tpu-recipes, training/ironwood/README.md, 0797d9ce
- levanter: stanford-crfm/levanter, docs/Levanter-1.0-Release.md, utilisation with full attention counted
- torchtitan-h100: pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
- aws-trn1: aws-neuron/aws-neuron-sdk, benchmarks/trn1/training_data_decoder.csv (SDK 2.15 to 2.24)
- nvidia-h100: NVIDIA/dgxc-benchmarking, Llama 3.1 70B in BF16 with Megatron, 71,756 tokens a second on 64 H100
- aws-p5: awsome-distributed-training, FSDP sample with offloaded activations, which the trainer does not have
- tinyllama: jzhang38/TinyLlama, README.md (2023): 16 A100 40GB, without recomputation
- trillium, v5p-recipes: AI-Hypercomputer/tpu-recipes, training/trillium and training/v5p, logs in the README of each
  model, c8cfe2f6 (2026-08-07)
- torchtitan-a100: pytorch/torchtitan, docs/performance.md, 04133643 (2024): FSDP2 on 64 A100 80GB

Where the rows of a step are not published, a usual number is taken; it hardly matters at these sizes. "Selective"
recomputation, which the trainer does not have, counts as none. MLPerf's runs of large models are in fp8 or int8, which
the trainer does not have either; its model of 175B parameters is among the recipes for v5p and v6e in bf16.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.arithmetic import resolve_arithmetic
from trainer.options import parse_config
from trainer.shape.architecture import count_flops_per_token
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.mesh import Mesh
from trainer.shape.step_memory import Engine
from trainer.shape.timing import estimate_timing

# Width, layers, heads, heads of keys and values, feed-forward width, vocabulary. Models with two matrices of 4 x width
# have three of 8/3 x width here, which are as many weights.
SHAPES = MappingProxyType({
    "llama3-8b": (4096, 32, 32, 8, 14336, 128256), "llama3-70b": (8192, 80, 64, 8, 28672, 128256),
    "llama3-405b": (16384, 126, 128, 8, 53248, 128256), "llama2-7b": (4096, 32, 32, 32, 11008, 32000),
    "llama2-13b": (5120, 40, 40, 40, 13824, 32000), "llama2-70b": (8192, 80, 64, 8, 28672, 32000),
    "tinyllama-1.1b": (2048, 22, 32, 4, 5632, 32000),
    "mistral-7b": (4096, 32, 32, 8, 14336, 32000), "gpt3-175b": (12288, 96, 96, 96, 32768, 51200),
    "gpt2-1.4b": (1536, 48, 24, 24, 4096, 50304), "gpt2-6.7b": (4096, 32, 32, 32, 10923, 50304),
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Chip:
    kind: Kind
    peak: float  # of a device
    devices: int = 1  # of a chip
    host: int = 8  # chips of a host
    network: float | None = None  # bytes a second of a host


CHIPS = MappingProxyType({
    **{one.name: Chip(kind="tpu", peak=one.peak_flops / one.devices, devices=one.devices, host=4)
       for one in GENERATIONS},
    "H100": Chip(kind="cuda", peak=989e12, network=400e9),
    "A100-80GB": Chip(kind="cuda", peak=312e12, network=200e9),
    "A100": Chip(kind="cuda", peak=312e12, network=200e9),
    "Trainium": Chip(kind="neuron", peak=95e12, devices=2, host=16, network=100e9),
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Published:
    used: str
    name: str
    measured: float  # tokens a second of one chip
    low: float
    high: float

    @property
    def fits(self) -> bool:
        return self.low <= self.measured <= self.high


def read_published() -> Iterator[Published]:
    with (Path(__file__).parent / "data" / "published_elsewhere.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield compare(row)


def compare(row: dict[str, str]) -> Published:
    dim, layers, heads, kv_heads, ffn, vocab = SHAPES[row["model"]]
    chip, chips, slices, tensor = CHIPS[row["chip"]], int(row["chips"]), int(row["slices"]), int(row["tensor"])
    words = [
        f"model.dim={dim}", f"model.layers={layers}", f"model.heads={heads}", f"model.kv_heads={kv_heads}",
        f"model.ffn={ffn}", f"model.vocab={vocab}", "model.tied=false", f"seq_len={row['seq_len']}",
        f"batch={row['rows']}", f"accumulate={row['accumulate']}",
        f"remat={'true' if row['remat'] == '1' else 'false'}", *([f"compile={row['compile']}"] * bool(row["compile"])),
    ]  # fmt: skip
    engine: Engine = "torch" if chip.kind == "cuda" else "jax"
    config = resolve_arithmetic(replace(parse_config(words), engine=engine), chip.kind, has_bf16=True)
    devices = chips * chip.devices
    hardware = Hardware(
        name=row["chip"], kind=chip.kind, chip=row["chip"], devices=devices, hosts=max(1, chips // chip.host),
        slices=slices, peak_flops=chip.peak, network=chip.network,
    )  # fmt: skip
    replicas = slices if chip.kind == "tpu" else 1
    timing = estimate_timing(config, Mesh(replicas, devices // tensor // replicas, tensor), hardware)
    assert timing.seconds is not None
    shortest, longest = timing.seconds
    measured = row["tokens_per_chip"]
    if row["share"]:  # of the peak, with full attention counted: twice ours
        flops = 2 * count_flops_per_token(config.model, config.seq_len) - count_flops_per_token(config.model, 0)
        measured = str(float(row["share"]) * chip.peak * chip.devices / flops)
    return Published(
        used=row["used"],
        name=f"{row['source']}: {row['model']} of {row['seq_len']} on {chips} x {row['chip']}",
        measured=float(measured),
        low=timing.tokens / longest / chips,
        high=timing.tokens / shortest / chips,
    )


@pytest.mark.parametrize("used", ["fit", "unseen"])
def test_speeds_that_others_published_are_within_the_estimate(used: str) -> None:
    found = [one for one in read_published() if one.used == used]
    outside = [
        f"{one.name}: {one.measured:,.0f} not in {one.low:,.0f}..{one.high:,.0f}" for one in found if not one.fits
    ]
    assert len(found) >= 20
    assert len(outside) <= len(found) / 10, "\n".join(outside)


def test_the_estimates_are_no_wider_than_four_times() -> None:
    found = list(read_published())
    widths = sorted(one.high / one.low for one in found)
    assert widths[len(widths) // 2] < 2.7 and widths[-1] < 4, widths
    assert sum(one.used == "unseen" for one in found) >= len(found) / 2
