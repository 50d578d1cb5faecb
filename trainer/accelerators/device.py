"""The description of a device, without opening it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["cpu", "cuda", "tpu", "neuron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One processor, GPU or chip; None is what cannot be known without opening the device.

    Attributes:
        kind: cpu, cuda, tpu or neuron.
        name: As the vendor's tool prints it.
        vendor: Who made it.
        index: By PCI order.
        total_mem_mb: MiB.
        available_mem_mb: MiB.
        topology: All below as one text.
        peers: Devices of this kind on the machine.
        cores: Physical cores.
        devices: How many devices a framework sees in it (both cores of a TPU7x, two cores of a Trainium1).
        slice: Such as "v5litepod-16 4x4".
        links: Fast network between devices.
        network: Network between machines.
        bus: PCI address.
        uuid: Of a GPU.
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


def describe_topology(*parts: str | None) -> str:
    """Join what is known to one text."""
    return ", ".join(part for part in parts if part)
