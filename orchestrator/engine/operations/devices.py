"""Listing the accelerators of every host with `python -m trainer devices`; it uses no device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

COMMAND = """for python in "${ORCH_PYTHON:-}" "$HOME/.orch/venv/bin/python" python3.13 python3.12 python3.11 python3; do
  [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  PYTHONPATH="$ORCH_HOST_DIR/devices" exec "$python" -P -m trainer devices
done
echo 'no Python 3.11 or later is here'
exit 1
"""
"""Shell command; it needs the trainer in the folder of the rank (DEVICE_PROBE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices that are alike, on hosts that are alike.

    Attributes:
        ranks: The hosts.
        kind: The kind of device, e.g. "cuda".
        name: The vendor's name.
        count: Devices per host.
        memory: MiB of one device, or None when unknown.
        free: The least free MiB of one device, or None when unknown.
        topology: The slice's topology, or "".
    """

    ranks: tuple[int, ...]
    kind: str
    name: str
    count: int
    memory: int | None
    free: int | None
    topology: str


def parse_devices(output: bytes) -> tuple[Mapping[str, Any], ...] | None:
    """Return the devices in one host's output, ignoring other lines; None when there are none to read."""
    lines = output.decode("utf-8", "replace").splitlines()
    begins = [at for at, line in enumerate(lines) if line.rstrip() in ("[", "[]")]
    for at in begins:
        try:
            value, _ = json.JSONDecoder().raw_decode("\n".join(lines[at:]))
        except ValueError:
            continue
        if isinstance(value, list) and all(isinstance(item, dict) for item in cast("list[object]", value)):
            return tuple(cast("list[Mapping[str, Any]]", value))
    return None


def group_devices(answers: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[DeviceGroup, ...]:
    """Return one row for devices that are alike on hosts that have equally many of them."""
    rows: dict[tuple[str, str, int, int | None, str], list[tuple[int, int | None]]] = {}
    for rank, devices in sorted(answers.items()):
        alike: dict[tuple[str, str, int | None, str], list[Mapping[str, Any]]] = {}
        for device in devices:
            key = (str(device["kind"]), str(device["name"]), device.get("total_mem_mb"), _topology(device))
            alike.setdefault(key, []).append(device)
        for (kind, name, memory, topology), same in alike.items():
            known = [one["available_mem_mb"] for one in same if one.get("available_mem_mb") is not None]
            found = (rank, min(known, default=None))
            rows.setdefault((kind, name, len(same), memory, topology), []).append(found)
    return tuple(_row(key, hosts) for key, hosts in rows.items())


def _row(key: tuple[str, str, int, int | None, str], hosts: Sequence[tuple[int, int | None]]) -> DeviceGroup:
    kind, name, count, memory, topology = key
    free = min((one for _, one in hosts if one is not None), default=None)
    return DeviceGroup(
        ranks=tuple(rank for rank, _ in hosts),
        kind=kind,
        name=name,
        count=count,
        memory=memory,
        free=free,
        topology=topology,
    )


def _topology(device: Mapping[str, Any]) -> str:
    return str(device.get("topology") or "")
