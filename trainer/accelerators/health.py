"""The current state of devices as their drivers and tools report it, without computing on them."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trainer.accelerators.pci import list_entries, read_number

ALLOCATOR_COUNTERS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "num_alloc_retries",
    "num_ooms",
)
_MONITOR_SECONDS = 8.0
_ROOT = Path("/")


def read_neuron_driver(index: int, root: Path = _ROOT) -> Mapping[str, Any]:
    """Return the bytes in use on each core of a chip, from the driver's files."""
    folder = root / f"sys/devices/virtual/neuron_device/neuron{index}"
    cores = [entry for entry in list_entries(folder) if entry.name.startswith("neuron_core")]
    memory = "stats/memory_usage/device_mem"
    return {
        core.name: {what: read_number(core / memory / what) for what in ("present", "peak")}
        for core in sorted(cores, key=lambda entry: (len(entry.name), entry.name))
    }


def read_neuron_monitor() -> Mapping[str, Any]:
    """Return the first report of neuron-monitor, which reports until it is ended; empty when it does not answer."""
    try:
        tool = subprocess.Popen(["neuron-monitor"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return {}
    try:
        report: Any = json.loads(_first_line(tool, time.monotonic() + _MONITOR_SECONDS))
    except ValueError:
        return {}
    else:
        return cast("Mapping[str, Any]", report) if isinstance(report, dict) else {}
    finally:
        tool.kill()
        tool.communicate()


def read_load_average() -> list[float]:
    """Return the mean number of processes that ran or waited in the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _first_line(tool: subprocess.Popen[bytes], deadline: float) -> bytes:
    if tool.stdout is None:
        return b""
    descriptor = tool.stdout.fileno()
    found = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while b"\n" not in found:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return b""
            part = os.read(descriptor, 65536)
            if not part:
                return found
            found += part
    return found.partition(b"\n")[0]
