"""The estimated speed of trainings beside published ones.

data/published.csv: llm-foundry, scripts/train/benchmarking/README.md (MosaicML, commit 061f2c7, read 2026-11-26): every
row in bf16 of 760m to 70b with rows of 1,024 to 16,384 tokens. The estimate was fitted with the tables of 80 GB chips.
The table of A100 with 40 GB was not used.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from trainer.arithmetic import resolve_arithmetic
from trainer.options import parse_config
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh
from trainer.shape.timing import estimate_timing

# Width, layers and heads of MPT (scripts/train/yamls/pretrain). Its feed-forward layer has two matrices of 4 x width;
# ours has three, so that 8/3 x width has as many weights.
SHAPES = {
    "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20), "7b": (4096, 32, 32), "13b": (5120, 40, 40),
    "30b": (7168, 48, 56), "70b": (8192, 80, 64),
}  # fmt: skip
PEAK = {"H100": 989e12, "A100-80GB": 312e12, "A100": 312e12}
NETWORK = {"H100": 400e9, "A100-80GB": 200e9, "A100": 200e9}  # bytes a second of a host: 1,600 Gbit/s, H100 twice that


@dataclass(frozen=True, kw_only=True)
class Published:
    chip: str
    name: str
    measured: float  # tokens a second of one device
    low: float
    high: float

    @property
    def fits(self) -> bool:
        return self.low <= self.measured <= self.high


def read_published() -> Iterator[Published]:
    with (Path(__file__).parent / "data" / "published.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield compare(row)


def compare(row: dict[str, str]) -> Published:
    width, layers, heads = SHAPES[row["model"]]
    devices, chip = int(row["devices"]), row["chip"]
    batch = int(row["micro_batch"]) * int(row["accumulate"]) * devices
    words = [
        f"model.dim={width}", f"model.layers={layers}", f"model.heads={heads}", f"model.kv_heads={heads}",
        f"model.ffn={8 * width // 3}", "model.vocab=50368", f"seq_len={row['seq_len']}", f"batch={batch}",
        f"accumulate={row['accumulate']}", f"remat={'true' if row['remat'] == '1' else 'false'}", "engine=torch",
    ]  # fmt: skip
    hardware = Hardware(
        name=chip, kind="cuda", chip=chip, devices=devices, hosts=devices // 8, slices=devices // 8,
        peak_flops=PEAK[chip], network=NETWORK[chip],
    )  # fmt: skip
    config = resolve_arithmetic(replace(parse_config(words), engine="torch"), "cuda", has_bf16=True)
    timing = estimate_timing(config, Mesh(1, devices, 1), hardware)
    assert timing.seconds is not None
    shortest, longest = timing.seconds
    return Published(
        chip=chip,
        name=f"{row['model']} of {row['seq_len']} on {devices} x {chip}",
        measured=float(row["tokens_per_device"]),
        low=timing.tokens / longest / devices,
        high=timing.tokens / shortest / devices,
    )


@pytest.mark.parametrize("chips", [("H100", "A100-80GB"), ("A100",)], ids=["fitted", "unseen"])
def test_published_speeds_are_within_the_estimate(chips: tuple[str, ...]) -> None:
    found = [one for one in read_published() if one.chip in chips]
    outside = [
        f"{one.name}: {one.measured:,.0f} not in {one.low:,.0f}..{one.high:,.0f}" for one in found if not one.fits
    ]
    assert len(found) >= 40
    assert len(outside) <= len(found) / 10, "\n".join(outside)


def test_the_estimate_says_something() -> None:
    found = list(read_published())
    widths = [one.high / one.low for one in found]
    assert max(widths) < 3.2 and sum(widths) / len(widths) < 2.5
    near = [one for one in found if 1 / 1.5 < one.measured / math.sqrt(one.low * one.high) < 1.5]
    assert len(near) >= 0.9 * len(found), "its middle is within a half of what was measured"
