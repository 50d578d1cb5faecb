"""Compilation of the step for TPUs that are not attached: exact memory and collectives, or that it does not fit.

The function and the shardings are those of a real run; libtpu compiles from a description of the slice. It needs no
TPU, only JAX with libtpu (scripts/tpu-compiler).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trainer.accelerators.tpu_compiler_options import VARIABLE
from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.accelerators.usable_memory import find_usable_bytes
from trainer.config import Config
from trainer.errors import ConfigError, DeviceError
from trainer.jax_engine.device_names import get_device_name
from trainer.jax_engine.grid import arrange_devices, detect_topology
from trainer.jax_engine.library import jax, topologies
from trainer.jax_engine.program_cost import ProgramCost, list_inner_programs, list_values, measure_program
from trainer.jax_engine.step import Step, build_step
from trainer.shape.compiled_timing import CompiledTiming, Program, estimate_compiled_timing, sum_traffic
from trainer.shape.hardware import Hardware
from trainer.shape.lora import count_run_flops_per_token
from trainer.shape.memory import resolve_remat
from trainer.shape.mesh import Mesh, resolve_mesh
from trainer.shape.pipeline import refuse_pipeline
from trainer.shape.step_identity import identify_step

_HOST_CHIPS: Mapping[str, int] = MappingProxyType({each.name: each.host_chips for each in GENERATIONS})
_COLLECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "psum": "all-reduce",
        "psum_invariant": "all-reduce",
        "pmax": "all-reduce",
        "all_gather": "all-gather",
        "reduce_scatter": "reduce-scatter",
        "all_to_all": "all-to-all",
        "ppermute": "collective-permute",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The collectives of one kind and axis, of one device in one step, as the program requests them.

    The compiler may combine some.

    Attributes:
        kind: Such as all-reduce.
        axes: Axes of the mesh, joined by `+`.
        count: Number of calls.
        bytes: Size of the operands, summed over all calls.
    """

    kind: str
    axes: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """Result of a compilation; sizes are in bytes of one device.

    Attributes:
        topology: Of one slice, such as v5e:4x4.
        slices: Number of slices.
        device: Name of the device.
        devices: Number of devices.
        hosts: Number of hosts.
        mesh: The mesh.
        fits: Whether the program fits into memory.
        arguments: Size of the state and a step's rows.
        temporaries: Size of what exists only within a step.
        output: Size of the results that do not overwrite arguments.
        capacity: Available memory; None when unknown.
        flops: Of one step on all devices, by the formula of shape/architecture.py.
        collectives: Of one step.
        identity: Of the step (shape/step_identity.py).
        cost: What the compiler states of the program; None when it states nothing.
        timing: Range of the time of a step; None without `cost`.
        seconds: Time of the compilation.
        error: Message of the compiler when the program does not fit; else empty.
    """

    topology: str
    slices: int
    device: str
    devices: int
    hosts: int
    mesh: Mesh
    fits: bool
    arguments: int
    temporaries: int
    output: int
    capacity: int | None
    flops: float
    collectives: tuple[Collective, ...]
    identity: str
    cost: ProgramCost | None
    timing: CompiledTiming | None
    seconds: float
    error: str

    @property
    def used(self) -> int:
        return self.arguments + self.temporaries + self.output


def compile_ahead_of_time(config: Config, topology: str, slices: int = 1) -> CompiledStep:
    """Compile the step for a slice.

    Args:
        config: The settings.
        topology: Of one slice, such as v5e:4x4.
        slices: Number of slices.

    Raises:
        ConfigError: The slice does not exist, or the mesh or batch does not divide.
        DeviceError: libtpu is missing, or the compiler failed.
    """
    devices = describe_devices(topology, slices)
    mesh = resolve_mesh(config.mesh, detect_topology(devices), config.model)
    refuse_pipeline(config, mesh, "JAX")
    capacity = find_usable_bytes("tpu", get_device_name(devices[0]), None)
    config = resolve_remat(config, mesh, "jax", capacity)
    step = build_step(config, mesh, arrange_devices(devices, mesh))
    started = time.monotonic()
    traced = step.function.trace(*step.arguments)
    compiled, error = _compile(traced)
    sizes = None if compiled is None else compiled.memory_analysis()
    arguments = _argument_bytes(step) if sizes is None else sizes.argument_size_in_bytes
    collectives = count_collectives(traced.jaxpr.jaxpr, _sizes(mesh))
    cost = None if compiled is None else measure_program(traced, compiled)
    hardware = _describe_slice(topology, slices, devices)
    return CompiledStep(
        topology=topology,
        slices=slices,
        device=get_device_name(devices[0]),
        devices=len(devices),
        hosts=hardware.hosts,
        mesh=mesh,
        fits=not error,
        arguments=arguments,
        temporaries=0 if sizes is None else sizes.temp_size_in_bytes,
        output=0 if sizes is None else sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        capacity=capacity,
        flops=count_run_flops_per_token(config.model, config.lora, config.seq_len) * config.batch * config.seq_len,
        collectives=collectives,
        identity=identify_step(config, mesh, hardware, os.environ.get(VARIABLE, "")),
        cost=cost,
        timing=None if cost is None else _estimate_timing(config, mesh, hardware, cost, arguments, collectives),
        seconds=time.monotonic() - started,
        error=error,
    )


