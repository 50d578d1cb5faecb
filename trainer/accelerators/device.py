"""What is known of a device that nobody has opened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["cpu", "cuda", "tpu", "neuron"]


@dataclass(frozen=True, slots=True)
class Device:
    """One processor, GPU or chip. Memory in MiB; None is what cannot be known without opening the device.

    index: by PCI order. topology: all below in words. peers: devices of this kind on the machine. cores: physical.
    devices: as how many a framework sees it (both cores of a TPU7x, two cores of a Trainium1). slice: such as
    "v5litepod-16 4x4". links: fast network between devices. network: between machines. bus: PCI address.
    """

    kind: Kind
    name: str
    vendor: str
    index: int
    total_mem_mb: int | None
    available_mem_mb: int | None
    topology: str | None
    peers: int = 1
    cores: int | None = None
    devices: int = 1
    slice: str | None = None
    links: str | None = None
    network: str | None = None
    bus: str | None = None
    uuid: str | None = None

    def as_json(self) -> dict[str, str | int | None]:
        return asdict(self)


def topology(*parts: str | None) -> str:
    """What is known, in words."""
    return ", ".join(part for part in parts if part)
