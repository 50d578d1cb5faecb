"""The stages of a smoke test.

Each stage that computes is a separate process: some devices serve one process at a time.
"""

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

from trainer.accelerators.device import Device
from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.registry import choose_engine
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.data.batches import BatchLoader
from trainer.data.mixture import open_training_data
from trainer.environment import World
from trainer.errors import DataError, DeviceError, StorageError, TrainerError
from trainer.shape.mesh import RowShare
from trainer.smoke_test.table import StageError

STEPS, EVERY = 6, 3
_LIMIT = 900.0  # seconds for one process; compilers may take minutes
_SAME = 1e-6  # between the losses of a run and of its resumption, where the device is not deterministic

# Variables of the real run, which the smoke test must not use.
_REAL_RUN_VARIABLES = ("ORCH_HEARTBEAT_FILE", "ORCH_JOB_DIR", "ORCH_CHECKPOINT_URI", "ORCH_RESUME_FROM")


# Overrides of the real run's settings: both checkpoints stay, the small model begins from its first weights, no
# dashboard is written to, and a resumption repeats the losses.
_SMOKE_SETTINGS = (
    "exact=true",
    "checkpoint.keep=2",
    "checkpoint.start=",
    "metrics.tensorboard=",
    "metrics.wandb=",
    "metrics.mlflow=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeRun:
    """The set-up of one smoke test.

    Attributes:
        words: Settings of its runs.
        folder: For files of this host.
        place: Of checkpoints; "" for none.
        world: Which rank this process is.
    """

    words: Sequence[str]
    folder: Path
    place: str
    world: World

    def run_trainer(self, *words: str, **environ: str) -> str:
        """Run `python -m trainer` and return its standard output.

        Raises:
            StageError: It failed or did not end.
        """
        env = {name: value for name, value in os.environ.items() if name not in _REAL_RUN_VARIABLES} | environ
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "trainer", *words],
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


def check_devices(config: Config, environ: Mapping[str, str] = os.environ, found: Sequence[Device] = ()) -> str:
    """Return which devices there are and what would use them.

    Args:
        config: Of the smoke test.
        environ: With $ORCH_CHIPS_PER_HOST, where known.
        found: The devices of this machine; none: those that its files show.

    Raises:
        DeviceError: The host should have more chips.
    """
    found = found or discover_devices()
    engine, device = choose_engine(config, found)
    chips = int(environ.get("ORCH_CHIPS_PER_HOST") or 0)
    seen = sum(one.kind in ("tpu", "neuron") for one in found)
    check = "ORCH_NEURON_CHECK" if any(one.kind == "neuron" for one in found) else "ORCH_TPU_CHECK"
    if device in ("tpu", "neuron") and seen < chips and environ.get(check) != "0":
        raise DeviceError(f"this host shows {seen} chips of {chips}: launch again for other machines, or set {check}=0")
    mine = [one for one in found if one.kind == (device if device != "xla" else one.kind)]
    names = f"{mine[0].peers} x {mine[0].name}" if mine else f"none of {device} found by its files"
    return f"{names}: {engine} on {device}"


def check_data(config: Config) -> str:
    """Read the rows of two steps, as one share and as two.

    Raises:
        DataError: The rows differ.
    """
    data = open_training_data(config, lambda _: None)
    corpus, order = data.corpus, data.state.open_order()
    whole = BatchLoader(corpus, order, RowShare(0, 1, 1), 0)
    shares = [BatchLoader(corpus, order, RowShare(index, 1, 2), 1) for index in range(2)]
    try:
        for step in range(2):
            if not np.array_equal(whole.take_rows(step), np.concatenate([share.take_rows(step) for share in shares])):
                raise DataError(f"{corpus.source}: two hosts read different rows than one at step {step}")
    finally:
        for batches in (whole, *shares):
            batches.close()
    return f"{corpus.total_tokens:,} tokens; two hosts read what one reads"


