"""The PCI functions that the kernel lists in /sys, read without opening any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainer.accelerators.tpu_generations import GENERATIONS

_GOOGLE, _AMAZON, _NVIDIA = "0x1ae0", "0x1d0f", "0x10de"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """What a PCI device id identifies.

    Attributes:
        name: As the vendor's tool prints it.
        memory: GiB; None where the id does not determine it.
        cores: Physical cores.
        devices: How many devices a framework sees in it.
    """

    name: str
    memory: int | None
    cores: int
    devices: int = 1


TPUS: Mapping[str, Chip] = MappingProxyType(
    {
        "0x0027": Chip(name="TPU of generation 2 or 3", memory=None, cores=2, devices=2),  # one id for both
        **{
            each.pci_id: Chip(name=each.device, memory=each.memory_gib, cores=each.cores, devices=each.devices)
            for each in GENERATIONS
            if each.pci_id
        },
    }
)

# PCI device ids: neuron_device.h of AWS's Neuron driver (aws-neuronx-dkms, January 2026) and the PCI ID database (22
# August 2026). Memory and cores: AWS Neuron documentation, architecture of Trainium, Trainium2 and Trainium3 (August
# 2026). On Trainium2 and 3 two cores are one logical core by default (the same, "LNC").
NEURONS: Mapping[str, Chip] = MappingProxyType(
    {
        "0x7164": Chip(name="AWS Trainium1", memory=32, cores=2, devices=2),
        "0x7264": Chip(name="AWS Inferentia2", memory=32, cores=2, devices=2),
        "0x7364": Chip(name="AWS Trainium2", memory=96, cores=8, devices=4),
        "0x7564": Chip(name="AWS Trainium3", memory=144, cores=8, devices=4),
        "0x7565": Chip(name="AWS Trainium3", memory=144, cores=8, devices=4),
    }
)

# The PCI ID database (22 August 2026), for machines whose nvidia-smi does not answer; the names are nvidia-smi's.
GPUS: Mapping[str, str] = MappingProxyType(
    {
        "0x1eb8": "Tesla T4",
        "0x2237": "NVIDIA A10G",
        "0x26b9": "NVIDIA L40S",
        "0x27b8": "NVIDIA L4",
        "0x20b0": "NVIDIA A100-SXM4-40GB",
        "0x20b2": "NVIDIA A100-SXM4-80GB",
        "0x2330": "NVIDIA H100 80GB HBM3",
        "0x2335": "NVIDIA H200",
        "0x2901": "NVIDIA B200",
        "0x3182": "NVIDIA B300 SXM6 AC",
    }
)

# AWS's EFA driver 3.1 (efa_main.c, May 2026), which Linux follows; the last one: the PCI ID database (22 August 2026).
_EFA = ("0xefa0", "0xefa1", "0xefa2", "0xefa3", "0xefa4")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One entry of /sys/bus/pci/devices.

    Attributes:
        address: Such as 0000:10:1c.0.
        vendor: As /sys writes it, such as 0x1d0f.
        device: As /sys writes it, such as 0x7164.
    """

    address: str
    vendor: str
    device: str


class PciBus:
    """All PCI functions in the order of their addresses."""

    def __init__(self, root: Path) -> None:
        self._functions = [
            PciFunction(folder.name.lower(), read_text(folder / "vendor").strip(), read_text(folder / "device").strip())
            for folder in list_entries(root / "sys/bus/pci/devices")
        ]

    def tpus(self) -> list[tuple[str, Chip]]:
        """Return (address, chip) of each TPU."""
        return self._known(_GOOGLE, TPUS)

    def neurons(self) -> list[tuple[str, Chip]]:
        return self._known(_AMAZON, NEURONS)

    def gpus(self) -> list[tuple[str, str]]:
        """Return (address, name) of those GPUs that the table knows."""
        return [(f.address, GPUS[f.device]) for f in self._functions if f.vendor == _NVIDIA and f.device in GPUS]

    def efas(self) -> int:
        """Return the number of network cards with Amazon's Elastic Fabric Adapter."""
        return sum(function.vendor == _AMAZON and function.device in _EFA for function in self._functions)

    def _known(self, vendor: str, table: Mapping[str, Chip]) -> list[tuple[str, Chip]]:
        return [(f.address, table[f.device]) for f in self._functions if f.vendor == vendor and f.device in table]


def list_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted; none when it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def read_text(path: Path) -> str:
    """Return a file's text; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """Return the whole number in a file of /sys; None for anything else."""
    found = read_text(path).strip()
    return int(found) if found.isascii() and found.isdigit() else None
