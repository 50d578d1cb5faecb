"""Speed of checkpoints relative to the disk, and the time for which a save stops training.

    python scripts/bench/checkpoint.py [model=30m batch=4 seq_len=128 threads=1 rounds=3 place=/var/tmp ...] [--quick]

`disk` writes (with fsync) and reads the same bytes in one plain file, in turn with ours. A save hashes, writes and
syncs; a restore reads everything once, verifies it and loads it. Reads come from the page cache into new memory. The
best round of each counts. `stall` is the time for which the loop waits for the copy in memory. Compare only ratios,
and only on an idle machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from context import print_context

from trainer.checkpoint.session import Checkpoints
from trainer.config import Config
from trainer.data.state import DataState
from trainer.engine import Engine
from trainer.environment import Run, World
from trainer.options import parse_config
from trainer.tcp_team import SingleProcessTeam
from trainer.torch_engine.engine import open_torch_engine

STEPS = 4  # of each kind
TARGETS = {"save": 0.5, "restore": 0.3, "stall": 1.0}  # of the disk's rate; percent of step time at `checkpoint.every`


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def write_plainly(path: Path, data: memoryview) -> None:
    with path.open("wb", buffering=0) as file:
        while data:
            data = data[file.write(data[: 64 << 20]) :]
        os.fsync(file.fileno())


def read_plainly(path: Path, into: memoryview) -> None:
    with path.open("rb", buffering=0) as file:
        while into:
            into = into[file.readinto(into) :]


class Bench:
    def __init__(self, config: Config, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.team = SingleProcessTeam(World())
        self.engine: Engine = open_torch_engine(config, World(), self.team)
        self.size = sum(piece.bytes for piece in self.engine.written())
        draw = np.random.default_rng(1)
        self.bytes = np.tile(draw.integers(0, 256, 1 << 20, np.uint8), -(-self.size // (1 << 20)))[: self.size]
        self.rows = draw.integers(0, config.model.tokens, (config.batch, config.seq_len + 1)).astype(np.int32)
        self.session = self.open()
        self.step = 0

    def open(self) -> Checkpoints:
        return Checkpoints.open(self.config, Run(checkpoint_uri=str(self.folder / "ours")), self.team, lambda _: None)

    def data(self) -> DataState:
        return DataState(
            step=self.step,
            seed=0,
            batch=self.config.batch,
            seq_len=self.config.seq_len,
            source="x",
            total_tokens=1 << 30,
            vocab=256,
            fingerprint="f",
        )

    def save(self, *, wait: bool) -> None:
        self.session.save(self.engine, self.data(), wait=wait)

    def resume(self) -> None:
        self.session = self.open()  # a new start takes the run over from the one before
        self.session.resume(self.engine, replace(self.data(), step=0))

    def train(self) -> float:
        def one() -> None:
            self.engine.step(self.rows, 1e-4, False, self.step)
            self.engine.numbers()

        self.step += 1
        return seconds(one)

    def rates(self, rounds: int) -> dict[str, float]:
        """Return the seconds of the best round."""
        found: dict[str, list[float]] = {name: [] for name in ("disk write", "save", "disk read", "restore")}
        plain = self.folder / "plain"
        for _ in range(rounds):
            self.step += 1
            found["disk write"].append(seconds(lambda: write_plainly(plain, self.bytes.data)))
            found["save"].append(seconds(lambda: self.save(wait=True)))
            found["disk read"].append(seconds(lambda: read_plainly(plain, np.empty(self.size, np.uint8).data)))
            found["restore"].append(seconds(self.resume))
        return {name: min(times) for name, times in found.items()}

    def costs(self) -> tuple[float, float, float]:
        """Return (seconds of a step, of a step while a checkpoint is being written, of the stall)."""
        self.train()
        alone = [self.train() for _ in range(STEPS)]
        beside, stalls = [], []
        self.session.take_stall()
        for _ in range(STEPS):
            self.save(wait=False)
            stalls.append(self.session.take_stall())
            beside.append(self.train())
            self.session.save(self.engine, self.data(), wait=True)
            self.session.take_stall()
            self.train()
        return statistics.median(alone), statistics.median(beside), statistics.median(stalls)


def main() -> int:
    quick = "--quick" in sys.argv
    given = dict(word.split("=", 1) for word in sys.argv[1:] if word != "--quick")
    if quick:
        given = {"model": "tiny", "rounds": "1", **given}
    print_context(quick=quick)
    rounds, place = int(given.pop("rounds", "3")), given.pop("place", tempfile.gettempdir())
    settings = {"model": "30m", "batch": "4", "seq_len": "128", "threads": "1", "device": "cpu", **given}
    config = parse_config([f"{key}={value}" for key, value in settings.items()])
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        bench = Bench(config, folder)
        rates = bench.rates(rounds)
        alone, beside, stall = bench.costs()
    finally:
        shutil.rmtree(folder)
    size = bench.size / 1e6
    print(f"state of {size:,.0f} MB, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    missed = False
    for name, base in (("save", "disk write"), ("restore", "disk read")):
        ratio = rates[base] / rates[name]
        missed |= ratio < TARGETS[name]
        word = "ok" if ratio >= TARGETS[name] else "MISS"
        print(f"{name:8}{size / rates[name]:8,.0f} MB/s  {base} {size / rates[base]:8,.0f} MB/s  {ratio:.2f}x  {word}")
    every = config.checkpoint.every
    share = 100 * stall / (every * alone)
    print(f"stall   {1e3 * stall:8.1f} ms    a step {1e3 * alone:8.1f} ms, {1e3 * beside:.1f} ms beside a save")
    missed |= share > TARGETS["stall"]
    word = "ok" if share <= TARGETS["stall"] else "MISS"
    print(f"stall   {share:8.3f} % of step time with checkpoint.every={every}  {word}")
    return int(missed and not quick)


if __name__ == "__main__":
    sys.exit(main())
