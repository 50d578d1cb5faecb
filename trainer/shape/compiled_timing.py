"""Range of the time of a step whose program was compiled ahead of time, from what the compiler states of it.

The time of the program is libtpu's own estimate of its operations. It counts products, vector work and memory, and
nothing of collectives and Pallas kernels. The kernels are those of attention: their time is that of its FLOPs at an
assumed share of the peak. Collectives take the published rate of the links, of which a ring reaches a part.

Low: collectives overlap with the program completely. Typical: half of them do. High: none do. Low is also no less than
the roofline: products at the peak, and the state read and written once at the memory's published rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import Config
from trainer.shape.hardware import Hardware
from trainer.shape.lora import count_run_flops_per_token
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic, time_traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTiming:
    """Seconds of a step.

    Attributes:
        low: Shortest; likewise `typical` and `high`.
        program: Of the operations by libtpu's estimate, without kernels and collectives.
        kernels: Of the kernels, typical.
        network: Of the collectives alone.
        source: For people: what the range is calibrated on.
    """

    low: float
    typical: float
    high: float
    program: float
    kernels: float
    network: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is known of a compiled step; everything is of one device.

    Attributes:
        cycles: By libtpu's estimate.
        kernels: Number of calls of Pallas kernels.
        product_flops: Of the matrix products outside of kernels.
        state_bytes: What the step takes and overwrites.
        traffic: What it sends along each axis of the mesh.
    """

    cycles: float
    kernels: int
    product_flops: float
    state_bytes: float
    traffic: Traffic


# Margins of libtpu's estimate. Published runs took 0.91 to 0.99 of `typical` (docs/performance.md), so that is not
# corrected. The trainer's own steps were not measured on a TPU, so the margins are wider than that, mostly upward.
_LEAST, _MOST = 0.8, 1.4
# Share of the peak that attention kernels reach: assumed, as nothing is published for the splash kernel in training.
_KERNEL_LEAST, _KERNEL_TYPICAL, _KERNEL_MOST = 0.25, 0.5, 0.7
# Seconds of a step around the program, least, typical and most: those of trainer/shape/timing.py; a guess.
_OVERHEAD_LEAST, _OVERHEAD_TYPICAL, _OVERHEAD_MOST = 0.001, 0.003, 0.01
_AGAIN = 4 / 3  # attention of one more forward pass
SOURCE = "libtpu's estimate of the compiled step, calibrated on published MaxText runs (2026-11-27)"


def estimate_compiled_timing(config: Config, mesh: Mesh, hardware: Hardware, program: Program) -> CompiledTiming | None:
    """Return the range of the time of a step; None where the chip or the rates of its links are not known.

    Args:
        config: With recomputation resolved.
        mesh: The mesh of the program.
        hardware: The machines for which it was compiled.
        program: What is known of it.
    """
    chip = next((one for one in GENERATIONS if one.name == hardware.chip), None)
    network = time_traffic(program.traffic, mesh, hardware)
    if chip is None or network is None:
        return None
    peak = chip.peak_flops / chip.devices
    attention = _count_attention_flops(config) / mesh.devices if program.kernels else 0.0
    seconds = program.cycles / chip.estimated_cycles
    state = 2 * program.state_bytes / (chip.memory_rate / chip.devices)
    roofline = max((program.product_flops + attention) / peak, state, network)
    return CompiledTiming(
        low=max(_LEAST * (seconds + attention / (peak * _KERNEL_MOST)), roofline) + _OVERHEAD_LEAST,
        typical=max(seconds + attention / (peak * _KERNEL_TYPICAL) + network / 2, roofline) + _OVERHEAD_TYPICAL,
        high=max(_MOST * (seconds + attention / (peak * _KERNEL_LEAST)) + network, roofline) + _OVERHEAD_MOST,
        program=seconds,
        kernels=attention / (peak * _KERNEL_TYPICAL),
        network=network,
        source=SOURCE,
    )


def _count_attention_flops(config: Config) -> float:
    """Return the FLOPs of attention's products in a step, over all devices."""
    per_token = count_run_flops_per_token(config.model, config.lora, config.seq_len)
    per_token -= count_run_flops_per_token(config.model, config.lora, 0)
    return per_token * config.batch * config.seq_len * (_AGAIN if config.recomputed == "full" else 1.0)


def sum_traffic(collectives: Iterable[tuple[str, str, float]], mesh: Mesh) -> Traffic:
    """Return what a device sends along each axis of the mesh, by rings.

    Args:
        collectives: Kind, axes joined by `+`, and bytes of the operands of all calls. Those over several axes count
            along the outermost, whose neighbours are farthest apart. Only the context axis sends permutes.
        mesh: The mesh.
    """
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    sent = dict.fromkeys((*sizes, "context"), 0.0)
    for kind, axes, size in collectives:
        named = axes.split("+")
        members = 1
        for axis in named:
            members *= sizes[axis]
        outermost = "context" if kind == "collective-permute" else next(axis for axis in sizes if axis in named)
        sent[outermost] += size * _count_sent(kind, members)
    return Traffic(data=sent["data"], fsdp=sent["fsdp"], tensor=sent["tensor"], context=sent["context"])


def _count_sent(kind: str, members: int) -> float:
    """Return what a member sends, by the size of its operand: a ring passes each part on to all others."""
    if kind == "all-gather":
        return members - 1.0
    if kind == "collective-permute":
        return 1.0
    return (2.0 if kind == "all-reduce" else 1.0) * (members - 1) / members
