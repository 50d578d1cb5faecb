"""`python -m trainer rehearse-world hosts=64 devices=8 key=value ...`: all ranks of a run, built in this one process.

Tensors and network are made up: it shows shapes, division, bytes and collectives.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.config import Config
from trainer.errors import ConfigError, Exit, PeerError
from trainer.options import parse
from trainer.shape.architecture import parameter_count, parameters
from trainer.shape.layout import box_of, layout_of
from trainer.shape.mesh import Mesh, Topology, check_batch, resolve

if TYPE_CHECKING:
    from trainer.torch_engine.rehearsal import Rehearsed

SUMMARY = "build the run of many hosts in this one process: shapes, sharding, memory, collectives"

HELP = """\
Build the run of many hosts in this one process, with made-up tensors and a made-up network.

  python -m trainer rehearse-world hosts=64 devices=8 model=8b dtype=bf16 batch=512
  python -m trainer rehearse-world hosts=2 devices=4 model=1b mesh.tensor=4 --json

hosts: machines. devices: of one machine, 1 if not given. It needs torch, and no accelerator.
"""
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of parameter. count: parameters of it. part: on one device. along: the mesh axis of each dimension."""

    name: str
    count: int
    whole: tuple[int, ...]
    part: tuple[int, ...]
    along: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """rows: of a micro-batch on one device. first: what rank 0 met; the last rank met the same."""

    hosts: int
    devices: int
    mesh: Mesh
    parameters: int
    rows: int
    shapes: tuple[Shape, ...]
    first: Rehearsed


def run(words: Sequence[str]) -> int:
    """0 when it would go; raises ConfigError (mesh, batch, no torch) and PeerError when two ranks would part ways."""
    hosts, devices, as_json, settings = _read(words)
    found = rehearse_world(parse(settings), hosts, devices)
    if as_json:
        sys.stdout.write(json.dumps(dataclasses.asdict(found)) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")
    return Exit.OK


def rehearse_world(config: Config, hosts: int, devices: int) -> Report:
    """hosts x devices ranks. Raises ConfigError, PeerError."""
    if config.engine == "jax":
        raise ConfigError("rehearse-world builds torch's step; for JAX: python -m trainer compile")
    if config.device == "xla":
        raise ConfigError("rehearse-world builds torch's own ranks; torch_xla compiles one program for all devices")
    total = hosts * devices
    mesh = resolve(config.mesh, Topology(total, devices, divide=config.device != "cpu"), config.model)
    rows = check_batch(config, mesh)
    try:
        from trainer.torch_engine.rehearsal import rehearse
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ConfigError("rehearse-world needs torch, which is not installed here: scripts/bootstrap") from None
    first = rehearse(config, mesh, 0)
    if total > 1:
        _compare(first, rehearse(config, mesh, total - 1), total - 1)
    return Report(hosts, devices, mesh, parameter_count(config.model), rows, tuple(_shapes(config, mesh)), first)


def _compare(first: Rehearsed, last: Rehearsed, rank: int) -> None:
    """Each rank must join the same collectives with as many bytes, or all would wait for ever."""
    one, other = list(first.collectives), list(last.collectives)
    if one != other:
        differing = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), (one[-1:], other[-1:]))
        raise PeerError(f"rank 0 and rank {rank} would part ways: {differing[0]} against {differing[1]}")


def _shapes(config: Config, mesh: Mesh) -> Iterator[Shape]:
    """Blocks are alike: the first stands for all."""
    for parameter in parameters(config.model):
        in_block = parameter.name.startswith("blocks.")
        if in_block and not parameter.name.startswith("blocks.0."):
            continue
        name = parameter.name.replace("blocks.0.", "blocks.*.")
        along = layout_of(parameter).spec(len(parameter.shape))
        part = box_of(parameter, mesh, 0).extent
        yield Shape(name, config.model.layers if in_block else 1, parameter.shape, part, along)


def _lines(report: Report) -> Iterator[str]:
    mesh, found = report.mesh, report.first
    ranks = report.hosts * report.devices
    axes = f"data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}"
    yield f"{report.hosts} hosts x {report.devices} devices = {ranks} ranks: {axes}"
    yield f"{report.parameters:,} parameters; {report.rows} rows of a micro-batch on each device"
    width = max(len(shape.name) for shape in report.shapes)
    yield ""
    yield f"{'parameter':<{width}}  {'count':>5}  {'whole':>16}  {'on a device':>16}  divided over"
    for shape in report.shapes:
        axes = ", ".join(_axis(axis, mesh) for axis in shape.along)
        yield f"{shape.name:<{width}}  {shape.count:>5}  {_by(shape.whole):>16}  {_by(shape.part):>16}  {axes}"
    yield ""
    yield (
        f"bytes on a device: weights {_bytes(found.weights)}, gradients {_bytes(found.gradients)}, "
        f"optimizer {_bytes(found.optimizer)}, peak of a step {_bytes(found.peak)}"
    )
    for one in found.collectives:
        yield f"{one.count:>6} x {one.kind:<16} {_bytes(one.bytes)} in all"
    if ranks > 1:
        yield f"rank 0 and rank {ranks - 1} join the same collectives"


def _axis(axis: str | None, mesh: Mesh) -> str:
    return axis if axis is not None and getattr(mesh, axis) > 1 else "-"


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _bytes(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"


def _read(words: Sequence[str]) -> tuple[int, int, bool, list[str]]:
    """Hosts, devices of one, whether JSON is wanted, and the settings."""
    given = {"hosts": 0, "devices": 1}
    settings: list[str] = []
    as_json = False
    for word in words:
        key, _, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif key in given:
            if not value.isdecimal() or int(value) < 1:
                raise ConfigError(f"{key}={value}: not a whole number from 1")
            given[key] = int(value)
        else:
            settings.append(word)
    if not given["hosts"]:
        raise ConfigError("rehearse-world: how many machines? For instance hosts=64 devices=8")
    return given["hosts"], given["devices"], as_json, settings
