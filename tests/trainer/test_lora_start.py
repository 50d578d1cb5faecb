"""LoRA from a step of a run that trained all weights: a new run, at step 0, which does not need its base later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["model=tiny", "batch=4", "seq_len=32", "log_every=1", "threads=1", "device=cpu"]
pytestmark = pytest.mark.rotating


def train(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer", *WORDS, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_adapters_on_a_full_run_begin_at_step_0_and_survive_their_base(tmp_path: Path) -> None:
    assert train("steps=5", f"checkpoint.uri={tmp_path}/base").returncode == 0
    (base,) = (tmp_path / "base").glob("step-00000005*")
    words = ["lora.rank=4", f"checkpoint.start={base}", f"checkpoint.uri={tmp_path}/run"]
    begun = train("steps=3", *words)
    assert begun.returncode == 0, begun.stderr
    assert "LoRA adapters begin at step 0, on the weights of step 5" in begun.stdout
    assert "step 1/3 " in begun.stdout
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    resumed = train("steps=4", *words)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed from step 3" in resumed.stdout


def test_a_start_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    done = train("steps=2", f"checkpoint.start={tmp_path}/nowhere/step-00000000", f"checkpoint.uri={tmp_path}/run")
    assert done.returncode == 2 and "nothing to start from" in done.stderr
