"""Runs on a device in this process and in another, for the tests that compare devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.accelerators.discovery import discover_devices

REPOSITORY = Path(__file__).resolve().parents[2]
GPUS = [device for device in discover_devices() if device.kind == "cuda"]
NO_GPU = "this machine has no NVIDIA GPU"
NEAR = 2e-4  # fp32 on both: only sums are made in another order
NARROW = 3e-2
STEPS = 6
WORDS = (
    *("model.dim=64", "model.layers=2", "model.heads=4", "model.kv_heads=2", "seq_len=64", "batch=8"),
    *("engine=torch", "threads=1", "log_every=1", "optim.warmup=2", "dist.watchdog=0"),
)
Records = list[dict[str, Any]]

on_gpu = pytest.mark.skipif(not GPUS, reason=NO_GPU)
cuda = pytest.param("cuda", marks=on_gpu)


def run(folder: Path, corpus: Path, device: str, *words: str) -> Records:
    """Run completely in this process; return the lines of metrics."""
    from trainer.environment import Run, World
    from trainer.errors import Exit
    from trainer.loop import run_training
    from trainer.options import parse_config

    folder.mkdir(exist_ok=True)
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    config = parse_config(
        [*WORDS, f"data={corpus}", f"device={device}", f"steps={STEPS}", f"metrics.file={metrics}", *words]
    )
    assert run_training(config, Run(), World()) == Exit.OK
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def losses(records: Sequence[dict[str, Any]]) -> list[float]:
    return [record["loss"] for record in records]


def program(folder: Path, corpus: Path, launcher: list[str], *words: str) -> Records:
    """Do the same run as a separate program."""
    metrics = folder / "metrics.jsonl"
    settings = [*WORDS, f"data={corpus}", f"steps={STEPS}", f"metrics.file={metrics}", *words]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    done = subprocess.run(
        [sys.executable, *launcher, *settings], env=env, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return [json.loads(line) for line in metrics.read_text().splitlines()]
