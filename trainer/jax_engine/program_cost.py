"""What libtpu states of the cost of a program, with loops counted as often as they run.

`Compiled.cost_analysis()` counts the body of a loop once, and its `optimal_seconds` may be negative (libtpu 0.0.43.2,
2026-11-27: 8 scanned layers on v5e 2x4 have 0.32 TFLOP there, and 1.83 TFLOP in the traced program). The text of the
optimized program has `estimated_cycles` for each operation but collectives, asynchronous copies and Pallas kernels. So
these are summed, each as often as its loop runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEAD = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[\w.\-]+) \(.*\{$")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_LOOP = re.compile(r" while\(.*condition=%(?P<condition>[\w.\-]+), body=%(?P<body>[\w.\-]+)")
_CONSTANT = re.compile(r"%(?P<name>[\w.\-]+) = [su]32\[\]\S* constant\((?P<value>\d+)\)")
_ELEMENT = re.compile(r"= [su]32\[\]\S* get-tuple-element\(.*\), index=(\d+)")
_SUM = re.compile(r"%(?P<name>[\w.\-]+) = [su]32\[\]\S* add\(%[\w.\-]+, %(?P<constant>[\w.\-]+)\)")
_RESULT = re.compile(r"^\s*ROOT .* tuple\((?P<operands>.*?)\)")
_KERNEL = 'custom_call_target="tpu_custom_call"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCost:
    """Cost of a step on one device.

    Attributes:
        cycles: libtpu's estimate, loops counted as often as they run.
        kernels: Number of calls of Pallas kernels, of which libtpu estimates nothing.
        product_flops: Of the matrix products outside of kernels in the traced program, loops likewise.
        analysed_flops: By XLA's cost analysis, which counts the body of a loop once.
        analysed_bytes: Accessed bytes, likewise.
    """

    cycles: float
    kernels: int
    product_flops: float
    analysed_flops: float
    analysed_bytes: float


def measure_program(traced: Any, compiled: Any) -> ProgramCost | None:
    """Return the cost of a compiled program; None where the compiler does not state it.

    Args:
        traced: Of `jax.jit(...).trace(...)`.
        compiled: Made of it.
    """
    analysis: Mapping[str, float] = compiled.cost_analysis() or {}
    counted = count_cycles(compiled.as_text() or "")
    if counted is None or not counted[0]:
        return None
    return ProgramCost(
        cycles=counted[0],
        kernels=counted[1],
        product_flops=count_product_flops(traced.jaxpr.jaxpr),
        analysed_flops=float(analysis.get("flops", 0.0)),
        analysed_bytes=float(analysis.get("bytes accessed", 0.0)),
    )


def count_cycles(program: str) -> tuple[float, int] | None:
    """Return the estimated cycles and the calls of kernels of an optimized program.

    Returns:
        None where a loop has no constant bound, or the program cannot be read.
    """
    computations, entry = _split(program)
    return _count(computations, entry, 0) if entry else None


def _split(program: str) -> tuple[dict[str, list[str]], str]:
    """Return the lines of each computation by its name, and the name of the entry."""
    found: dict[str, list[str]] = {}
    entry, lines = "", None
    for line in program.splitlines():
        if head := _HEAD.match(line):
            lines = found.setdefault(head["name"], [])
            entry = head["name"] if head["entry"] else entry
        elif line == "}":  # the metadata of kernels also have lines that begin with it
            lines = None
        elif lines is not None:
            lines.append(line)
    return found, entry


def _count(computations: Mapping[str, list[str]], name: str, depth: int) -> tuple[float, int] | None:
    cycles, kernels = 0.0, 0
    for line in computations.get(name, ()):
        if (loop := _LOOP.search(line)) is not None:
            times = _count_iterations(computations.get(loop["condition"], ()), computations.get(loop["body"], ()))
            inner = _count(computations, loop["body"], depth + 1) if times is not None and depth < 10 else None
            if times is None or inner is None:
                return None
            cycles += times * inner[0]
            kernels += times * inner[1]
        elif (one := _CYCLES.search(line)) is not None:
            cycles += int(one[1])
        elif _KERNEL in line:
            kernels += 1
    return cycles, kernels


def _count_iterations(condition: Sequence[str], body: Sequence[str]) -> int | None:
    """Return how often a loop runs; None where its bound or its step is no constant.

    JAX's scans, and the rings that libtpu makes of sums, compare a counter from 0 with the one constant of their
    condition. A scan adds 1 to it, a ring 2 where its body has two turns.
    """
    bounds = {int(found["value"]) for line in condition if (found := _CONSTANT.search(line)) is not None}
    counters = {int(found[1]) for line in condition if (found := _ELEMENT.search(line)) is not None}
    results = [found["operands"] for line in body if (found := _RESULT.search(line)) is not None]
    if not len(bounds) == len(counters) == len(results) == 1:
        return None
    added = {found["name"]: found["constant"] for line in body if (found := _SUM.search(line)) is not None}
    constants = {found["name"]: int(found["value"]) for line in body if (found := _CONSTANT.search(line)) is not None}
    operand = results[0].split(", ")[counters.pop()].split("%")[-1]
    step = constants.get(added.get(operand, ""), 0)
    return -(-bounds.pop() // step) if step else None


def count_product_flops(program: Any) -> float:
    """Return the FLOPs of the matrix products of a traced program on one device, without those of Pallas kernels."""
    total = 0.0
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2.0 * equation.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        elif equation.primitive.name == "ragged_dot_general":  # each row meets the matrix of its group alone
            total += 2.0 * equation.invars[0].aval.size * equation.outvars[0].aval.shape[-1]
        elif equation.primitive.name != "pallas_call":
            times = int(equation.params["length"]) if equation.primitive.name == "scan" else 1
            total += times * sum(count_product_flops(inner) for inner in list_inner_programs(equation))
    return total


def list_inner_programs(equation: Any) -> Iterator[Any]:
    """Yield the programs that an equation of a traced program runs."""
    for value in equation.params.values():
        for part in list_values(value):
            nested = getattr(part, "jaxpr", part)
            if hasattr(nested, "eqns"):
                yield nested


def list_values(value: Any) -> list[Any]:
    """Return the values of a parameter that may be one or several."""
    return list(value) if isinstance(value, tuple | list) else [value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # parameters of equations have any type
