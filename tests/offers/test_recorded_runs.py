"""The estimated speed of our trainings beside what they reached.

data/recorded.csv: docs/performance.md, "Speed on a GPU", runs of scripts/bench/gpu.py on one NVIDIA H200 and one H100
on 2026-11-26, with the trainer's defaults, a vocabulary of 32,768 and a separate head. The upper end of the table for
these chips is from the H200 (trainer/shape/timing.py): the rows guard that table, and are no blind test of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.offers.predictions import Compared
from trainer.arithmetic import resolve_arithmetic
from trainer.options import parse_config
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh
from trainer.shape.timing import estimate_timing

PEAK = 989e12  # of both in bf16


def read_recorded() -> Iterator[tuple[str, Compared]]:
    with (Path(__file__).parent / "data" / "recorded.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield " ".join((row["chip"], row["engine"], row["model"], row["settings"])), compare(row)


def compare(row: dict[str, str]) -> Compared:
    words = [f"model={row['model']}", f"seq_len={row['seq_len']}", f"batch={row['rows']}", "model.vocab=32768",
             "model.tied=false", f"engine={row['engine']}", *row["settings"].split()]  # fmt: skip
    hardware = Hardware(
        name=row["chip"], kind="cuda", chip=row["chip"], devices=1, hosts=1, slices=1, peak_flops=PEAK, network=None
    )
    config = resolve_arithmetic(replace(parse_config(words), engine=row["engine"]), "cuda", has_bf16=True)
    timing = estimate_timing(config, Mesh(1, 1, 1), hardware)
    assert timing.seconds is not None
    shortest, longest = timing.seconds
    return Compared(
        quantity="tokens_per_s",
        low=timing.tokens / longest,
        high=timing.tokens / shortest,
        measured=float(row["tokens_per_s"]),
    )


def test_at_most_one_in_ten_of_our_runs_is_outside_the_estimate() -> None:
    found = list(read_recorded())
    outside = [
        f"{name}: {one.measured:,.0f} not in {one.low:,.0f}..{one.high:,.0f}"
        for name, one in found
        if not one.is_inside
    ]
    assert len(found) >= 16
    assert len(outside) <= len(found) / 10, "\n".join(outside)
