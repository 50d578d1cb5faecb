"""An engine without a framework, for tests of the loop: it learns how often each byte comes.

    python -m support.toy_engine key=value ...

It is a whole engine: its state is divided over the processes, its losses are real and have the same bits on any number
of processes, because they are computed from counts that are added up as integers. The variables TOY_* make trouble:
TOY_SECONDS a step, TOY_PROGRAM another program, TOY_HANG=RANK:STEP stands still there for ever,
TOY_STARTS_SLOWLY=RANK:SECONDS waits when it is made, and when it is given a state, TOY_BREAKS=STEP has no number for a
loss from there on, TOY_LEAVES_SLOWLY=RANK:SECONDS,... waits when all is saved, TOY_LEAVES=broken, TOY_PROFILE=broken,
TOY_NOTES, TOY_READ_EVERY.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainer.config import Config
from trainer.engine import FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.shape.box import Box, TensorRegion
from trainer.shape.mesh import Mesh, RowShare
from trainer.team import Team

NAMES = ("model/logits.weight", "optimizer/logits.weight/exp_avg")


def open_toy(config: Config, world: World, team: Team) -> ToyEngine:
    return ToyEngine(config, world, team)


class ToyEngine:
    name: Literal["torch", "jax"] = "torch"
    peak_flops = None

    def __init__(self, config: Config, world: World, team: Team) -> None:
        self.mesh = Mesh(data=world.size)
        self.share = RowShare(world.rank, 1, world.size)
        self.read_every = int(os.environ.get("TOY_READ_EVERY", "1"))
        self._world = world
        self._team = team.side_channel(config.dist.timeout)
        self._seconds = float(os.environ.get("TOY_SECONDS", "0"))
        rank, _, step = os.environ.get("TOY_HANG", "").partition(":")
        self._hang = int(step) if rank == str(world.rank) else -1
        self._breaks = int(os.environ.get("TOY_BREAKS", sys.maxsize))
        slow, _, seconds = os.environ.get("TOY_STARTS_SLOWLY", "").partition(":")
        self._start = float(seconds) if slow == str(world.rank) else 0.0
        time.sleep(self._start)
        self._size = config.model.tokens
        self._state: dict[str, FloatArray] = {name: np.zeros(self._size, np.float32) for name in NAMES}
        self._numbers = Numbers(0.0, 0.0, 0)

    def headline(self) -> str:
        return "toy engine"

    def notes(self) -> Sequence[str]:
        return [note for note in ("a toy", f"place {self._world.rank}" if os.environ.get("TOY_NOTES") else "") if note]

    def program(self) -> str:
        return os.environ.get("TOY_PROGRAM", "toy")

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        if step == self._hang:
            self.stand_still()
        time.sleep(self._seconds)
        mine = np.bincount(rows[:, 1:].ravel(), minlength=self._size)
        gathered = self._team.gather([mine.tolist(), stop])
        counts = np.sum([each for each, _ in gathered], axis=0)
        weights, moment = (self._state[name].astype(np.float64) for name in NAMES)
        chances = np.exp(weights) / np.exp(weights).sum()
        loss = -float((counts * np.log(chances)).sum() / counts.sum())
        gradient = chances - counts / counts.sum()
        moment = 0.9 * moment + gradient
        self._state[NAMES[0]] = (weights - 1000 * rate * moment).astype(np.float32)
        self._state[NAMES[1]] = moment.astype(np.float32)
        loss = loss if step < self._breaks else float("nan")
        self._numbers = Numbers(loss, float(np.linalg.norm(gradient)), sum(stop for _, stop in gathered))

    def evaluate(self, rows: TokenArray) -> float:
        mine = np.bincount(rows[:, 1:].ravel(), minlength=self._size)
        counts = np.sum(self._team.gather(mine.tolist()), axis=0)
        weights = self._state[NAMES[0]].astype(np.float64)
        return float(np.log(np.exp(weights).sum()) - (counts * weights).sum() / counts.sum())

    def stand_still(self) -> None:
        while True:
            time.sleep(1)

    def numbers(self) -> Numbers:
        return self._numbers

    def written(self) -> Sequence[TensorRegion]:
        each = -(-self._size // self._world.size)
        first = self._world.rank * each
        box = Box((first,), (min(each, self._size - first),))
        return [TensorRegion(name, (self._size,), box) for name in NAMES]

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        for piece, array in into.items():
            array[...] = self._state[piece.name][piece.box.slices()]

    def needed(self) -> Sequence[TensorRegion]:
        return [TensorRegion(name, (self._size,), Box.whole((self._size,))) for name in NAMES]

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        time.sleep(self._start)
        for piece, array in values:
            self._state[piece.name][piece.box.slices()] = array

    def memory(self) -> int | None:
        return None

    def counters(self) -> Mapping[str, float]:
        return {"compilations": 0.0}

    def diagnostics(self) -> Mapping[str, Any]:
        for word in os.environ.get("TOY_LEAVES_SLOWLY", "").split(","):
            rank, _, seconds = word.partition(":")
            if rank == str(self._world.rank):
                time.sleep(float(seconds))
        if os.environ.get("TOY_LEAVES") == "broken":
            raise RuntimeError("no counters here")
        return {"toy": True}

    @contextmanager
    def profile(self, folder: Path) -> Generator[None]:
        if os.environ.get("TOY_PROFILE") == "broken":
            raise RuntimeError("no profiler here")
        started = time.time()
        yield
        (folder / "trace.json").write_text(json.dumps({"traceEvents": [], "seconds": time.time() - started}))

    def close(self) -> None:
        self._team.close()
        if os.environ.get("TOY_LEAVES") == "broken":
            raise RuntimeError("no way out")


if __name__ == "__main__":
    from trainer.__main__ import run_and_report_errors
    from trainer.commands.train import train_with_engine

    sys.exit(run_and_report_errors(lambda: train_with_engine(["engine=torch", "device=cpu", *sys.argv[1:]], open_toy)))
