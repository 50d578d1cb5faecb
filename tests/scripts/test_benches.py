"""Every bench of scripts/bench runs in its quick form; the figures themselves are measured by hand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "scripts" / "bench"
HELPERS = {"context.py", "many_records.py", "streams.py", "worlds.py"}
LOOPS = {"plain_torch.py", "plain_jax.py", "plain_hf.py", "plain_titan.py"}  # run by throughput.py and gpu.py
WITH_LIBTPU = {"tpu_programs.py", "tpu_cycles.py"}  # they need JAX with libtpu: scripts/tpu-compiler
LAST_LINES = {
    "checkpoint.py": "% of step time",
    "cli.py": "orch offers, all regions",
    "data.py": "data.ahead=2",
    "equality.py": "torch 2 ddp",
    "files.py": "files, one file changed",
    "launch.py": "`ssh HOST echo`",
    "market.py": "",
    "records.py": "restored into PostgreSQL",
    "recovery.py": "| shell loop | 1 |",
    "remote.py": "connections open",
    "resume.py": "none  ok",
    "service.py": "memory with the streams",
    "store.py": "50 ms        8",
    "throughput.py": "of the fastest loop",
}
"""Part of the last line that each prints."""


def run_bench(name: str, *arguments: str, **environ: str) -> str:
    command = [sys.executable, str(BENCHES / name), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_bench_has_a_quick_form_or_is_run_by_one() -> None:
    found = {path.name for path in BENCHES.glob("*.py")}
    assert found == {*LAST_LINES, "gpu.py", *HELPERS, *LOOPS, *WITH_LIBTPU}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LAST_LINES))
def test_a_bench_runs_in_its_quick_form(name: str) -> None:
    if name == "remote.py":
        missing = [tool for tool in ("pdsh", "rsync") if not shutil.which(tool)]
        if missing:
            pytest.skip(f"{', '.join(missing)} is not installed")
    lines = run_bench(name, "--quick").strip().splitlines()
    assert re.match(
        r"commit ([0-9a-f]{9}( with local changes)?|unknown), \d{4}-\d\d-\d\d; .+ cores, Python 3\.", lines[0]
    )
    assert lines[1].startswith("--quick:")
    assert LAST_LINES[name] in lines[-1]


@pytest.mark.slow
def test_the_gpu_bench_reports_a_machine_without_a_gpu() -> None:
    output = run_bench("gpu.py", "--quick", CUDA_VISIBLE_DEVICES="")
    assert re.search(r"^skipped: .*finds no GPU$", output, re.MULTILINE)
