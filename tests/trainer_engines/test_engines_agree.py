"""Engines, meshes and numbers of processes compared as complete programs: parts of the benches' matrices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.jax]

ROOT = Path(__file__).resolve().parents[2]
XLA_PYTHON = ROOT / ".venv-xla" / "bin" / "python"


@pytest.mark.promise("P31")
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_losses_of_200_steps_equal_those_of_one_torch_process() -> None:
    """Also those of torch_xla on four devices, if scripts/xla-env has made its environment."""
    runs = ["torch 1", "torch 2 fsdp", "jax 2 x 2 devices fsdp x tensor", "xla 4 devices fsdp x tensor"]
    table = _bench("equality.py", f"runs={','.join(runs)}", "steps=200")
    assert len(table) == len(runs) - (not XLA_PYTHON.exists()), table


@pytest.mark.promise("P32")
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_killed_on_four_fsdp_hosts_continues_with_jax_on_two_and_then_on_one() -> None:
    table = _bench("resume.py", "steps=40", "chain=torch 4 fsdp,jax 2 fsdp,torch 1")
    assert len(table) == 2, table


def test_a_different_loss_is_detected() -> None:
    """The bench itself: a run with another seed must not pass as equal."""
    done = _run("equality.py", "runs=torch 1,torch 1 seed 1", "steps=10")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MISS" in done.stdout


def _bench(script: str, *words: str) -> list[str]:
    done = _run(script, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISS" not in done.stdout
    place, _heads, *rows = done.stdout.strip().splitlines()
    assert place.startswith("commit ")
    return rows


def _run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "bench" / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=380)
