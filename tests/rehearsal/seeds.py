"""One seed: preempt a real training at a random step and rank, and compare its losses with the undisturbed ones."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from support.orch_process import Orch

STEPS = 50
EVERY = 10
PAIRED = frozenset({3, 13})  # seeds with two hosts; the others have one, which costs half the time
TASK = f"""
name: seeds
resources: {{infra: "local:HOSTS"}}
train:
  args: {{model.dim: 96, model.layers: 2, model.heads: 2, model.kv_heads: 1, steps: {STEPS}, batch: 32, threads: 1}}
checkpoint: {{bucket: "file:///tmp/not-used", every: {EVERY}}}
"""


def rehearse(folder: Path, hosts: int, *more: str) -> tuple[dict[int, str], dict[str, Any]]:
    """Losses by step (of the last attempt that made it), and the report."""
    folder.mkdir()
    (folder / "task.yaml").write_text(TASK.replace("HOSTS", str(hosts)))
    orch = Orch(folder, {"TMPDIR": str(folder)})
    done = orch("rehearse", "task.yaml", "--keep", "-o", "json", *more, timeout=240)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout[done.stdout.index('{\n  "version"') :])
    (home,) = folder.glob("orch-rehearsal-*")
    rows = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss_hex"] for row in rows}, report


@cache
def undisturbed(folder: Path, hosts: int) -> dict[int, str]:
    """The losses of a run in which nothing happens."""
    losses, report = rehearse(folder / f"calm-{hosts}", hosts)
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert report["resumes"] == []
    return losses


def check_seed(seed: int, folder: Path, shared: Path) -> None:
    """shared: a folder for all seeds of a module, for the undisturbed runs."""
    chance = random.Random(seed)
    hosts = 2 if seed in PAIRED else 1
    step, rank = chance.randint(2, STEPS // 2), chance.randrange(hosts)
    losses, report = rehearse(folder, hosts, "--preempt", f"rank={rank}@step={step}", "--seed", str(seed))
    assert losses == undisturbed(shared, hosts), f"seed {seed}: preempted on rank {rank} at step {step}"
    (resume,) = report["resumes"]
    assert resume["cause"] == "preempted", resume
    # What is lost is the work since the last complete checkpoint: one interval, and what was made of the next while the
    # last one was still being written.
    assert resume["lost_steps"] < 2 * EVERY, resume
    assert resume["repeated"] == resume["same_loss"], resume
