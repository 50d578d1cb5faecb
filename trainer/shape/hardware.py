"""Description of the machines that advice is given for, in numbers that the caller provides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

from trainer.accelerators.chips import CHIPS
from trainer.errors import ConfigError

Kind: TypeAlias = Literal["tpu", "cuda", "neuron", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machines of a run.

    Attributes:
        name: As the vendor calls it, such as v5litepod-16.
        kind: Family of the device.
        devices: Number of devices that a program sees, over all machines; a chip may appear as several.
        chip: Generation, such as v5e or H100; empty when there is none.
        hosts: Number of machines.
        slices: Groups of devices that only an ordinary network joins; without a fast network between machines, each
            machine is one.
        memory_bytes: Of one device; None when unknown.
        peak_flops: Dense bf16 FLOP/s of one device; None when unknown.
        has_bf16: Whether it multiplies in bf16; False for GPUs before Ampere.
        price: US dollars per hour for all machines; None when unknown.
        network: Bytes per second that leave one host; None when unknown.
        topology: Of a TPU slice, such as 4x4.
    """

    name: str
    kind: Kind
    devices: int
    chip: str = ""
    hosts: int = 1
    slices: int = 1
    memory_bytes: int | None = None
    peak_flops: float | None = None
    has_bf16: bool = True
    price: float | None = None
    network: float | None = None
    topology: str = ""

    @property
    def devices_per_host(self) -> int:
        return max(1, self.devices // self.hosts)

    @property
    def fast_devices(self) -> int:
        """Number of devices on one fast network: of a slice (ICI), or of a host (NVLink, NeuronLink)."""
        return max(1, self.devices // self.slices) if self.kind == "tpu" else self.devices_per_host


def parse_hardware(text: str) -> tuple[Hardware, ...]:
    """Parse JSON, one object or a list, whose keys are the attributes of Hardware.

    Without peak or memory, those of the chip are taken where it is known by its name.

    Raises:
        ConfigError: The text is malformed.
    """
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--hardware: not JSON: {error}") from None
    entries: list[Any] = []
    entries += found if isinstance(found, list) else [found]
    if not entries:
        raise ConfigError("--hardware: the list is empty")
    return tuple(_entry(entry) for entry in entries)


def _entry(entry: Any) -> Hardware:
    if not isinstance(entry, dict):
        raise ConfigError(f"--hardware: {entry!r} is not an object with name, kind and devices")
    values = cast("Mapping[str, Any]", entry)
    known = [field.name for field in fields(Hardware)]
    for key in values:
        if key not in known:
            raise ConfigError(f"--hardware: unknown field {key!r}; known fields are {', '.join(known)}")
    for key in ("name", "kind", "devices"):
        if key not in values:
            raise ConfigError(f"--hardware: the field {key!r} is missing")
    if values["kind"] not in get_args(Kind):
        raise ConfigError(f"--hardware: kind={values['kind']}: not one of {', '.join(get_args(Kind))}")
    for key in ("devices", "hosts", "slices"):
        if not isinstance(values.get(key, 1), int) or values.get(key, 1) < 1:
            raise ConfigError(f"--hardware: {key}={values[key]}: not a positive integer")
    for key in ("memory_bytes", "peak_flops", "price", "network"):
        if not isinstance(values.get(key), int | float | None):
            raise ConfigError(f"--hardware: {key}={values[key]!r}: not a number")
    return Hardware(**{**_find_published(values), **values})


def _find_published(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return peak and memory of a chip that is known by its name; what the caller gives goes before them."""
    found = CHIPS.get(str(values.get("chip"))) if values["kind"] in ("cuda", "tpu") else None
    return {} if found is None else {"peak_flops": found.peak_flops, "memory_bytes": found.memory_bytes}
