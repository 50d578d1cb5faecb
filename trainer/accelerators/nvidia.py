"""Queries of nvidia-smi: which GPUs there are, how they are connected, and their current state."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_QUERY = "index,pci.bus_id,uuid,name,memory.total,memory.free"
_HEALTH = (
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "clocks.sm",
    "clocks.mem",
    "clocks_event_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
)
_OLD_NAMES: Mapping[str, str] = MappingProxyType({"clocks_event_reasons.active": "clocks_throttle_reasons.active"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as nvidia-smi lists it.

    Attributes:
        total: Memory in MiB.
        free: Memory in MiB.
    """

    name: str
    bus: str | None
    uuid: str | None
    total: int | None
    free: int | None


def query_gpus() -> list[Gpu]:
    """Return all GPUs in the order of their PCI addresses; none when the tool is absent or does not answer."""
    rows = _table(_run(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"), columns=6)
    found = [
        Gpu(name=name, bus=_address(bus), uuid=uuid, total=_number(total), free=_number(free))
        for _, bus, uuid, name, total, free in rows
    ]
    return sorted(found, key=lambda gpu: gpu.bus or "")


def query_links() -> dict[int, int]:
    """Return, for each GPU, to how many others NVLink connects it."""
    found: dict[int, int] = {}
    for line in _run("topo", "-m").splitlines():
        words = re.sub(r"\x1b\[[0-9;]*m", "", line).split()
        if words and re.fullmatch(r"GPU\d+", words[0]):
            found[int(words[0][3:])] = sum(bool(re.fullmatch(r"NV\d+", word)) for word in words[1:])
    return found


def query_health(device: str) -> dict[str, str | float]:
    """Return the state of one GPU by nvidia-smi's own names; empty without an answer.

    Args:
        device: Index, PCI address or UUID.
    """
    # The tool answers nothing at all when it does not know one of the names.
    for names in (_HEALTH, tuple(_OLD_NAMES.get(name, name) for name in _HEALTH)):
        rows = _table(
            _run(f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", f"--id={device}"), len(names)
        )
        if rows:
            return {name: _plain(value) for name, value in zip(names, rows[0], strict=True)}
    return {}


def list_gpus_without_tool(known: Sequence[tuple[str, str]], files: int) -> list[Gpu]:
    """Return the GPUs that /sys shows, or unnamed ones.

    Args:
        known: (PCI address, name) from /sys.
        files: Number of device files, which is the number of GPUs.
    """
    if len(known) == files:
        return [Gpu(name=name, bus=address, uuid=None, total=None, free=None) for address, name in known]
    return [Gpu(name="NVIDIA GPU", bus=None, uuid=None, total=None, free=None)] * files


def list_visible_indices(environ: Mapping[str, str], uuids: Sequence[str | None]) -> list[int]:
    """Return the indices, by PCI order, of the GPUs that CUDA shows to this process, in its order.

    CUDA stops at the first word that it does not know (CUDA C++ Programming Guide, environment variables).

    Args:
        environ: The environment variables.
        uuids: Of all GPUs.
    """
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in (part.strip() for part in setting.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            found.append(int(word))
            continue
        matches = [index for index, uuid in enumerate(uuids) if word and uuid and uuid.startswith(word)]
        if len(matches) != 1:
            break
        found.append(matches[0])
    return found


def _run(*words: str) -> str:
    try:
        return subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=20, check=True, errors="replace"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _table(answer: str, columns: int) -> list[list[str]]:
    rows = [[part.strip() for part in line.split(",")] for line in answer.splitlines()]
    return [row for row in rows if len(row) == columns]


def _address(text: str) -> str:
    """Shorten an address: nvidia-smi writes the domain with eight digits (00000000:53:00.0), /sys with four."""
    return text.lower()[4:] if re.match(r"[0-9A-Fa-f]{8}:", text) else text.lower()


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _plain(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
