"""Compile the step for TPUs that are not here: exact memory, collectives, or that it does not fit.

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
from typing import Any, Final

from trainer.config import Config
from trainer.errors import ConfigError, DeviceError
from trainer.jax_engine.grid import lay_out, topology_of
from trainer.jax_engine.library import jax, topologies
from trainer.jax_engine.names import device_name
from trainer.jax_engine.step import Step, build
from trainer.shape.architecture import flops_per_token
from trainer.shape.mesh import Mesh, resolve

_GIB: Final = 1 << 30

# What libtpu 0.0.42 says is available to a program on one device, from its words when a program is far too large.
_HBM_GIB: Mapping[str, float] = MappingProxyType(
    {"TPU v4": 30.75, "TPU v5e": 15.75, "TPU v5p": 95.74, "TPU v6e": 31.25, "TPU v7": 94.75}
)
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


@dataclass(frozen=True, slots=True)
class Collective:
    """Of one device in one step, as the program asks for it; the compiler may combine some. bytes: what goes in."""

    kind: str
    axes: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """Bytes are of one device. arguments: the state and a step's rows. temporaries: what lives within a step.

    output: what is not written over the arguments. flops: of one step on all devices, by the formula of
    shape/architecture.py. error: the compiler's words when it does not fit, else "".
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
    seconds: float
    error: str

    @property
    def used(self) -> int:
        return self.arguments + self.temporaries + self.output


def compile_ahead(config: Config, topology: str, slices: int = 1) -> Ahead:
    """topology: such as v5e:4x4, of one slice; v4, v5e, v5p, v6e, tpu7x.

    Raises ConfigError for a slice that does not exist or a mesh or batch that does not divide, DeviceError without
    libtpu.
    """
    devices = describe(topology, slices)
    mesh = resolve(config.mesh, topology_of(devices), config.model)
    step = build(config, mesh, lay_out(devices, mesh))
    begun = time.monotonic()
    traced = step.function.trace(*step.arguments)
    sizes, error = _compile(traced)
    return Ahead(
        topology=topology,
        slices=slices,
        device=device_name(devices[0]),
        devices=len(devices),
        hosts=len({device.process_index for device in devices}),
        mesh=mesh,
        fits=not error,
        arguments=_argument_bytes(step) if sizes is None else sizes.argument_size_in_bytes,
        temporaries=0 if sizes is None else sizes.temp_size_in_bytes,
        output=0 if sizes is None else sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        capacity=_capacity(device_name(devices[0])),
        flops=flops_per_token(config.model, config.seq_len) * config.batch * config.seq_len,
        collectives=collectives_of(traced.jaxpr.jaxpr, _sizes(mesh)),
        seconds=time.monotonic() - begun,
        error=error,
    )


def collectives_of(program: Any, sizes: Mapping[str, int]) -> tuple[Collective, ...]:
    """What a traced program asks the network for, by kind and axes; what stands in a scan counts at each turn."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, axes, size, turns in _walk(program, 1):
        if any(sizes.get(axis, 1) > 1 for axis in axes):
            key = (kind, "+".join(axis for axis in axes if sizes.get(axis, 1) > 1))
            count, total = found.get(key, (0, 0))
            found[key] = (count + turns, total + turns * size)
    return tuple(Collective(kind, axes, *found[kind, axes]) for kind, axes in sorted(found))


def describe(topology: str, slices: int) -> Sequence[Any]:
    """The devices of slices that are not here. Raises as `compile_ahead` does."""
    # Without a TPU its metadata server does not answer either; and nothing is opened, so several may compile at once.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    jax.config.update("jax_platforms", "cpu")
    # Programs see a chip of a v4 as one device; its description has two cores unless told.
    more: dict[str, Any] = {"chip_config_name": "megacore"} if topology.startswith("v4:") else {}
    if slices > 1:
        more["num_slices"] = slices
    if (host := _one_host(topology)) is not None:
        more["chips_per_host_bounds"] = host
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology, **more)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        words = str(error).splitlines()[0]
        if "libtpu" in words.lower() and "external name" not in words:
            raise DeviceError(
                f"no TPU compiler in this environment ({words}): scripts/tpu-compiler makes one that has it"
            ) from error
        raise ConfigError(
            f"topology={topology}: the TPU compiler knows no such slice ({words}); use such as v5e:4x4 or v5p:2x2x2"
        ) from error
    return list(described.devices)


def _one_host(topology: str) -> tuple[int, ...] | None:
    """Chips along each side of a slice that is one machine; None for others, whose machines have 2x2 chips, as libtpu
    takes every slice to be unless told (Cloud TPU documentation, v5e and v6e: up to 8 chips are one machine)."""
    generation, _, shape = topology.partition(":")
    sides = [int(side) for side in shape.split("x") if side.isdecimal()]
    if not sides or not 0 < math.prod(sides) <= (8 if generation in {"v5e", "v6e"} else 4):
        return None
    return (*sides, 1, 1)[:3]


def _compile(traced: Any) -> tuple[Any, str]:
    """Sizes by the compiler, or why it does not fit. Raises DeviceError for any other failure."""
    try:
        return traced.lower().compile().memory_analysis(), ""
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            raise DeviceError(f"the TPU compiler failed: {text.splitlines()[0][:400]}") from error
        return None, text.splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")[:400]


def _argument_bytes(step: Step) -> int:
    """Of one device, when the compiler gave up before it could say."""
    leaves: list[Any] = jax.tree.leaves(step.arguments)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * int(leaf.dtype.itemsize) for leaf in leaves)


def _capacity(name: str) -> int | None:
    gib = _HBM_GIB.get(name)
    return None if gib is None else int(gib * _GIB)


def _sizes(mesh: Mesh) -> Mapping[str, int]:
    return {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}


def _walk(program: Any, turns: int) -> Iterator[tuple[str, tuple[str, ...], int, int]]:
    """Kind, axes, bytes and how often, of each collective."""
    for equation in program.eqns:
        kind = _COLLECTIVES.get(equation.primitive.name)
        if kind is not None:
            named = _listed(equation.params.get("axes", equation.params.get("axis_name")))
            for variable in equation.invars:
                yield kind, tuple(map(str, named)), int(variable.aval.size) * variable.aval.dtype.itemsize, turns
        inner = turns * int(equation.params["length"]) if equation.primitive.name == "scan" else turns
        for value in equation.params.values():
            for part in _listed(value):
                nested = getattr(part, "jaxpr", part)
                if hasattr(nested, "eqns"):
                    yield from _walk(nested, inner)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # parameters of equations have any type
