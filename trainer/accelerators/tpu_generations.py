"""One row for each TPU generation; the tables of devices, peaks, memory and timing are derived from it.

A new generation is one row here and one in orchestrator/catalog/data/tpu.toml, which tests compare.
"""

from __future__ import annotations

from dataclasses import dataclass

_TPU = "torch_tpu 0.2.0, utils/hardware.py, and torchtitan, both of which quote Google's pages of each generation"
_OLD_TPU = "Jouppi et al., A Domain Specific Supercomputer for Training (2020); TPU v3: also its Cloud TPU page"


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuGeneration:
    """The published facts of one generation.

    Attributes:
        name: As in the catalogue: v5e, tpu7x.
        device: Name of the device in the trainer's tables and output.
        jax_kinds: `device_kind` in the topology descriptions of libtpu 0.0.42 and later.
        pci_id: PCI device id (jax 0.10.2, jax/_src/hardware_utils.py; torch_xla 2.9, tpu.py; from v4 on also torch_tpu
            0.2.0; all read November 2026); "" where another generation has the same.
        memory_gib: Of one chip.
        usable_gib: Of one device, as libtpu 0.0.42 reports it when a program is too large; None where not reported.
        cores: Physical cores of one chip (Cloud TPU documentation, system architecture, 2025).
        devices: Devices of one chip: both cores of a v4 or v5p work as one, those of the others as two.
        host_chips: Most chips of one machine (Cloud TPU documentation, VM types of each generation, 2025).
        peak_flops: FLOP/s of one chip in bf16, from `peak_source`.
        utilisation: Share of the peak that published runs reach, lowest and highest, from `utilisation_source`.
        link_bytes: Bytes per second that one device sends to its neighbours: ICI bandwidth of a chip over all links,
            half of it outward (Google's system architecture pages).
        memory_rate: Bytes per second between one chip and its memory. v2: Jouppi et al. (2020); the others: Google's
            page of each generation (read November 2026).
        estimated_cycles: Of libtpu's cost model, in a second of one device: what it estimates for a product of
            8,192 x 8,192 x 8,192 in bf16, which counts as done at the peak. Printed by libtpu 0.0.43.2, 2026-11-27
            (scripts/bench/tpu_cycles.py).
    """

    name: str
    device: str
    jax_kinds: tuple[str, ...]
    pci_id: str
    memory_gib: int
    usable_gib: float | None
    cores: int
    devices: int
    host_chips: int
    peak_flops: float
    peak_source: str
    utilisation: tuple[float, float]
    utilisation_source: str
    link_bytes: float
    memory_rate: float
    estimated_cycles: float


GENERATIONS: tuple[TpuGeneration, ...] = (
    TpuGeneration(
        name="v2",
        device="TPU v2",
        jax_kinds=("TPU v2",),
        pci_id="",
        memory_gib=16,
        usable_gib=None,
        cores=2,
        devices=2,
        host_chips=4,
        peak_flops=46e12,
        peak_source=_OLD_TPU,
        utilisation=(0.30, 0.54),
        utilisation_source="levanter's published v3 runs, 42 to 54 %",
        link_bytes=62e9,
        memory_rate=700e9,
        estimated_cycles=0.714e9,
    ),
    TpuGeneration(
        name="v3",
        device="TPU v3",
        jax_kinds=("TPU v3",),
        pci_id="",
        memory_gib=32,
        usable_gib=None,
        cores=2,
        devices=2,
        host_chips=4,
        peak_flops=123e12,
        peak_source=_OLD_TPU,
        utilisation=(0.30, 0.54),
        utilisation_source="levanter's published v3 runs, 42 to 54 %",
        link_bytes=80e9,
        memory_rate=900e9,
        estimated_cycles=0.969e9,
    ),
    TpuGeneration(
        name="v4",
        device="TPU v4",
        jax_kinds=("TPU v4",),
        pci_id="0x005e",
        memory_gib=32,
        usable_gib=30.75,
        cores=2,
        devices=1,
        host_chips=4,
        peak_flops=275e12,
        peak_source=_TPU,
        utilisation=(0.39, 0.57),
        utilisation_source="MaxText's and torch_xla's published v4 runs, 39 to 57 %",
        link_bytes=150e9,
        memory_rate=1200e9,
        estimated_cycles=1.131e9,
    ),
    TpuGeneration(
        name="v5e",
        device="TPU v5e",
        jax_kinds=("TPU v5 lite",),
        pci_id="0x0063",
        memory_gib=16,
        usable_gib=15.75,
        cores=1,
        devices=1,
        host_chips=8,
        peak_flops=197e12,
        peak_source=_TPU,
        utilisation=(0.40, 0.61),
        utilisation_source="MaxText's published v5e runs, 46 to 67 % with full attention counted",
        link_bytes=100e9,
        memory_rate=819e9,
        estimated_cycles=1.712e9,
    ),
    TpuGeneration(
        name="v5p",
        device="TPU v5p",
        jax_kinds=("TPU v5", "TPU v5p"),
        pci_id="0x0062",
        memory_gib=95,
        usable_gib=95.74,
        cores=2,
        devices=1,
        host_chips=4,
        peak_flops=459e12,
        peak_source=_TPU,
        utilisation=(0.40, 0.65),
        utilisation_source="MaxText's published v5p runs, 65 to 72 % with full attention counted",
        link_bytes=300e9,
        memory_rate=2765e9,
        estimated_cycles=1.942e9,
    ),
    TpuGeneration(
        name="v6e",
        device="TPU v6e",
        jax_kinds=("TPU v6 lite",),
        pci_id="0x006f",
        memory_gib=32,
        usable_gib=31.25,
        cores=1,
        devices=1,
        host_chips=8,
        peak_flops=918e12,
        peak_source=_TPU,
        utilisation=(0.35, 0.50),
        utilisation_source="MaxText's published v6e runs, 35 to 50 %",
        link_bytes=200e9,
        memory_rate=1640e9,
        estimated_cycles=2.486e9,
    ),
    TpuGeneration(
        name="tpu7x",
        device="TPU v7",
        jax_kinds=("TPU7x", "TPU v7x"),
        pci_id="0x0076",
        memory_gib=192,
        usable_gib=94.75,
        cores=2,
        devices=2,
        host_chips=4,
        peak_flops=2307e12,
        peak_source=_TPU,
        utilisation=(0.35, 0.55),
        utilisation_source="Google's published TPU7x runs of dense models, 39 to 55 %",
        link_bytes=300e9,
        memory_rate=7380e9,
        estimated_cycles=2.732e9,
    ),
)
