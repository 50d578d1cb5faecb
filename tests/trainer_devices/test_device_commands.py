"""`python -m trainer devices`, `check` and `smoke`, as a user calls them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.environment import World
from trainer.errors import StorageError, TrainerError
from trainer.smoke_test import stages

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


@pytest.mark.promise("P40")
def test_finding_devices_loads_no_framework() -> None:
    code = (
        "import sys; from trainer.commands import devices; devices.run(['--table'])\n"
        "assert not {'torch', 'jax', 'torch_xla'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True)


@pytest.mark.promise("P40")
def test_smoke_stops_at_the_first_failure_with_its_status(tmp_path: Path) -> None:
    done = trainer("smoke", f"data={tmp_path / 'nothing'}", TMPDIR=str(tmp_path))
    assert done.returncode == 3
    marks = {line.split()[1]: line[0] for line in done.stdout.splitlines()[:-1]}
    assert marks == {"devices": "✓", "data": "✗", "compute": "-", "loop": "-", "checkpoint": "-", "resume": "-"}
    assert done.stdout.splitlines()[-1].startswith("failed after")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("P40")
def test_a_device_that_computes_wrongly_is_found() -> None:
    """Break the forward pass, the backward pass alone, and the sums of one of several ranks."""
    code = """
import torch.nn.functional as F
from trainer.__main__ import exit_process, main
from trainer.errors import DeviceError
from trainer.smoke_test import device_check
from trainer.torch_engine.slots import Slot
small = ["check", "model.dim=32", "model.layers=2", "batch=4", "seq_len=16", "threads=1", "device=cpu", "engine=torch"]
right, slope = F.silu, Slot.gradient
Slot.gradient = lambda slot: -slope(slot)
assert main(small) == 4
Slot.gradient = slope
device_check._check_ranks_agree([[2.0, 1.0, 1.9]] * 3)
try:
    device_check._check_ranks_agree([[2.0, 1.0, 1.9], [2.0, 1.001, 1.9]])
except DeviceError as error:
    assert "rank 1 computes" in str(error)
else:
    raise AssertionError("other sums are the same")
F.silu = lambda x: right(x) * 1.5
exit_process(main(small))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stdout
    assert "the gradients are wrong" in done.stderr and "it computes wrongly" in done.stderr


@pytest.mark.promise("P40")
def test_run_that_succeeds_with_other_numbers_fails_its_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the trainer's place that writes the losses it is given, wherever it began."""
    program, said, place = tmp_path / "python", tmp_path / "said", tmp_path / "checkpoints"
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in metrics.file=*) file=${word#*=} ;; esac; done\n"
        f'cp {shlex.quote(str(said))} "$file"\n'
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    bench, losses = (
        stages.SmokeRun(words=(), folder=tmp_path, place=str(place), world=World()),
        [3.0, 2.5, 2.2, 2.0, 1.9, 1.8],
    )

    def says(*numbers: float) -> None:
        said.write_text("".join(f'{{"loss": {number!r}}}\n' for number in numbers))

    says(*losses)
    assert stages.check_loop(bench)[1] == losses
    says(*losses[:5])
    with pytest.raises(TrainerError, match="5 of 6 steps"):
        stages.check_loop(bench)
    (place / "step-00000003").mkdir(parents=True)
    (place / "step-00000003" / "manifest.json").touch()
    with pytest.raises(StorageError, match="step-00000006 has no manifest"):
        stages.check_checkpoint(bench)
    says(*losses[3:])
    assert "bit for bit" in stages.check_resume(bench, losses)
    says(2.0, 1.9, 1.8 + 1e-8)
    assert "within" in stages.check_resume(bench, losses)
    for wrong in ((2.0, 1.9), (2.0, 1.9, 1.801), losses[:3]):
        says(*wrong)
        with pytest.raises(StorageError, match="without the interruption"):
            stages.check_resume(bench, losses)


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


@pytest.mark.promise("P40")
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
    assert last.startswith("passed")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("trainer-smoke")] == []
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert not (tmp_path / "events").exists()
