"""`python -m trainer devices` on every host: the command, and what the hosts answered. It touches no device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

COMMAND = """for python in "${ORCH_PYTHON:-}" "$HOME/.orch/venv/bin/python" python3.13 python3.12 python3.11 python3; do
  [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  PYTHONPATH="$HOME/.orch/devices" exec "$python" -m trainer devices
done
echo 'no Python 3.11 or later is here'
exit 1
"""
"""Needs the trainer in ~/.orch/devices (wish.LOOKER)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Devices that are alike, on hosts that are. memory, free: MiB of one device, the least of all; None: not known."""

    ranks: tuple[int, ...]
    kind: str
    name: str
    count: int
    memory: int | None
    free: int | None
    topology: str


def read(output: bytes) -> tuple[Mapping[str, Any], ...] | None:
    """The devices in one host's output, whatever stands around them; None when there are none to read."""
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


def table(answers: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[Found, ...]:
    """One row for devices that are alike on hosts that have as many of them."""
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


def _row(key: tuple[str, str, int, int | None, str], hosts: Sequence[tuple[int, int | None]]) -> Found:
    kind, name, count, memory, topology = key
    free = min((one for _, one in hosts if one is not None), default=None)
    return Found(tuple(rank for rank, _ in hosts), kind, name, count, memory, free, topology)


def _topology(device: Mapping[str, Any]) -> str:
    return str(device.get("topology") or "")
