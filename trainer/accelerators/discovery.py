"""Finds the accelerators of this machine without opening any, from files of the kernel and one query tool.

Opening a TPU or a Neuron core takes it away from the program that uses it, and torch_tpu aborts the process where there
is none. So this reads /proc, /sys and /dev only, and runs nvidia-smi.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer.accelerators import nvidia
from trainer.accelerators.device import Device, describe_topology
from trainer.accelerators.pci import Chip, PciBus, list_entries, read_number, read_text

__all__ = ["Device", "discover_devices", "discover_processor"]

_ROOT = Path("/")


def discover_devices(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> list[Device]:
    """Return the accelerators, each kind in the order of its PCI addresses, and last the processor.

    Args:
        root: Where /proc, /sys and /dev are.
        environ: Variables in which a launcher describes the slice.
    """
    bus = PciBus(root)
    return [*_gpus(root, bus), *_tpus(bus, environ), *_neurons(root, bus, environ), discover_processor(root)]


def discover_processor(root: Path = _ROOT) -> Device:
    """Describe the processor of this machine."""
    memory = _fields(root / "proc/meminfo")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    about = read_text(root / "proc/cpuinfo")
    sockets = max(1, len(set(re.findall(r"^physical id\s*:\s*(\d+)", about, re.MULTILINE))))
    model = re.search(r"^model name\s*:\s*(.+)$", about, re.MULTILINE)
    name = model.group(1).strip() if model else os.uname().machine
    return Device(
        kind="cpu",
        name=name,
        vendor=next((vendor for vendor in ("Intel", "AMD") if vendor in name), "unknown"),
        index=0,
        total_mem_mb=memory.get("MemTotal"),
        available_mem_mb=memory.get("MemAvailable"),
        topology=describe_topology(f"{cores} cores", f"{sockets} sockets"),
        cores=cores,
    )


def _gpus(root: Path, bus: PciBus) -> Iterator[Device]:
    files = [entry for entry in list_entries(root / "dev") if re.fullmatch(r"nvidia\d+", entry.name)]
    if not files:
        return
    # The device files are there, so the GPUs are: without the tool, they are reported by what /sys knows.
    gpus = nvidia.query_gpus() or nvidia.list_gpus_without_tool(bus.gpus(), len(files))
    links = nvidia.query_links() if len(gpus) > 1 else {}
    network = _efa(bus)
    for index, gpu in enumerate(gpus):
        link = f"NVLink to {links[index]} GPUs" if links.get(index) else None
        yield Device(
            kind="cuda",
            name=gpu.name,
            vendor="NVIDIA",
            index=index,
            total_mem_mb=gpu.total,
            available_mem_mb=gpu.free,
            topology=describe_topology(f"GPU {index} of {len(gpus)}", link, network),
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
            kind="tpu",
            name=chip.name,
            vendor="Google",
            index=index,
            total_mem_mb=_mebibytes(chip),
            available_mem_mb=None,
            topology=describe_topology(f"chip {index} of {len(chips)}", f"{chip.cores} cores", part, hosts, "ICI"),
            peers=len(chips),
            cores=chip.cores,
            devices=chip.devices,
            slice=part,
            links="ICI",
            bus=address,
        )


def _neurons(root: Path, bus: PciBus, environ: Mapping[str, str]) -> Iterator[Device]:
    found = sorted(int(e.name[6:]) for e in list_entries(root / "dev") if re.fullmatch(r"neuron\d+", e.name))
    chips = bus.neurons()
    network = _efa(bus)
    for position, index in enumerate(found):
        address, chip = chips[position] if position < len(chips) else (None, None)
        about = root / f"sys/devices/virtual/neuron_device/neuron{index}"
        cores = read_number(about / "core_count") or (chip.cores if chip else None)
        neighbours = re.findall(r"\d+", read_text(about / "connected_devices"))
        link = f"NeuronLink to {len(neighbours)} chips" if neighbours else None
        total = _mebibytes(chip)
        yield Device(
            kind="neuron",
            name=chip.name if chip else "AWS Neuron device",
            vendor="AWS",
            index=index,
            total_mem_mb=total,
            available_mem_mb=_neuron_free(about, total),
            topology=describe_topology(
                f"chip {index} of {len(found)}", f"{cores} cores" if cores else None, link, network
            ),
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
    """Return how many cores a chip shows; two physical ones may be one (Neuron documentation, "LNC", 2026)."""
    setting = environ.get("NEURON_LOGICAL_NC_CONFIG") or environ.get("NEURON_RT_VIRTUAL_CORE_SIZE")
    pairs = chip.devices < chip.cores
    return chip.cores // int(setting) if pairs and setting in ("1", "2") else chip.devices


def _neuron_free(about: Path, total: int | None) -> int | None:
    """Return free MiB by the driver's counters of each core (Neuron documentation, "Neuron Sysfs User Guide")."""
    used = [read_number(core / "stats/memory_usage/device_mem/present") for core in about.glob("neuron_core*")]
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
    """Parse `Name:  123 kB` lines; values in MiB."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", read_text(path), re.MULTILINE)
    return {name: int(value) // 1024 for name, value in found}
