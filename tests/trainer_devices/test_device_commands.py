"""`python -m trainer devices`, `check` and `smoke`, as a user calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def trainer(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", *words],
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_devices_are_printed_as_json_and_as_a_table() -> None:
    done = trainer("devices")
    found = json.loads(done.stdout)
    assert found[-1]["kind"] == "cpu"
    assert {"name", "vendor", "index", "total_mem_mb", "available_mem_mb", "topology"} <= found[-1].keys()
    table = trainer("devices", "--table").stdout.splitlines()
    assert table[0].split() == ["DEVICE", "NAME", "MEMORY", "FREE", "TOPOLOGY"]
    assert table[-1].startswith("engine=auto device=auto: ")
    assert trainer("devices", "--tabel").returncode == 2


def test_finding_devices_loads_no_framework() -> None:
    code = (
        "import sys; from trainer.commands import devices; devices.run(['--table'])\n"
        "assert not {'torch', 'jax', 'torch_xla'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True)


def test_smoke_stops_at_the_first_failure_with_its_status(tmp_path: Path) -> None:
    done = trainer("smoke", f"data={tmp_path / 'nothing'}", TMPDIR=str(tmp_path))
    assert done.returncode == 3
    marks = {line.split()[1]: line[0] for line in done.stdout.splitlines()[:-1]}
    assert marks == {"devices": "✓", "data": "✗", "compute": "-", "loop": "-", "checkpoint": "-", "resume": "-"}
    assert done.stdout.splitlines()[-1].startswith("failed after")
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_computes_wrongly_is_found() -> None:
    code = """
import torch.nn.functional as F
right = F.silu
F.silu = lambda x: right(x) * 1.5
import sys
from trainer.__main__ import leave, main
small = ["model.dim=32", "model.layers=2", "batch=4", "seq_len=16", "threads=1"]
leave(main(["check", *small, "device=cpu", "engine=torch"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stdout
    assert "it computes wrongly" in done.stderr


def test_a_smoke_test_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    words = ["smoke", "threads=1", "device=cpu", "engine=torch", f"checkpoint.uri={tmp_path}/checkpoints"]
    left = tmp_path / "checkpoints" / "smoke" / "step-00000003"
    left.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-m", "trainer", *words],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as smoke:
        assert smoke.stdout is not None
        assert any(line.startswith("✓ data") for line in smoke.stdout)
        end = time.monotonic() + 20
        while left.parent.exists():  # what an earlier one left goes before anything is computed
            assert time.monotonic() < end
            time.sleep(0.01)
        left.mkdir(parents=True)
        smoke.send_signal(signal.SIGTERM)
        assert smoke.wait(20) == 143
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert list(tmp_path.glob("trainer-smoke*")) == []


@pytest.mark.slow
def test_smoke_proves_a_machine_and_leaves_nothing(tmp_path: Path) -> None:
    left = tmp_path / "checkpoints" / "smoke" / "step-00000003"  # as one that was killed leaves it
    left.mkdir(parents=True)
    (left / "manifest.json").write_text("{}")
    (left.parent / ".latest.json.lock").touch()
    words = ["threads=1", "device=cpu", "engine=torch", f"checkpoint.uri={tmp_path}/checkpoints"]
    words += ["checkpoint.keep=1", f"metrics.tensorboard={tmp_path}/events"]
    done = trainer("smoke", *words, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == [
        "devices",
        "data",
        "compute",
        "gradients",
        "loop",
        "checkpoint",
        "resume",
    ]
    assert all(line.startswith("✓") for line in lines)
    assert "bit for bit" in lines[-1]
    assert last.startswith("all is well")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("trainer-smoke")] == []
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert not (tmp_path / "events").exists()
