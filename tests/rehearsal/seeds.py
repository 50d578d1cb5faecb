"""One seed: preempt a real training at a random step and rank, and compare its losses with the undisturbed ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

from support.orch_process import Orch

STEPS = 80
EVERY = 20
TASK = f"""
name: seeds
resources: {{infra: "local:2"}}
train:
  args: {{model.dim: 96, model.layers: 2, model.heads: 2, model.kv_heads: 1, steps: {STEPS}, batch: 32, threads: 1}}
checkpoint: {{bucket: "file:///tmp/not-used", every: {EVERY}}}
"""


def rehearse(folder: Path, *more: str) -> tuple[dict[int, str], dict[str, object], str]:
    """Losses by step (of the last attempt that made it), the report, and what was said."""
    folder.mkdir()
    (folder / "task.yaml").write_text(TASK)
    orch = Orch(folder, {"TMPDIR": str(folder)})
    done = orch("rehearse", "task.yaml", "--keep", "-o", "json", *more, timeout=240)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout[done.stdout.index('{\n  "version"') :])
    (home,) = folder.glob("orch-rehearsal-*")
    rows = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss_hex"] for row in rows}, report, done.stderr


def check_seed(seed: int, folder: Path, undisturbed: dict[int, str]) -> None:
    chance = random.Random(seed)
    step, rank = chance.randint(2, STEPS - 30), chance.randint(0, 1)
    losses, report, said = rehearse(folder, "--preempt", f"rank={rank}@step={step}", "--seed", str(seed))
    assert losses == undisturbed, f"seed {seed}: preempted on rank {rank} at step {step}"
    resumes = report["resumes"]
    assert isinstance(resumes, list) and len(resumes) == 1, said
    (resume,) = resumes
    assert resume["cause"] == "preempted", resume
    # The slice dies up to a moment after the step; the work since the last complete checkpoint is what is lost. One
    # that was being written when the machine died does not count, so it is less than two intervals at the very most.
    assert resume["lost_steps"] <= 2 * EVERY - 1, resume
    assert resume["repeated"] == resume["same_loss"], resume
