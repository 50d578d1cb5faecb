"""Losses of runs that are killed at a random step on one engine, mesh and number of hosts, and resumed on another.

    python scripts/bench/resume.py [seed=0 steps=60] ["chain=torch 4 fsdp,jax 2 fsdp,torch 1"] [--quick]

Every process of run A is killed with SIGKILL; run B resumes from the newest complete checkpoint in the bucket. Its
losses are compared with an uninterrupted run of A: bit by bit where A and B are the same, else relatively. `chain`
names other pairs: each of its arms is killed, and the next one resumes.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from context import print_context
from worlds import XLA_PYTHON, Arm, World, run

TOLERANCE = 1e-5
ONE = Arm("torch", 1, name="torch 1")
DDP2 = Arm("torch", 2, name="torch 2 ddp")
FSDP4 = Arm("torch", 4, mesh=("mesh.fsdp=4",), name="torch 4 fsdp")
TENSOR2 = Arm("torch", 2, mesh=("mesh.tensor=2",), name="torch 2 tensor")
JAX1 = Arm("jax", 1, name="jax 1")
JAX2 = Arm("jax", 2, mesh=("mesh.fsdp=2",), name="jax 2 fsdp")
JAX4 = Arm("jax", 2, 2, ("mesh.fsdp=2", "mesh.tensor=2"), "jax 2x2 fsdp x tensor")
XLA4 = Arm("xla", 1, 4, ("mesh.fsdp=4",), "xla 4 devices fsdp")
PAIRS = (
    (ONE, ONE),
    (DDP2, DDP2),
    (FSDP4, FSDP4),
    (DDP2, ONE),
    (ONE, FSDP4),
    (FSDP4, JAX2),
    (FSDP4, TENSOR2),
    (TENSOR2, JAX4),
    (JAX2, JAX2),
    (JAX2, ONE),
    (JAX4, FSDP4),
    (FSDP4, XLA4),
    (XLA4, JAX1),
)
ARMS = {arm.label: arm for arm in (ONE, DDP2, FSDP4, TENSOR2, JAX1, JAX2, JAX4, XLA4)}


def main() -> None:
    quick = "--quick" in sys.argv
    given = dict(word.split("=", 1) for word in sys.argv[1:] if word != "--quick")
    if quick:
        given = {"steps": "20", "chain": "torch 1,torch 1", **given}
    print_context(quick=quick)
    chain = [ARMS[name] for name in given["chain"].split(",")] if "chain" in given else []
    pairs = tuple(itertools.pairwise(chain)) or PAIRS
    dice = random.Random(int(given.get("seed", "0")))
    steps = int(given.get("steps", "60"))
    words = ("model.dim=64", "model.layers=2", "model.heads=4", "model.kv_heads=2", "batch=8", "seq_len=64")
    words += (f"steps={steps}", "log_every=1", "optim.lr=1e-3", "checkpoint.every=5")
    missed = False
    print(f"{'killed':<24} {'resumed on':<24} {'at step':>8} {'from':>5} {'largest difference':>19}")
    with tempfile.TemporaryDirectory() as place:
        whole: dict[Arm, dict[int, float]] = {}
        for number, (before, after) in enumerate(pairs):
            if "xla" in (before.engine, after.engine) and not XLA_PYTHON.exists():
                continue
            if before not in whole:
                whole[before] = run(before, Path(place, f"whole-{number}"), (*words, "checkpoint.uri="))
            bucket = f"checkpoint.uri={Path(place, f'bucket-{number}')}/checkpoints"
            died = _killed(before, Path(place, f"killed-{number}"), (*words, bucket), dice.randrange(8, steps - 5))
            losses = run(after, Path(place, f"resumed-{number}"), (*words, bucket), ORCH_ATTEMPT="2")
            first = min(losses)
            apart = max(abs(loss - whole[before][step]) / loss for step, loss in losses.items())
            good = apart == 0 if before is after else apart <= TOLERANCE
            missed |= not good
            size = "none" if apart == 0 else f"{apart:.1e}"
            row = f"{before.label:<24} {after.label:<24} {died:>8} {first - 1:>5} {size:>19}"
            print(f"{row}  {'ok' if good else 'MISS'}", flush=True)
    sys.exit(missed)


def _killed(arm: Arm, folder: Path, words: tuple[str, ...], step: int) -> int:
    """Kill all processes when the run is past `step`, and return the last logged step."""
    world = World(arm, folder, words)
    while max(world.losses(), default=0) < step:
        if any(process.poll() is not None for process in world.processes):
            raise SystemExit(f"{arm.label} ended before it was killed:\n{world.output()}")
        time.sleep(0.02)
    world.kill()
    return max(world.losses())


if __name__ == "__main__":
    main()