def _describe_slice(topology: str, slices: int, devices: Sequence[Any]) -> Hardware:
    chip, _, shape = topology.partition(":")
    hosts = len({device.process_index for device in devices})
    return Hardware(
        name=topology, kind="tpu", chip=chip, topology=shape, devices=len(devices), hosts=hosts, slices=slices
    )


def _estimate_timing(
    config: Config,
    mesh: Mesh,
    hardware: Hardware,
    cost: ProgramCost,
    state: int,
    collectives: Sequence[Collective],
) -> CompiledTiming | None:
    program = Program(
        cycles=cost.cycles,
        kernels=cost.kernels,
        product_flops=cost.product_flops,
        state_bytes=state,
        traffic=sum_traffic(((one.kind, one.axes, one.bytes) for one in collectives), mesh),
    )
    return estimate_compiled_timing(config, mesh, hardware, program)


def count_collectives(program: Any, sizes: Mapping[str, int]) -> tuple[Collective, ...]:
    """Count the collectives of a traced program by kind and axes; those in a scan count once per iteration."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, axes, size, iterations in _walk(program, 1):
        if any(sizes.get(axis, 1) > 1 for axis in axes):
            key = (kind, "+".join(axis for axis in axes if sizes.get(axis, 1) > 1))
            count, total = found.get(key, (0, 0))
            found[key] = (count + iterations, total + iterations * size)
    return tuple(
        Collective(kind=kind, axes=axes, count=count, bytes=total)
        for (kind, axes), (count, total) in sorted(found.items())
    )


def describe_devices(topology: str, slices: int) -> Sequence[Any]:
    """Return the devices of slices that are not attached.

    Raises:
        ConfigError: The slice does not exist.
        DeviceError: libtpu is missing.
    """
    # Without a TPU there is no metadata server to query; and no device is opened, so several processes may compile.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    jax.config.update("jax_platforms", "cpu")
    # Programs see a v4 chip as one device; without this option its description has two cores.
    more: dict[str, Any] = {"chip_config_name": "megacore"} if topology.startswith("v4:") else {}
    if slices > 1:
        more["num_slices"] = slices
    if (host := _one_host(topology)) is not None:
        more["chips_per_host_bounds"] = host
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology, **more)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        message = str(error).splitlines()[0]
        if "libtpu" in message.lower() and "external name" not in message:
            raise DeviceError(
                f"no TPU compiler in this environment ({message}): scripts/tpu-compiler makes one that has it"
            ) from error
        raise ConfigError(
            f"topology={topology}: the TPU compiler knows no such slice ({message}); examples are v5e:4x4 and v5p:2x2x2"
        ) from error
    return list(described.devices)


def _one_host(topology: str) -> tuple[int, ...] | None:
    """Return the chips along each side of a slice that is one machine; None for other slices.

    By default libtpu assumes machines of 2x2 chips.
    """
    generation, _, shape = topology.partition(":")
    sides = [int(side) for side in shape.split("x") if side.isdecimal()]
    if not sides or not 0 < math.prod(sides) <= _HOST_CHIPS.get(generation, 4):
        return None
    return (*sides, 1, 1)[:3]


def _compile(traced: Any) -> tuple[Any, str]:
    """Return the compiled program, or the message that it does not fit.

    Raises:
        DeviceError: The compiler failed for another reason.
    """
    try:
        return traced.lower().compile(), ""
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            raise DeviceError(f"the TPU compiler failed: {text.splitlines()[0][:400]}") from error
        return None, text.splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")[:400]


def _argument_bytes(step: Step) -> int:
    """Return the size of the arguments on one device, for a compiler that stopped before it reported it."""
    leaves: list[Any] = jax.tree.leaves(step.arguments)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * int(leaf.dtype.itemsize) for leaf in leaves)


def _sizes(mesh: Mesh) -> Mapping[str, int]:
    return {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}


def _walk(program: Any, iterations: int) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    """Yield kind, axes, bytes and number of calls of each collective."""
    for equation in program.eqns:
        kind = _COLLECTIVES.get(equation.primitive.name)
        if kind is not None:
            named = list_values(equation.params.get("axes", equation.params.get("axis_name")))
            for variable in equation.invars:
                yield kind, tuple(map(str, named)), int(variable.aval.size) * variable.aval.dtype.itemsize, iterations
        inner = iterations * int(equation.params["length"]) if equation.primitive.name == "scan" else iterations
        for nested in list_inner_programs(equation):
            yield from _walk(nested, inner)