def check_compute(run: SmokeRun) -> tuple[str, str]:
    """Return what was computed, and how the ranks agreed.

    Raises:
        StageError: The device check failed.
        StorageError: Files of an earlier smoke test cannot be removed.
    """
    remove_checkpoints(run)  # of one that was killed; the ranks meet here, so that none has written yet
    found: Mapping[str, Any] = json.loads(run.run_trainer("check", "--json", *run.words).splitlines()[-1])
    ranks = int(found["ranks"])
    agreed = f"{ranks} ranks compute the same sums" if ranks > 1 else "one rank: nothing to add up between ranks"
    return f"{found['where']}: loss {found['loss']:.4f}, as without a framework", agreed


def check_loop(run: SmokeRun) -> tuple[str, Sequence[float]]:
    """Train to the end; return a summary and, on rank 0, the losses.

    Raises:
        StageError: The run failed.
    """
    metrics = run.folder / "whole.jsonl"
    run.run_trainer(*_run(run, metrics, f"checkpoint.uri={run.place}", f"checkpoint.every={EVERY}"))
    losses = _losses(metrics)
    if not run.world.is_first:
        return f"{STEPS} steps", losses
    if len(losses) != STEPS:
        raise TrainerError(f"{len(losses)} of {STEPS} steps are in the metrics")
    return f"{STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}", losses


def check_checkpoint(run: SmokeRun) -> str:
    """Check that both checkpoints are complete.

    Raises:
        StorageError: One is not.
    """
    store = open_store(run.place)
    entries = store.list_objects("")
    for step in (EVERY, STEPS):
        if not any(entry.path.startswith(_name(step)) and entry.path.endswith(".json") for entry in entries):
            raise StorageError(f"{run.place}: {_name(step)} has no manifest")
    size = sum(entry.size for entry in entries)
    return f"steps {EVERY} and {STEPS} in {store.uri}, {size / 1e6:.1f} MB"


def check_resume(run: SmokeRun, losses: Sequence[float]) -> str:
    """Resume from the first checkpoint, and compare the losses.

    Raises:
        StageError: The run failed.
        StorageError: The losses differ.
    """
    metrics = run.folder / "resumed.jsonl"
    source = f"{open_store(run.place).uri}/{_name(EVERY)}"
    run.run_trainer(*_run(run, metrics, "checkpoint.uri=", "resume=required"), ORCH_RESUME_FROM=source)
    if not run.world.is_first:
        return f"from step {EVERY}"
    again, before = _losses(metrics), list(losses)[EVERY:]
    if len(again) != len(before) or any(abs(a - b) > _SAME * abs(b) for a, b in zip(again, before, strict=False)):
        raise StorageError(f"losses {again} after step {EVERY}, but {before} without the interruption")
    same = "bit for bit" if again == before else f"within {_SAME:g}"
    return f"steps {EVERY + 1} to {STEPS} again, {same}"


def remove_checkpoints(run: SmokeRun) -> None:
    """Remove everything that was written, possibly to a bucket.

    Raises:
        StorageError: The bucket fails.
    """
    if not (run.place and run.world.is_first):
        return
    try:
        store: Store = open_store(run.place)
    except StorageError:
        return
    if store.uri.startswith("file://"):
        shutil.rmtree(store.uri.removeprefix("file://"), ignore_errors=True)  # with the locks, which it does not list
        return
    store.delete([entry.path for entry in store.list_objects("")])


def _run(run: SmokeRun, metrics: Path, *more: str) -> list[str]:
    return [*run.words, f"steps={STEPS}", "log_every=1", f"metrics.file={metrics}", *_SMOKE_SETTINGS, *more]


def _losses(metrics: Path) -> list[float]:
    if not metrics.is_file():
        return []
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [float(line["loss"]) for line in lines if "loss" in line]


def _name(step: int) -> str:
    return f"step-{step:08d}"
