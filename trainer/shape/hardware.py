"""The machines that advice is given for, in numbers only: who asks knows them, from a catalogue or from the devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

from trainer.errors import ConfigError

Kind: TypeAlias = Literal["tpu", "cuda", "neuron", "cpu"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a run is given.

    name: as people call it, v5litepod-16. kind: family of the device. chip: generation, such as v5e or H100; "" when
    there is none. devices: what a program sees, over all machines; a chip may show as several. hosts: machines.
    slices: groups of devices that only an ordinary network joins; each machine is one where that is so.
    memory_bytes, peak_flops: of one device, in bf16 and dense; None when not known. price: US dollars an hour for all;
    None when not known. network: bytes a second that leave one host. topology: of a TPU slice, 4x4.
    """

    name: str
    kind: Kind
    devices: int
    chip: str = ""
    hosts: int = 1
    slices: int = 1
    memory_bytes: int | None = None
    peak_flops: float | None = None
    price: float | None = None
    network: float | None = None
    topology: str = ""

    @property
    def devices_per_host(self) -> int:
        return max(1, self.devices // self.hosts)

    @property
    def fast(self) -> int:
        """Devices that are joined by a fast network: of a slice (ICI), or of a host (NVLink, NeuronLink)."""
        return max(1, self.devices // self.slices) if self.kind == "tpu" else self.devices_per_host


def read_hardware(text: str) -> tuple[Hardware, ...]:
    """From JSON: one object or a list, with the fields' names. Raises ConfigError."""
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--hardware: no JSON: {error}") from None
    entries: list[Any] = []
    entries += found if isinstance(found, list) else [found]
    if not entries:
        raise ConfigError("--hardware: the list is empty")
    return tuple(_entry(entry) for entry in entries)


def _entry(entry: Any) -> Hardware:
    if not isinstance(entry, dict):
        raise ConfigError(f"--hardware: {entry!r} is no object with name, kind and devices")
    values = cast("Mapping[str, Any]", entry)
    known = [field.name for field in fields(Hardware)]
    for key in values:
        if key not in known:
            raise ConfigError(f"--hardware: unknown field {key!r}; there are {', '.join(known)}")
    for key in ("name", "kind", "devices"):
        if key not in values:
            raise ConfigError(f"--hardware: the field {key!r} is missing")
    if values["kind"] not in get_args(Kind):
        raise ConfigError(f"--hardware: kind={values['kind']}: not one of {', '.join(get_args(Kind))}")
    for key in ("devices", "hosts", "slices"):
        if not isinstance(values.get(key, 1), int) or values.get(key, 1) < 1:
            raise ConfigError(f"--hardware: {key}={values[key]}: not a whole number from 1")
    for key in ("memory_bytes", "peak_flops", "price", "network"):
        if not isinstance(values.get(key), int | float | None):
            raise ConfigError(f"--hardware: {key}={values[key]!r}: not a number")
    return Hardware(**values)
