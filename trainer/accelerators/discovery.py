"""Which accelerators this machine has, found without touching any: files of the kernel and one query tool.

Opening a TPU or a Neuron core to look at it takes it away from the program that uses it, and torch_tpu aborts
the process where there is none. So this reads /proc, /sys and /dev only, and asks nvidia-smi.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["cpu", "cuda", "tpu", "neuron"]

_ROOT = Path("/")
_GIB = 1024
_GOOGLE = "0x1ae0"

# PCI device ids and HBM of a chip, from the device table of torch_tpu 0.2.0 (November 2026).
_TPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "0x005e": ("TPU v4", 32),
        "0x0062": ("TPU v5p", 95),
        "0x0063": ("TPU v5e", 16),
        "0x006f": ("TPU v6e", 32),
        "0x0076": ("TPU v7", 192),
    }
)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. Memory in MiB; None where it cannot be known without opening the device."""

    kind: Kind
    name: str
    vendor: str
    index: int
    total_mem_mb: int | None
    available_mem_mb: int | None
    topology: str | None

    def as_json(self) -> dict[str, str | int | None]:
        return asdict(self)


def discover(root: Path = _ROOT) -> list[Device]:
    """Accelerators first, the processor last. root: where /proc, /sys and /dev are looked for."""
    return [*_nvidia(root), *_tpus(root), *_neuron(root), processor(root)]


def processor(root: Path = _ROOT) -> Device:
    memory = _fields(root / "proc/meminfo")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", _text(root / "proc/cpuinfo"), re.MULTILINE))
    model = re.search(r"^model name\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    name = model.group(1).strip() if model else os.uname().machine
    vendor = "Intel" if "Intel" in name else "AMD" if "AMD" in name else "unknown"
    topology = f"{cores} cores, {max(1, len(sockets))} sockets"
    return Device("cpu", name, vendor, 0, memory.get("MemTotal"), memory.get("MemAvailable"), topology)


def _nvidia(root: Path) -> Iterator[Device]:
    if not any(re.fullmatch(r"nvidia\d+", entry.name) for entry in _entries(root / "dev")):
        return
    query = "index,name,memory.total,memory.free"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        # The device files are there, so the GPUs are: report them without what only the tool knows.
        answer = ""
    rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines() if line.count(",") == 3]
    if not rows:
        found = sorted(int(e.name[6:]) for e in _entries(root / "dev") if re.fullmatch(r"nvidia\d+", e.name))
        rows = [[str(index), "NVIDIA GPU", "", ""] for index in found]
    for index, name, total, free in rows:
        yield Device("cuda", name, "NVIDIA", int(index), _number(total), _number(free), f"{len(rows)} GPUs")


def _tpus(root: Path) -> Iterator[Device]:
    chips: list[tuple[str, int]] = []
    for folder in _entries(root / "sys/bus/pci/devices"):
        if _text(folder / "vendor").strip() == _GOOGLE:
            known = _TPUS.get(_text(folder / "device").strip())
            if known:
                chips.append(known)
    topology = os.environ.get("TPU_TOPOLOGY") or os.environ.get("TPU_ACCELERATOR_TYPE") or f"{len(chips)} chips"
    for index, (name, memory) in enumerate(chips):
        yield Device("tpu", name, "Google", index, memory * _GIB, None, topology)


def _neuron(root: Path) -> Iterator[Device]:
    found = sorted(
        int(match.group(1)) for entry in _entries(root / "dev") if (match := re.fullmatch(r"neuron(\d+)", entry.name))
    )
    for index in found:
        yield Device("neuron", "AWS Neuron device", "AWS", index, None, None, f"{len(found)} devices")


def _fields(path: Path) -> dict[str, int]:
    """`Name:  123 kB` lines, in MiB."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", _text(path), re.MULTILINE)
    return {name: int(value) // 1024 for name, value in found}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
