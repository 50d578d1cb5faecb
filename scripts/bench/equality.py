"""Differences of the losses of the same model, data and seed on every engine, number of processes and mesh.

    python scripts/bench/equality.py [steps=200] ["runs=torch 1,torch 4 fsdp,jax 2 fsdp"] [--quick]

All runs are compared with the first. torch_xla is included where scripts/xla-env has made .venv-xla (or
ORCH_XLA_PYTHON names another interpreter with torch_xla). A row is `ok` when the relative difference stays below 1e-5
to the last step; rounding errors grow with the steps, because training is chaotic.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from context import print_context
from worlds import XLA_PYTHON, Arm, run

TOLERANCE = 1e-5
ARMS = (
    Arm("torch", 1, name="torch 1"),
    Arm("torch", 2, name="torch 2 ddp"),
    Arm("torch", 4, name="torch 4 ddp"),
    Arm("torch", 2, mesh=("mesh.fsdp=2",), name="torch 2 fsdp"),
    Arm("torch", 4, mesh=("mesh.fsdp=4",), name="torch 4 fsdp"),
    Arm("torch", 4, mesh=("mesh.data=2", "mesh.fsdp=2"), name="torch 4 hsdp 2x2"),
    Arm("torch", 2, mesh=("mesh.tensor=2",), name="torch 2 tensor"),
    Arm("torch", 4, mesh=("mesh.fsdp=2", "mesh.tensor=2"), name="torch 4 fsdp x tensor"),
    Arm("torch", 2, mesh=("mesh.fsdp=2", "mesh.context=2"), name="torch 2 context"),
    Arm("torch", 2, mesh=("mesh.pipeline=2", "accumulate=4"), name="torch 2 pipeline"),
    Arm("jax", 1, name="jax 1"),
    Arm("jax", 2, mesh=("mesh.data=2",), name="jax 2 data"),
    Arm("jax", 4, mesh=("mesh.data=4",), name="jax 4 data"),
    Arm("jax", 2, mesh=("mesh.fsdp=2",), name="jax 2 fsdp"),
    Arm("jax", 4, mesh=("mesh.fsdp=4",), name="jax 4 fsdp"),
    Arm("jax", 2, 2, ("mesh.fsdp=2", "mesh.tensor=2"), "jax 2 x 2 devices fsdp x tensor"),
    Arm("jax", 2, 2, ("mesh.fsdp=4", "mesh.context=4"), "jax 2 x 2 devices context"),
    Arm("xla", 1, name="xla 1"),
    Arm("xla", 1, 4, ("mesh.data=4",), "xla 4 devices data"),
    Arm("xla", 1, 4, ("mesh.fsdp=4",), "xla 4 devices fsdp"),
    Arm("xla", 1, 4, ("mesh.fsdp=2", "mesh.tensor=2"), "xla 4 devices fsdp x tensor"),
)
WRONG = Arm("torch", 1, mesh=("seed=1",), name="torch 1 seed 1")  # to test the comparison itself


def main() -> None:
    quick = "--quick" in sys.argv
    given = dict(word.split("=", 1) for word in sys.argv[1:] if word != "--quick")
    if quick:
        given = {"steps": "3", "runs": "torch 1,torch 2 ddp", **given}
    print_context(quick=quick)
    runs = given.pop("runs", "").split(",")
    chosen = [arm for arm in (*ARMS, WRONG) if arm.label in runs] if runs != [""] else list(ARMS)
    arms = [arm for arm in chosen if arm.engine != "xla" or XLA_PYTHON.exists()]
    settings = {"steps": "200", "batch": "8", "seq_len": "64", "optim.lr": "1e-3", "log_every": "1", **given}
    shape = ("model.dim=64", "model.layers=2", "model.heads=4", "model.kv_heads=2", "checkpoint.uri=", "resume=never")
    words = (*shape, *(f"{key}={value}" for key, value in settings.items()))
    steps = int(settings["steps"])
    missed = False
    with tempfile.TemporaryDirectory() as place:
        reference: dict[int, float] = {}
        print(f"{'run':<38} {'loss 1':>9} {'loss ' + str(steps):>9} {'largest relative difference':>28}")
        for number, arm in enumerate(arms):
            losses = run(arm, Path(place, str(number)), words)
            reference = reference or losses
            apart = max(abs(losses[step] - loss) / loss for step, loss in reference.items())
            missed |= apart > TOLERANCE
            verdict = "ok" if apart <= TOLERANCE else "MISS"
            print(f"{arm.label:<38} {losses[1]:>9.5f} {losses[steps]:>9.5f} {apart:>28.1e}  {verdict}", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
