"""Machines that a task can request: a TPU slice, an EC2 or Compute Engine instance, own devices, local hosts.

All share the fields of `Machine`, so that other code needs no case distinction: only a cloud's own driver, and the
tables and loaders of this package, know the classes that it rents out.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One unit that is created and ended as a whole.

    Attributes:
        hosts: Machines to log in to.
        chips_per_host: Accelerator chips that each host drives; 0 for plain CPUs.
        cores_per_chip: Physical cores of one chip.
        hbm_gib_per_chip: Memory of one chip; 0 without an accelerator.
        peak_bf16_tflops_per_chip: Peak of one chip; 0 without an accelerator.
        backends: What drives it, the usual one first.
        provider: The driver that rents it out; "" for what is not rented.
        is_instance_type: Whether its name is an instance type.
        node_is_slice: Whether each node of a task is a separate slice, whose chips have their own network.
        chip: The name of its accelerator; "" without one, or where it is not known.
        topology: Chips along each side, "4x4" or "2x2x4"; "" where none is published.
        device: How the trainer names its devices: "tpu", "cuda", "neuron" or "cpu".
        devices_per_chip: What a program sees of one chip.
        without_torch_neuron: Whether TorchNeuron does not serve its chip.
        network_gbps: Network of one host; 0 where it is not known.
        vcpus: Of one host; 0 where they are not known.
        ram_gib: Memory of one host; 0 where it is not known.
        regions: Where it is offered; () when not recorded.
        listed: False for one that no table has, of which only the name is known.
        normalised_from: The requested name when it was another spelling, else None; it takes no part in comparison.
    """

    name: str
    hosts: int
    chips_per_host: int
    cores_per_chip: int
    hbm_gib_per_chip: float
    peak_bf16_tflops_per_chip: float
    backends: tuple[str, ...]
    provider: str = ""
    is_instance_type: bool = False
    node_is_slice: bool = False
    chip: str = ""
    topology: str = ""
    device: str = "cpu"
    devices_per_chip: int = 1
    without_torch_neuron: bool = False
    network_gbps: float = 0
    vcpus: int = 0
    ram_gib: float = 0
    regions: tuple[str, ...] = ()
    listed: bool = True
    normalised_from: str | None = field(default=None, compare=False)

    @property
    def chips(self) -> int:
        return self.hosts * self.chips_per_host

    @property
    def cores(self) -> int:
        return self.chips * self.cores_per_chip

    @property
    def backend(self) -> str:
        """Return what usually drives it: "jax", "cuda", "neuron" or "cpu"."""
        return self.backends[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuSlice(Machine):
    """A slice of one TPU generation; `name` is Google's accelerator type, such as v5litepod-16.

    Attributes:
        size: The number in the name; it counts cores or chips, by generation.
        runtime_version: Of the Cloud TPU API; "" where there is none.
        machine_type: Of Compute Engine; "" where there is none.
        zones: Where Google listed it on the day `zones_as_of`.
        in_tpu_api: False for TPU7x, which only Compute Engine and GKE know (Cloud TPU documentation, 2026).
    """

    generation: str
    size: int
    runtime_version: str
    machine_type: str
    zones: tuple[str, ...]
    in_tpu_api: bool
    zones_as_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Instance(Machine):
    """An EC2 instance type, such as p5.48xlarge; see data/ec2.toml.

    Attributes:
        logical_cores_per_chip: What a program sees by default.
        efa_max: EFA interfaces that it takes.
        efa_on_card0: Whether network card 0 carries an EFA interface.
        on_demand: Whether an on-demand price exists.
        all_reduce_gbs: Published bus bandwidth in GB/s of an all-reduce of 64 MiB between two of them; 0 for none.
    """

    logical_cores_per_chip: int
    local_nvme: str
    network_cards: int
    efa_max: int
    efa_on_card0: bool
    enis_per_card: int
    on_demand: bool
    capacity_block: bool
    all_reduce_gbs: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeType(Machine):
    """A machine type of Compute Engine without TPUs, such as e2-standard-4 or g2-standard-4; see data/compute.toml.

    Attributes:
        family: The machine series, such as "g2".
        local_ssd: Whether Compute Engine attaches local disks by itself; a stop loses what they hold.
        zones: Where it is offered.
    """

    family: str
    local_ssd: bool
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDevices(Machine):
    """Accelerators in one of the user's own machines, such as H100:4; any count is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuMachine(Machine):
    """A host without accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHosts(Machine):
    """Hosts on this computer: `local:4`, or the shape of a real machine, `local:v5litepod-16`.

    Attributes:
        stands_for: The real machine whose shape it has; its chips are then simulated by the CPU.
    """

    stands_for: Machine | None = None
