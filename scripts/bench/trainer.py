"""What our training loop costs: against a bare torch loop, and what a checkpoint costs the training.

    python scripts/bench/trainer.py [model=tiny steps=22 threads=1 ...]

`bare` is the plainest torch loop, `ours` is trainer.loop with a line for every step: the same model and rows, in
turn. The best round of each counts, and only ratios are worth comparing between machines.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from trainer.accelerators.registry import open_accelerator
from trainer.checkpoint.store import open_store
from trainer.checkpoint.writer import CheckpointWriter, Origin
from trainer.config import Config
from trainer.corpus import open_corpus
from trainer.data import DataState
from trainer.distributed import Team
from trainer.environment import Run, World
from trainer.loop import train
from trainer.model import Transformer, parameter_count
from trainer.options import parse
from trainer.order import RowOrder
from trainer.state import TrainState

ROUNDS = 3
_SETTINGS = ("log_every=1", "device=cpu", "checkpoint.uri=")


def bare(config: Config) -> None:
    """The plainest loop: rows in memory, no clipping by buffer, no lines, no checkpoints."""
    corpus = open_corpus(config.data.source)
    order = RowOrder(corpus.total, config.batch, config.seq_len, config.seed)
    rows = [
        torch.as_tensor(corpus.read(order.positions(s, 0, config.batch), config.seq_len + 1))
        for s in range(config.steps)
    ]
    torch.set_num_threads(World().threads(config.threads))
    model = Transformer(config.model, config.seq_len)
    model.initialise(config.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optim.lr, fused=True)
    for step in range(config.steps):
        optimizer.zero_grad()
        model(rows[step]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()


def ours(config: Config) -> None:
    """trainer.loop with a line for every step."""
    with contextlib.redirect_stdout(io.StringIO()):
        train(config, Run(), World())


def cost(name: str, words: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one step of `bare` or `ours`, in a process of its own.

    One process for both would let the first loop's heap decide how fast the second one allocates.
    """
    argv = [sys.executable, __file__, f"--only={name}", *words]
    wall, cpu = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[-2:]
    return float(wall), float(cpu)


def only(name: str, config: Config) -> None:
    """Print the cost of a step without the start: a long run minus a short one, after a first run for imports."""
    run = {"bare": bare, "ours": ours}[name]
    run(replace(config, steps=2))
    short = _timed(run, replace(config, steps=2))
    long = _timed(run, config)
    print(*((a - b) / (config.steps - 2) for a, b in zip(long, short, strict=True)))


def _timed(run: Callable[[Config], None], config: Config) -> tuple[float, float]:
    start = time.perf_counter(), time.process_time()
    run(config)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def stalls(config: Config, place: str) -> tuple[float, float, int]:
    """Seconds that training stands still for one checkpoint: written beside it, and waited for. And its bytes."""
    world = World()
    state = TrainState(config, open_accelerator("cpu", world), world)
    writer = CheckpointWriter(open_store(place, create=True), Team(world, None, 60), Origin("bench", 1, {}), keep=2)
    beside, waited = list[float](), list[float]()
    share = state.share()
    for step in range(1, 7):
        start = time.perf_counter()
        stall = writer.save(DataState(step, 0, config.batch, config.seq_len, "bench", 1, "f"), share)
        writer.wait()
        beside.append(stall)
        waited.append(time.perf_counter() - start)
    size = sum(tensor.numel() * tensor.element_size() for tensor in share.values())
    return min(beside[1:]), min(waited[1:]), size


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--only=")]
    words = words or ["model=tiny", "steps=22", "threads=1"]
    with tempfile.TemporaryDirectory() as folder:
        config = parse([*words, *_SETTINGS, f"metrics.file={folder}/metrics.jsonl"])
        if sys.argv[1:] and sys.argv[1].startswith("--only="):
            only(sys.argv[1].removeprefix("--only="), config)
            return
        costs: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
        for _ in range(ROUNDS):
            for name, found in costs.items():
                found.append(cost(name, words))
        count = parameter_count(Transformer(config.model, config.seq_len))
        print(f"{count:,} parameters, {World().threads(config.threads)} threads, best of {ROUNDS} rounds")
        print(f"{'loop':<28}{'tokens/s':>12}{'ratio':>8}{'cpu ms/step':>14}{'ratio':>8}")
        plain = [min(values) for values in zip(*costs["bare"], strict=True)]
        for name, found in costs.items():
            wall, cpu = (min(values) for values in zip(*found, strict=True))
            speed = config.batch * config.seq_len / wall
            print(f"{name:<28}{speed:>12,.0f}{plain[0] / wall:>8.2f}{cpu * 1e3:>14.1f}{cpu / plain[1]:>8.2f}")
        print()
        print(f"{'checkpoint':<28}{'stall, s':>12}{'ratio':>8}")
        for name, model in (("tiny", "tiny"), ("10m", "10m")):
            beside, waited, size = stalls(parse([f"model={model}"]), f"{folder}/{name}")
            label = f"{name}, {size / 2**20:,.0f} MiB"
            print(f"{label + ', waited for':<28}{waited:>12.4f}{1:>8.2f}")
            print(f"{label + ', beside':<28}{beside:>12.4f}{beside / waited:>8.2f}")


if __name__ == "__main__":
    main()
