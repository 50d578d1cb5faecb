"""Finding devices without touching them, choosing one, and saying clearly when it is not usable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trainer_ranks import REPOSITORY, Launcher

from trainer.accelerators.discovery import Device, discover
from trainer.accelerators.peaks import peak_flops
from trainer.accelerators.registry import choose, open_accelerator
from trainer.environment import World
from trainer.errors import DeviceError


def machine(root: Path, *, tpus: tuple[str, ...] = (), neurons: int = 0, gpus: int = 0) -> Path:
    """The files that a kernel with these devices shows."""
    (root / "dev").mkdir()
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal:       16384000 kB\nMemAvailable:    8192000 kB\n")
    (root / "proc/cpuinfo").write_text("model name\t: Some CPU\nphysical id\t: 0\n\nphysical id\t: 1\n")
    for index, device in enumerate(tpus):
        folder = root / f"sys/bus/pci/devices/0000:00:0{index}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x1ae0\n")
        (folder / "device").write_text(f"{device}\n")
    for index in range(neurons):
        (root / f"dev/neuron{index}").touch()
    for index in range(gpus):
        (root / f"dev/nvidia{index}").touch()
    (root / "dev/nvidiactl").touch()
    return root


def test_tpu_chips_are_known_by_their_pci_ids(tmp_path: Path) -> None:
    found = discover(machine(tmp_path, tpus=("0x0063", "0x0063", "0x9999")))
    assert [(d.kind, d.name, d.vendor, d.index, d.total_mem_mb) for d in found[:-1]] == [
        ("tpu", "TPU v5e", "Google", 0, 16384),
        ("tpu", "TPU v5e", "Google", 1, 16384),
    ]
    assert choose(found) == "xla"


def test_neuron_devices_are_known_by_their_files(tmp_path: Path) -> None:
    found = discover(machine(tmp_path, neurons=12))
    assert [d.index for d in found[:-1]] == list(range(12))
    assert choose(found) == "neuron"


def test_gpus_are_reported_even_when_the_tool_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = discover(machine(tmp_path, gpus=2))
    assert [(d.name, d.index, d.total_mem_mb) for d in found[:-1]] == [("NVIDIA GPU", 0, None), ("NVIDIA GPU", 1, None)]
    assert choose(found) == "cuda"


def test_gpus_are_described_by_their_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "0, NVIDIA H200, 143771, 143000"\necho "1, NVIDIA H200, 143771, [N/A]"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = discover(machine(tmp_path, gpus=2))
    assert found[0] == Device("cuda", "NVIDIA H200", "NVIDIA", 0, 143771, 143000, "2 GPUs")
    assert found[1].available_mem_mb is None
    assert peak_flops(found[0].name, "bf16") == 989e12
    assert peak_flops(found[0].name, "fp32") is None


def test_a_machine_without_accelerators_has_its_processor(tmp_path: Path) -> None:
    found = discover(machine(tmp_path))
    assert [d.kind for d in found] == ["cpu"]
    assert (found[0].name, found[0].total_mem_mb, found[0].available_mem_mb) == ("Some CPU", 16000, 8000)
    assert "2 sockets" in (found[0].topology or "")
    assert choose(found) == "cpu"


def test_devices_are_printed_as_json() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "trainer", "devices"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    found = json.loads(result.stdout)
    assert found[-1]["kind"] == "cpu"
    assert {"name", "vendor", "index", "total_mem_mb", "available_mem_mb", "topology"} <= found[-1].keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a usable GPU")
def test_a_gpu_that_is_not_there_ends_with_status_4_and_advice(launch: Launcher) -> None:
    ranks = launch(1, "device=cuda")
    assert ranks.wait() == [4]
    assert "error[device]: device=cuda: torch" in ranks.text()
    assert "nvidia-smi" in ranks.text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a usable GPU")
def test_auto_does_not_train_on_the_processor_beside_an_unusable_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = discover(machine(tmp_path, gpus=1))
    with pytest.raises(DeviceError, match="to train on the processor all the same: device=cpu"):
        open_accelerator("auto", World(), found)


# What the trainer uses of torch_xla, on the processor: 32 devices, as on a trn1.32xlarge.
STAND_IN = {
    "__init__.py": "import os, torch\n"
    "def device():\n"
    "    print('plugin', os.environ['PJRT_DEVICE'])\n"
    "    return torch.device('cpu')\n"
    "def sync(wait=False): pass\n",
    "runtime.py": "def use_spmd(): pass\ndef global_runtime_device_count(): return 32\n",
    "distributed/__init__.py": "",
    "distributed/spmd.py": "Mesh = lambda *words: words\n"
    "def mark_sharding(tensor, mesh, spec): print('rows', len(tensor), mesh[1], spec)\n",
}


def test_neuron_means_the_lazy_torch_where_the_image_has_that_one(tmp_path: Path) -> None:
    for name, text in STAND_IN.items():
        (tmp_path / "torch_xla" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "torch_xla" / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "PJRT_DEVICE"}
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "check", "device=neuron", "model=tiny", "seq_len=16"],
        env={**env, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plugin, rows, verdict = done.stdout.splitlines()
    assert (plugin, rows) == ("plugin NEURON", "rows 32 (32,) ('data', None)")
    assert verdict.startswith("ok: xla")


@pytest.mark.parametrize("name", ["xla", "neuron"])
def test_an_absent_backend_says_what_to_install(name: str) -> None:
    if name == "xla":
        try:
            import torch_xla
        except ImportError:
            pass
        else:
            pytest.skip(f"torch_xla {torch_xla.__version__} is installed")
    with pytest.raises(DeviceError, match="torch_xla==2.9.0" if name == "xla" else "image of AWS Neuron"):
        open_accelerator(name, World())  # type: ignore[arg-type]  # a word of DeviceName
