"""Machines as their kernel shows them: the files below /proc, /sys and /dev that discovery reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

GOOGLE, AMAZON, NVIDIA = "0x1ae0", "0x1d0f", "0x10de"
EFA = (AMAZON, "0xefa2")


def machine(root: Path, functions: Sequence[tuple[str, str]] = (), files: Sequence[str] = ()) -> Path:
    """functions: (vendor, device) of each PCI function, in the order of their addresses. files: names in /dev."""
    for folder in ("dev", "proc", "sys/bus/pci/devices"):
        (root / folder).mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:       16384000 kB\nMemAvailable:    8192000 kB\n")
    (root / "proc/cpuinfo").write_text("model name\t: Some AMD CPU\nphysical id\t: 0\n\nphysical id\t: 1\n")
    for index, (vendor, device) in enumerate(functions):
        folder = root / f"sys/bus/pci/devices/0000:{index:02x}:1e.0"
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    for name in (*files, "null"):
        (root / "dev" / name).touch()
    return root


def driver(root: Path, index: int, *, cores: int, neighbours: str, used: int) -> None:
    """What AWS's Neuron driver says of a chip. used: bytes on each core."""
    chip = root / f"sys/devices/virtual/neuron_device/neuron{index}"
    for core in range(cores):
        memory = chip / f"neuron_core{core}/stats/memory_usage/device_mem"
        memory.mkdir(parents=True)
        (memory / "present").write_text(f"{used}\n")
        (memory / "peak").write_text(f"{2 * used}\n")
    (chip / "core_count").write_text(f"{cores}\n")
    (chip / "connected_devices").write_text(f"{neighbours}\n")


def tool(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name, first on PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


# nvidia-smi 595 on an 8-GPU p5.48xlarge, abridged to two GPUs; listed against the order of their addresses.
P5_QUERY = """\
1, 00000000:64:00.0, GPU-b0b0b0b0-1111-2222-3333-444444444444, NVIDIA H100 80GB HBM3, 81559, [N/A]
0, 00000000:53:00.0, GPU-a0a0a0a0-1111-2222-3333-444444444444, NVIDIA H100 80GB HBM3, 81559, 81008"""
P5_TOPOLOGY = """\
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV18    PIX     0-47            0
GPU1    NV18     X      SYS     48-95           1
NIC0    PIX     SYS      X

Legend:
  NV#  = Connection traversing a bonded set of # NVLinks"""
P5_HEALTH = "37, 12, 40000, 81559, 51, 312.45, 700.00, 1980, 2619, 0x0000000000000000, 0"
SMI = f"""case "$*" in
*pci.bus_id*) cat <<'END'
{P5_QUERY}
END
;;
"topo -m") cat <<'END'
{P5_TOPOLOGY}
END
;;
*utilization.gpu*--id=GPU-a0a0*) echo "{P5_HEALTH}";;
*) exit 6;;
esac"""
