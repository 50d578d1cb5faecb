"""Which accelerators this machine has, found without touching any: files of the kernel and one query tool.

Opening a TPU or a Neuron core to look at it takes it away from the program that uses it, and torch_tpu aborts
the process where there is none. So this reads /proc, /sys and /dev only, and asks nvidia-smi.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer.accelerators import nvidia
from trainer.accelerators.device import Device, topology
from trainer.accelerators.pci import Chip, PciBus, entries, number, text

__all__ = ["Device", "discover", "processor"]

_ROOT = Path("/")


def discover(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> list[Device]:
    """Accelerators first, each kind in the order of its PCI addresses, the processor last.

    root: where /proc, /sys and /dev are looked for. environ: what a launcher says of the slice.
    """
    bus = PciBus(root)
    return [*_gpus(root, bus), *_tpus(bus, environ), *_neurons(root, bus, environ), processor(root)]


def processor(root: Path = _ROOT) -> Device:
    memory = _fields(root / "proc/meminfo")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    about = text(root / "proc/cpuinfo")
    sockets = max(1, len(set(re.findall(r"^physical id\s*:\s*(\d+)", about, re.MULTILINE))))
    model = re.search(r"^model name\s*:\s*(.+)$", about, re.MULTILINE)
    name = model.group(1).strip() if model else os.uname().machine
    return Device(
        "cpu",
        name,
        next((vendor for vendor in ("Intel", "AMD") if vendor in name), "unknown"),
        0,
        memory.get("MemTotal"),
        memory.get("MemAvailable"),
        topology(f"{cores} cores", f"{sockets} sockets"),
        cores=cores,
    )


def _gpus(root: Path, bus: PciBus) -> Iterator[Device]:
    files = [entry for entry in entries(root / "dev") if re.fullmatch(r"nvidia\d+", entry.name)]
    if not files:
        return
    # The device files are there, so the GPUs are: without the tool, they are reported by what /sys knows.
    gpus = nvidia.ask() or nvidia.without_tool(bus.gpus(), len(files))
    links = nvidia.ask_links() if len(gpus) > 1 else {}
    network = _efa(bus)
    for index, gpu in enumerate(gpus):
        link = f"NVLink to {links[index]} GPUs" if links.get(index) else None
        yield Device(
            "cuda",
            gpu.name,
            "NVIDIA",
            index,
            gpu.total,
            gpu.free,
            topology(f"GPU {index} of {len(gpus)}", link, network),
            peers=len(gpus),
            links=link,
            network=network,
            bus=gpu.bus,
            uuid=gpu.uuid,
        )


def _tpus(bus: PciBus, environ: Mapping[str, str]) -> Iterator[Device]:
    chips = bus.tpus()
    named = environ.get("TPU_ACCELERATOR_TYPE") or environ.get("ORCH_ACCELERATOR") or ""
    part = " ".join(word for word in (named, environ.get("TPU_TOPOLOGY", "")) if word) or None
    hosts = _hosts(environ)
    for index, (address, chip) in enumerate(chips):
        yield Device(
            "tpu",
            chip.name,
            "Google",
            index,
            _mebibytes(chip),
            None,
            topology(f"chip {index} of {len(chips)}", f"{chip.cores} cores", part, hosts, "ICI"),
            peers=len(chips),
            cores=chip.cores,
            devices=chip.devices,
            slice=part,
            links="ICI",
            bus=address,
        )


def _neurons(root: Path, bus: PciBus, environ: Mapping[str, str]) -> Iterator[Device]:
    found = sorted(int(e.name[6:]) for e in entries(root / "dev") if re.fullmatch(r"neuron\d+", e.name))
    chips = bus.neurons()
    network = _efa(bus)
    for position, index in enumerate(found):
        address, chip = chips[position] if position < len(chips) else (None, None)
        about = root / f"sys/devices/virtual/neuron_device/neuron{index}"
        cores = number(about / "core_count") or (chip.cores if chip else None)
        neighbours = re.findall(r"\d+", text(about / "connected_devices"))
        link = f"NeuronLink to {len(neighbours)} chips" if neighbours else None
        total = _mebibytes(chip)
        yield Device(
            "neuron",
            chip.name if chip else "AWS Neuron device",
            "AWS",
            index,
            total,
            _neuron_free(about, total),
            topology(f"chip {index} of {len(found)}", f"{cores} cores" if cores else None, link, network),
            peers=len(found),
            cores=cores,
            devices=_logical(chip, environ) if chip else 1,
            links=link,
            network=network,
            bus=address,
        )


def _mebibytes(chip: Chip | None) -> int | None:
    return chip.memory * 1024 if chip and chip.memory else None


def _logical(chip: Chip, environ: Mapping[str, str]) -> int:
    """As how many cores a chip shows; two physical ones may be one (Neuron documentation, "LNC", 2026)."""
    asked = environ.get("NEURON_LOGICAL_NC_CONFIG") or environ.get("NEURON_RT_VIRTUAL_CORE_SIZE")
    pairs = chip.devices < chip.cores
    return chip.cores // int(asked) if pairs and asked in ("1", "2") else chip.devices


def _neuron_free(about: Path, total: int | None) -> int | None:
    """MiB, by the driver's counters of each core (Neuron documentation, "Neuron Sysfs User Guide")."""
    used = [number(core / "stats/memory_usage/device_mem/present") for core in about.glob("neuron_core*")]
    known = [count for count in used if count is not None]
    return total - sum(known) // 2**20 if known and total is not None else None


def _efa(bus: PciBus) -> str | None:
    count = bus.efas()
    return f"{count} EFA" if count else None


def _hosts(environ: Mapping[str, str]) -> str | None:
    names = [name for name in environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name]
    count = str(len(names)) if names else environ.get("ORCH_NUM_HOSTS", "")
    return f"{count} hosts" if count not in ("", "1") else None


def _fields(path: Path) -> dict[str, int]:
    """`Name:  123 kB` lines, in MiB."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", text(path), re.MULTILINE)
    return {name: int(value) // 1024 for name, value in found}
