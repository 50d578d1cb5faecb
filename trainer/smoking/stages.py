"""The stages of a smoke test. Each that computes is a process of its own: some devices serve one process at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.accelerators.discovery import discover
from trainer.accelerators.registry import choose_engine
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.data.batches import Batches
from trainer.data.corpus import open_corpus
from trainer.environment import World
from trainer.errors import DataError, StorageError, TrainerError
from trainer.order import RowOrder
from trainer.shape.mesh import RowShare
from trainer.smoking.table import StageError

STEPS, EVERY = 6, 3
_LIMIT = 900.0  # seconds for one process; compilers may take minutes
_SAME = 1e-6  # between the losses of a run and of its resumption, where the device is not deterministic

# What a launcher says of the real run; a smoke test is not it.
_NOT_OURS = ("ORCH_HEARTBEAT_FILE", "ORCH_JOB_DIR", "ORCH_CHECKPOINT_URI", "ORCH_RESUME_FROM")


# What a smoke test needs whatever the real run has: both checkpoints stay, its small model begins anew, and nobody's
# dashboards are written to.
_OURS = ("checkpoint.keep=2", "checkpoint.start=", "metrics.tensorboard=", "metrics.wandb=", "metrics.mlflow=")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a smoke test works. words: settings of its runs. place: of checkpoints, "" for none."""

    words: Sequence[str]
    folder: Path
    place: str
    world: World

    def python(self, *words: str, **environ: str) -> str:
        """Standard output of `python -m trainer`. Raises StageError."""
        env = {name: value for name, value in os.environ.items() if name not in _NOT_OURS} | environ
        try:
            done = subprocess.run(
                [sys.executable, "-m", "trainer", *words],
                env=env,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StageError(1, f"no end after {_LIMIT:g} s") from None
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise StageError(done.returncode, " / ".join(lines) or f"ended with status {done.returncode}")
        return done.stdout


def devices(config: Config) -> str:
    found = discover()
    engine, device = choose_engine(config, found)
    mine = [one for one in found if one.kind == (device if device != "xla" else one.kind)]
    names = f"{mine[0].peers} x {mine[0].name}" if mine else f"none of {device} found by its files"
    return f"{names}: {engine} on {device}"


def data(config: Config) -> str:
    """Read the rows of two steps, in one piece and in two shares. Raises DataError."""
    corpus = open_corpus(config.data, lambda _: None)
    order = RowOrder(corpus.total, config.batch, config.seq_len, config.seed)
    whole = Batches(corpus, order, RowShare(0, 1, 1), 0)
    shares = [Batches(corpus, order, RowShare(index, 1, 2), 1) for index in range(2)]
    try:
        for step in range(2):
            if not np.array_equal(whole.take(step), np.concatenate([share.take(step) for share in shares])):
                raise DataError(f"{corpus.source}: two hosts read other rows than one at step {step}")
    finally:
        for batches in (whole, *shares):
            batches.close()
    return f"{corpus.total:,} tokens; two hosts read what one reads"


def compute(bench: Bench) -> tuple[str, str]:
    """What was computed, and how the ranks agreed. Raises StageError, StorageError."""
    clear(bench)  # of one that was killed; the ranks meet here, so that none has written yet
    found: Mapping[str, Any] = json.loads(bench.python("check", "--json", *bench.words).splitlines()[-1])
    ranks = int(found["ranks"])
    agreed = f"{ranks} ranks come to the same sums" if ranks > 1 else "one rank: nothing to add up between ranks"
    return f"{found['where']}: loss {found['loss']:.4f}, as without a framework", agreed


def loop(bench: Bench) -> tuple[str, Sequence[float]]:
    """Train to the end. Returns the losses, on rank 0. Raises StageError."""
    metrics = bench.folder / "whole.jsonl"
    bench.python(*_run(bench, metrics, f"checkpoint.uri={bench.place}", f"checkpoint.every={EVERY}"))
    losses = _losses(metrics)
    if not bench.world.is_first:
        return f"{STEPS} steps", losses
    if len(losses) != STEPS:
        raise TrainerError(f"{len(losses)} of {STEPS} steps are in the metrics")
    return f"{STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}", losses


def checkpoint(bench: Bench) -> str:
    """Both checkpoints are there. Raises StorageError."""
    store = open_store(bench.place)
    entries = store.entries("")
    for step in (EVERY, STEPS):
        if not any(entry.path.startswith(_name(step)) and entry.path.endswith(".json") for entry in entries):
            raise StorageError(f"{bench.place}: {_name(step)} has no manifest")
    size = sum(entry.size for entry in entries)
    return f"steps {EVERY} and {STEPS} in {store.uri}, {size / 1e6:.1f} MB"


def resume(bench: Bench, losses: Sequence[float]) -> str:
    """From the first checkpoint to the same losses. Raises StageError, StorageError."""
    metrics = bench.folder / "resumed.jsonl"
    source = f"{open_store(bench.place).uri}/{_name(EVERY)}"
    bench.python(*_run(bench, metrics, "checkpoint.uri=", "resume=required"), ORCH_RESUME_FROM=source)
    if not bench.world.is_first:
        return f"from step {EVERY}"
    again, before = _losses(metrics), list(losses)[EVERY:]
    if len(again) != len(before) or any(abs(a - b) > _SAME * abs(b) for a, b in zip(again, before, strict=False)):
        raise StorageError(f"losses {again} after step {EVERY}, but {before} without the interruption")
    same = "bit for bit" if again == before else f"within {_SAME:g}"
    return f"steps {EVERY + 1} to {STEPS} again, {same}"


def clear(bench: Bench) -> None:
    """Remove all that was written, which may lie in a bucket. Where nothing was, there is nothing to do.

    Raises StorageError.
    """
    if not (bench.place and bench.world.is_first):
        return
    try:
        store: Store = open_store(bench.place)
    except StorageError:
        return
    if store.uri.startswith("file://"):
        shutil.rmtree(store.uri.removeprefix("file://"), ignore_errors=True)  # with the locks, which it does not list
        return
    store.delete([entry.path for entry in store.entries("")])


def _run(bench: Bench, metrics: Path, *more: str) -> list[str]:
    return [*bench.words, f"steps={STEPS}", "log_every=1", f"metrics.file={metrics}", *_OURS, *more]


def _losses(metrics: Path) -> list[float]:
    if not metrics.is_file():
        return []
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [float(line["loss"]) for line in lines if "loss" in line]


def _name(step: int) -> str:
    return f"step-{step:08d}"
