"""`python -m trainer devices`: lists this machine's devices without opening any."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from trainer.accelerators.device import Device
from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.registry import choose_engine
from trainer.config import Config
from trainer.errors import ConfigError, Exit, TrainerError

SUMMARY = "the devices of this machine, as JSON; --table: for people"

_COLUMNS = ("DEVICE", "NAME", "MEMORY", "FREE", "TOPOLOGY")


def run(words: Sequence[str]) -> int:
    """Print the devices as JSON, or as a table.

    Raises:
        ConfigError: A word is unknown.
    """
    unknown = [word for word in words if word not in ("--table", "--json")]
    if unknown:
        raise ConfigError(f"devices: {unknown[0]!r} is not --table or --json")
    found = discover_devices()
    if "--table" in words:
        sys.stdout.write("\n".join((*_table(found), _choice(found))) + "\n")
    else:
        sys.stdout.write(json.dumps([device.as_json() for device in found], indent=2) + "\n")
    return Exit.OK


def _table(found: Sequence[Device]) -> Iterator[str]:
    """Yield the lines of the table; devices that differ in their number alone share one line."""
    lines: list[tuple[str, ...]] = [_COLUMNS]
    for _, group in groupby(found, key=lambda device: (device.kind, device.name)):
        devices = list(group)
        first, last = devices[0], devices[-1]
        indices = f"{first.index}" if first is last else f"{first.index}-{last.index}"
        free = [device.available_mem_mb for device in devices if device.available_mem_mb is not None]
        lines.append(
            (
                f"{first.kind} {indices}",
                first.name,
                _memory(first.total_mem_mb),
                _memory(min(free) if free else None),
                first.topology or "",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _choice(found: Sequence[Device]) -> str:
    try:
        engine, device = choose_engine(Config(), found)
    except TrainerError as error:
        return f"engine=auto device=auto: {error}"
    return f"engine=auto device=auto: {engine} on {device}"


def _memory(mebibytes: int | None) -> str:
    return "?" if mebibytes is None else f"{mebibytes / 1024:.1f} GiB"
