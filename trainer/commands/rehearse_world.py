"""`python -m trainer rehearse-world hosts=64 devices=8 key=value ...`: builds all ranks of a run in this one process.

Tensors and network are simulated: it shows shapes, sharding, bytes and collectives.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.arithmetic import resolve_arithmetic
from trainer.config import Config
from trainer.errors import ConfigError, Exit, PeerError
from trainer.options import parse_config
from trainer.shape.architecture import count_parameters
from trainer.shape.layout import compute_box, get_layout
from trainer.shape.lora import list_run_parameters
from trainer.shape.mesh import Mesh, Topology, check_batch, resolve_mesh
from trainer.shape.pipeline import refuse_pipeline

if TYPE_CHECKING:
    from trainer.torch_engine.rehearsal import RehearsedStep

SUMMARY = "build the run of many hosts in this one process: shapes, sharding, memory, collectives"

HELP = """\
Build the run of many hosts in this one process, with made-up tensors and a made-up network.

  python -m trainer rehearse-world hosts=64 devices=8 model=8b batch=512
  python -m trainer rehearse-world hosts=2 devices=4 model=1b mesh.tensor=4 --json

hosts: machines. devices: of one machine, 1 if not given. It needs torch, and no accelerator.
"""
_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of parameter.

    Attributes:
        count: Number of parameters of this kind.
        whole: Shape of the parameter.
        part: Shape on one device.
        along: The mesh axis of each dimension.
    """

    name: str
    count: int
    whole: tuple[int, ...]
    part: tuple[int, ...]
    along: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result for all ranks.

    Attributes:
        rows: Of a micro-batch on one device.
        first: What rank 0 does; the last rank of its stage does the same.
        last: What the ranks of the last stage of a pipeline do; None without one.
    """

    hosts: int
    devices: int
    mesh: Mesh
    parameters: int
    rows: int
    shapes: tuple[Shape, ...]
    first: RehearsedStep
    last: RehearsedStep | None = None


def run(words: Sequence[str]) -> int:
    """Print the report; return 0 if the run would work.

    Raises:
        ConfigError: The mesh or the batch is wrong, or torch is missing.
        PeerError: Two ranks would do different collectives.
    """
    hosts, devices, as_json, settings = _read(words)
    found = rehearse_world(parse_config(settings), hosts, devices)
    if as_json:
        sys.stdout.write(json.dumps(dataclasses.asdict(found)) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")
    return Exit.OK


def rehearse_world(config: Config, hosts: int, devices: int) -> Report:
    """Build the first and the last of hosts x devices ranks; of a pipeline, those of the first and the last stage.

    Raises:
        ConfigError: The mesh or the batch is wrong, or torch is missing.
        PeerError: Two ranks would do different collectives.
    """
    if config.engine == "jax":
        raise ConfigError("rehearse-world builds torch's step; for JAX: python -m trainer compile")
    if config.device == "xla":
        raise ConfigError("rehearse-world builds torch's own ranks; torch_xla compiles one program for all devices")
    config = resolve_arithmetic(config, "cuda" if config.device == "auto" else config.device)
    total = hosts * devices
    mesh = resolve_mesh(config.mesh, Topology(total, devices, shard_weights=config.device != "cpu"), config.model)
    refuse_pipeline(config, mesh, "")
    rows = check_batch(config, mesh)
    try:
        from trainer.torch_engine.rehearsal import rehearse_step
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ConfigError("rehearse-world needs torch, which is not installed here: scripts/bootstrap") from None

    def rehearse_stage(rank: int) -> RehearsedStep:
        """Build the first and the last rank of a stage, whose first rank this is."""
        found, end = rehearse_step(config, mesh, rank), rank + mesh.stage_devices - 1
        if end > rank:
            _compare(found, rehearse_step(config, mesh, end))
        return found

    return Report(
        hosts=hosts,
        devices=devices,
        mesh=mesh,
        parameters=count_parameters(config.model),
        rows=rows,
        shapes=tuple(_shapes(config, mesh)),
        first=rehearse_stage(0),
        last=rehearse_stage(total - mesh.stage_devices) if mesh.pipeline > 1 else None,
    )


def _compare(first: RehearsedStep, last: RehearsedStep) -> None:
    """Check that two ranks join the same collectives with as many bytes; otherwise all would wait forever."""
    one, other = list(first.collectives), list(last.collectives)
    if one != other:
        differing = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), (one[-1:], other[-1:]))
        raise PeerError(
            f"rank {first.rank} and rank {last.rank} would join different collectives: "
            f"{differing[0]} against {differing[1]}"
        )


def _shapes(config: Config, mesh: Mesh) -> Iterator[Shape]:
    """Yield each kind of parameter; blocks are alike, so the first represents all."""
    for parameter in list_run_parameters(config.model, config.lora):
        in_block = parameter.name.startswith("blocks.")
        if in_block and not parameter.name.startswith("blocks.0."):
            continue
        name = parameter.name.replace("blocks.0.", "blocks.*.")
        along = get_layout(parameter).spec(len(parameter.shape))
        part = compute_box(parameter, mesh, 0).extent
        yield Shape(
            name=name, count=config.model.layers if in_block else 1, whole=parameter.shape, part=part, along=along
        )


def _lines(report: Report) -> Iterator[str]:
    mesh = report.mesh
    ranks = report.hosts * report.devices
    axes = f"data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}"
    axes += f", context {mesh.context}" if mesh.context > 1 else ""
    axes = f"pipeline {mesh.pipeline} x {axes}" if mesh.pipeline > 1 else axes
    yield f"{report.hosts} hosts x {report.devices} devices = {ranks} ranks: {axes}"
    yield f"{report.parameters:,} parameters; {report.rows} rows of a micro-batch on each device"
    width = max(len(shape.name) for shape in report.shapes)
    yield ""
    yield f"{'parameter':<{width}}  {'count':>5}  {'whole':>16}  {'on a device':>16}  divided over"
    for shape in report.shapes:
        axes = ", ".join(_axis(axis, mesh) for axis in shape.along)
        yield f"{shape.name:<{width}}  {shape.count:>5}  {_by(shape.whole):>16}  {_by(shape.part):>16}  {axes}"
    for found, where in (
        (report.first, " of the first stage" if report.last else ""),
        (report.last, " of the last stage"),
    ):
        if found is None:
            continue
        yield ""
        yield (
            f"bytes on a device{where}: weights {_bytes(found.weights)}, gradients {_bytes(found.gradients)}, "
            f"optimizer {_bytes(found.optimizer)}, peak of a step {_bytes(found.peak)}"
        )
        for one in found.collectives:
            yield f"{one.count:>6} x {one.kind:<16} {_bytes(one.bytes)} in all"
        if mesh.stage_devices > 1:
            yield f"rank {found.rank} and rank {found.rank + mesh.stage_devices - 1} join the same collectives"


def _axis(axis: str | None, mesh: Mesh) -> str:
    return axis if axis is not None and getattr(mesh, axis) > 1 else "-"


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _bytes(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"


def _read(words: Sequence[str]) -> tuple[int, int, bool, list[str]]:
    """Return the number of hosts, the devices of one, whether JSON is requested, and the settings."""
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
