"""The PCI functions that the kernel shows in /sys, without opening any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_GOOGLE, _AMAZON, _NVIDIA = "0x1ae0", "0x1d0f", "0x10de"


@dataclass(frozen=True, slots=True)
class Chip:
    """memory: GiB, None where the id does not tell it. cores: physical. devices: as how many a framework sees it."""

    name: str
    memory: int | None
    cores: int
    devices: int = 1


# PCI device ids: jax 0.10.2, jax/_src/hardware_utils.py, and torch_xla 2.9, tpu.py; from v4 on also torch_tpu 0.2.0,
# which has HBM and devices of a chip too (all read November 2026). TensorCores: Cloud TPU documentation, system
# architecture (2025). Both cores of a v4 or v5p work as one device, those of the others as two.
TPUS: Mapping[str, Chip] = MappingProxyType(
    {
        "0x0027": Chip("TPU of generation 2 or 3", None, cores=2, devices=2),  # one id for both
        "0x005e": Chip("TPU v4", 32, cores=2),
        "0x0062": Chip("TPU v5p", 95, cores=2),
        "0x0063": Chip("TPU v5e", 16, cores=1),
        "0x006f": Chip("TPU v6e", 32, cores=1),
        "0x0076": Chip("TPU v7", 192, cores=2, devices=2),
    }
)

# PCI device ids: neuron_device.h of AWS's Neuron driver (aws-neuronx-dkms, January 2026) and the PCI ID database (22
# August 2026). Memory and cores: AWS Neuron documentation, architecture of Trainium, Trainium2 and Trainium3 (August
# 2026). On Trainium2 and 3 two cores are one logical core unless told otherwise (the same, "LNC").
NEURONS: Mapping[str, Chip] = MappingProxyType(
    {
        "0x7164": Chip("AWS Trainium1", 32, cores=2, devices=2),
        "0x7264": Chip("AWS Inferentia2", 32, cores=2, devices=2),
        "0x7364": Chip("AWS Trainium2", 96, cores=8, devices=4),
        "0x7564": Chip("AWS Trainium3", 144, cores=8, devices=4),
        "0x7565": Chip("AWS Trainium3", 144, cores=8, devices=4),
    }
)

# The PCI ID database (22 August 2026), for machines whose nvidia-smi does not answer; the names are nvidia-smi's.
GPUS: Mapping[str, str] = MappingProxyType(
    {
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
    """address: such as 0000:10:1c.0. vendor, device: as /sys writes them, 0x1d0f and 0x7164."""

    address: str
    vendor: str
    device: str


class PciBus:
    """All functions in the order of their addresses. root: where /sys is looked for."""

    def __init__(self, root: Path) -> None:
        self._functions = [
            PciFunction(folder.name.lower(), text(folder / "vendor").strip(), text(folder / "device").strip())
            for folder in entries(root / "sys/bus/pci/devices")
        ]

    def tpus(self) -> list[tuple[str, Chip]]:
        """(address, chip) of each."""
        return self._known(_GOOGLE, TPUS)

    def neurons(self) -> list[tuple[str, Chip]]:
        return self._known(_AMAZON, NEURONS)

    def gpus(self) -> list[tuple[str, str]]:
        """(address, name) of those we know."""
        return [(f.address, GPUS[f.device]) for f in self._functions if f.vendor == _NVIDIA and f.device in GPUS]

    def efas(self) -> int:
        """Network cards with Amazon's Elastic Fabric Adapter."""
        return sum(function.vendor == _AMAZON and function.device in _EFA for function in self._functions)

    def _known(self, vendor: str, table: Mapping[str, Chip]) -> list[tuple[str, Chip]]:
        return [(f.address, table[f.device]) for f in self._functions if f.vendor == vendor and f.device in table]


def entries(folder: Path) -> list[Path]:
    """Sorted; none when the folder cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def text(path: Path) -> str:
    """Empty when the file cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """The whole number that a file of /sys holds."""
    found = text(path).strip()
    return int(found) if found.isascii() and found.isdigit() else None
