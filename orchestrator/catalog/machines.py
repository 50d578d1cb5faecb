"""What can be asked for: a TPU slice, an EC2 instance, the user's own devices, plain CPUs, local stand-ins.

All share the fields of `Machine`, so that most code needs no case distinction; the rest matches on the class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One unit that is created and ended as a whole.

    hosts: machines to log in to. chips_per_host: accelerator chips each of them drives, 0 for plain CPUs.
    cores_per_chip: physical cores of one chip. hbm_gib_per_chip and peak_bf16_tflops_per_chip: 0 when there is no
    accelerator. backends: what drives it, the usual one first. normalised_from: the name that was asked for, when it
    was another spelling, None otherwise; two spellings of one thing are equal.
    """

    name: str
    hosts: int
    chips_per_host: int
    cores_per_chip: int
    hbm_gib_per_chip: float
    peak_bf16_tflops_per_chip: float
    backends: tuple[str, ...]
    normalised_from: str | None = field(default=None, compare=False)

    @property
    def chips(self) -> int:
        return self.hosts * self.chips_per_host

    @property
    def cores(self) -> int:
        return self.chips * self.cores_per_chip

    @property
    def backend(self) -> str:
        """What usually drives it: "jax", "cuda", "neuron" or "cpu"."""
        return self.backends[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuSlice(Machine):
    """A slice of one TPU generation. `name` is Google's accelerator type, e.g. v5litepod-16.

    size: the number in the name; it counts cores or chips, by generation. topology: chips along each side, "4x4" or
    "2x2x4", "" where none is published. runtime_version, machine_type: "" where there is none. in_tpu_api: False for
    TPU7x, which only Compute Engine and GKE know (Cloud TPU documentation, 2026).
    """

    generation: str
    size: int
    topology: str
    runtime_version: str
    machine_type: str
    zones: tuple[str, ...]
    in_tpu_api: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Instance(Machine):
    """An EC2 instance type, e.g. p5.48xlarge. See data/ec2.toml.

    chip: its accelerator, e.g. H100. logical_cores_per_chip: what a program sees by default. network_gbps: total.
    efa_max: EFA interfaces it takes; efa_on_card0: whether network card 0 carries one. on_demand: whether an
    on-demand price exists. regions: where it is offered, () when not recorded. listed: False for a type that is not in
    the table, of which only the name is known.
    """

    chip: str
    logical_cores_per_chip: int
    vcpus: int
    ram_gib: int
    local_nvme: str
    network_gbps: float
    network_cards: int
    efa_max: int
    efa_on_card0: bool
    enis_per_card: int
    on_demand: bool
    capacity_block: bool
    regions: tuple[str, ...]
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDevices(Machine):
    """Accelerators in one machine of the user's own, e.g. H100:4: any count is possible."""

    chip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMachine(Machine):
    """A host without accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHosts(Machine):
    """Hosts on this computer: `local:4`, or the shape of something real, `local:v5litepod-16`.

    stands_for: the real thing whose shape it has; chips_per_host are then pretended. Runs on the CPU.
    """

    stands_for: TpuSlice | Ec2Instance | None = None


Accelerator: TypeAlias = TpuSlice | Ec2Instance | OwnDevices | CpuMachine | LocalHosts
