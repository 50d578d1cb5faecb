"""`python -m trainer compile topology=v5e:4x4 key=value ...`: compile a run's step for TPUs before they are rented.

It needs JAX with libtpu (scripts/tpu-compiler creates such an environment) and no TPU.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.arithmetic import resolve_arithmetic
from trainer.errors import ConfigError, Exit
from trainer.options import parse_config

if TYPE_CHECKING:
    from trainer.jax_engine.ahead_of_time import CompiledStep

SUMMARY = "compile the step for a TPU slice that is not here: exact memory, collectives, or out of memory"

HELP = """\
Compile the step of a run for a TPU slice that is not here.

  python -m trainer compile topology=v5e:4x4 model=1b batch=64
  python -m trainer compile topology=v5e:4x8 slices=2 model=1b batch=128 --json

topology: generation and chips along each side (v4, v5e, v5p, v6e, tpu7x). slices: how many of them, 1 if not given.
It needs JAX with libtpu, which scripts/tpu-compiler installs beside orch, and no TPU.
Exit status: 0 it fits, 4 it does not, 2 the settings are wrong.
"""
GIB = 1 << 30


def run(words: Sequence[str]) -> int:
    """Compile, and return 0 if the step fits or 4 if it is out of memory, with the compiler's message.

    Raises:
        ConfigError: The settings are wrong.
        DeviceError: There is no compiler.
    """
    topology, slices, as_json, settings = _read(words)
    config = parse_config(settings)
    if config.engine == "torch":
        raise ConfigError("compile: only the JAX engine is compiled ahead; leave engine=torch out")
    from trainer.jax_engine.ahead_of_time import compile_ahead_of_time

    found = compile_ahead_of_time(resolve_arithmetic(replace(config, engine="jax"), "tpu"), topology, slices)
    if as_json:
        sys.stdout.write(json.dumps({**dataclasses.asdict(found), "used": found.used}) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")
    return Exit.OK if found.fits else Exit.DEVICE


def _lines(found: CompiledStep) -> Iterator[str]:
    mesh = found.mesh
    axes = f"data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}"
    axes += f", context {mesh.context}" if mesh.context > 1 else ""
    times = f"{found.slices} x " if found.slices > 1 else ""
    yield f"{times}{found.topology}: {found.devices} devices on {found.hosts} hosts, {found.device}, {axes}"
    has = f" of {_gib(found.capacity)}" if found.capacity else ""
    if found.fits:
        parts = f"state and rows {_gib(found.arguments)}, within a step {_gib(found.temporaries)}"
        yield f"fits: {_gib(found.used)}{has} GiB a device ({parts})"
    else:
        yield f"does NOT fit: {found.error} (state and rows alone: {_gib(found.arguments)}{has} GiB)"
    yield f"{found.flops / 1e12:,.1f} TFLOP a step on all devices together; compiled in {found.seconds:.0f} s"
    if found.timing is not None:
        low, typical, high = found.timing.low, found.timing.typical, found.timing.high
        yield f"a step takes about {typical:.3g} s, from {low:.3g} to {high:.3g} s ({found.timing.source})"
    for one in found.collectives:
        yield f"{one.count:>6} x {one.kind:<14} over {one.axes:<11} {_gib(one.bytes)} GiB from each device"


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"


def _read(words: Sequence[str]) -> tuple[str, int, bool, list[str]]:
    """Return the topology, the number of slices, whether JSON is requested, and the settings."""
    topology, slices, as_json = "", 1, False
    settings: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif key == "topology":
            topology = value
        elif key == "slices":
            if not value.isdecimal() or int(value) < 1:
                raise ConfigError(f"slices={value}: not a whole number from 1")
            slices = int(value)
        else:
            settings.append(word)
    if not topology:
        raise ConfigError("compile: for which slice? For instance topology=v5e:4x4")
    return topology, slices, as_json, settings
