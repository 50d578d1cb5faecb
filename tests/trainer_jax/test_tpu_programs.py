"""The step as the real TPU compiler makes it, beside an independent step: memory, and sums that overlap products."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = os.environ.get("ORCH_TPU_COMPILER")
COMPILER = Path(NAMED or ROOT / ".venv-libtpu" / "bin" / "python")
WHOLE = COMPILER if NAMED else ROOT / ".venv-libtpu" / "complete"
pytestmark = [
    pytest.mark.jax,
    pytest.mark.skipif(not WHOLE.exists(), reason="no TPU compiler: scripts/tpu-compiler"),
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("topology", "waiting"), [("v5e:2x4", 1), ("v5p:2x2x2", 0), ("v6e:2x4", 2)])
def test_a_step_needs_the_memory_of_an_independent_one_and_sums_while_it_multiplies(
    topology: str, waiting: int
) -> None:
    """Both sum in fp32, with the same compiler options.

    Args:
        topology: The slice.
        waiting: Sums that the step waits for; without the compiler options all nine (docs/performance.md).
    """
    command = [str(COMPILER), str(ROOT / "scripts" / "bench" / "tpu_programs.py"), topology]
    done = subprocess.run(
        command,
        env={**os.environ, "STEPS": "trainer independent"},
        capture_output=True,
        text=True,
        check=True,
        timeout=880,
    )
    ours, independent = (json.loads(line) for line in done.stdout.splitlines())
    assert ours["temporaries"] <= 1.1 * independent["temporaries"]
    found, theirs = (step["collectives"] for step in (ours, independent))
    assert found.get("reduce-scatter sync f32", 0) <= waiting
    rings = "collective-permute async f32"
    assert found[rings] >= theirs[rings] - (5 if topology.startswith("v6e") else 0), "a ring of 8 chips has five"
    assert not any(name.endswith("bf16") for name in found if name.startswith(("reduce", "all-reduce")))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1"])
def test_the_compiler_accepts_the_options_of_each_generation(topology: str) -> None:
    words = ["compile", "--json", f"topology={topology}", "model=tiny", "model.layers=2", "batch=32"]
    done = subprocess.run(
        [str(COMPILER), "-m", "trainer", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=280
    )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["fits"] and found["timing"]["typical"] > 0, "its loops, also those of the options, are counted"
