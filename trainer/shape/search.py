"""The settings with which a run is fastest on given machines, by the estimates of memory and time alone."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from trainer.arithmetic import resolve_arithmetic
from trainer.config import AUTO, Config, RematLevel
from trainer.errors import ConfigError
from trainer.shape.advice import Advice, build_advice, resolve_engine
from trainer.shape.concerns import CONTEXTS, choose_mesh
from trainer.shape.float8 import refuse_float8
from trainer.shape.hardware import Hardware
from trainer.shape.memory import TIGHT, estimate_memory, estimate_usable_memory, list_levels, resolve_remat
from trainer.shape.mesh import Mesh
from trainer.shape.step_memory import Engine
from trainer.shape.timing import estimate_timing

_TENSOR = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to run.

    Attributes:
        settings: KEY=VALUE, what differs from what was given.
        advice: With these settings.
    """

    settings: tuple[str, ...]
    advice: Advice


def find_fastest(config: Config, hardware: Hardware) -> Choice | None:
    """Return the fastest way that fits with a margin, over meshes, micro-batches and recomputation.

    The batch stays as it is, so that the loss does too. A way that differs more from the default has to be 2 % faster.
    Rows are divided over devices only where nothing fits otherwise, and over as few as possible.

    Returns:
        None where nothing fits, or the batch divides over the devices in no way.
    """
    engine = resolve_engine(config, hardware)
    try:
        made = resolve_arithmetic(replace(config, engine=engine), hardware.kind, has_bf16=hardware.has_bf16)
    except ConfigError:
        return None
    divided = (replace(made, mesh=replace(made.mesh, context=context)) for context in CONTEXTS)
    tried = (made, *divided) if made.mesh.context == 1 else (made,)
    best = next((found for found in (_find_fastest_way(one, hardware, engine) for one in tried) if found), None)
    if best is None:
        return None
    try:
        advice = build_advice(replace(best, engine=config.engine), hardware)
    except ConfigError:
        return None
    return Choice(_name_differences(_unless_chosen(made, best, advice), best, advice.mesh), advice)


def _find_fastest_way(config: Config, hardware: Hardware, engine: Engine) -> Config | None:
    """Return the fastest way that fits with a margin, all of one context axis."""
    best: tuple[float, Config] | None = None
    usable = estimate_usable_memory(hardware)
    for changed, mesh in list_ways(config, _strip(hardware)):
        fitting = fit_memory(changed, mesh, engine, usable)
        if fitting is None:
            continue
        seconds = estimate_timing(fitting, mesh, hardware).seconds
        middle = sum(seconds) if seconds is not None else 1.0
        if best is None or middle < 0.98 * best[0]:
            best = (middle, fitting)
    return None if best is None else best[1]


# Many machines of a catalogue have as many devices, and as much memory. So what follows from these alone is kept.


def _strip(hardware: Hardware) -> Hardware:
    """Return what the mesh depends on."""
    return Hardware(name="", kind=hardware.kind, devices=hardware.devices, hosts=hardware.hosts, slices=hardware.slices)


@lru_cache(maxsize=256)
def list_ways(config: Config, hardware: Hardware) -> tuple[tuple[Config, Mesh], ...]:
    """Return settings with their meshes, without micro-batches: the default division first.

    Sizes of the mesh that were given stay; devices that they do not divide have no way.
    """
    return tuple(_walk_ways(config, hardware))


def _walk_ways(config: Config, hardware: Hardware) -> Iterator[tuple[Config, Mesh]]:
    seen: set[tuple[Mesh, RematLevel]] = set()
    given = config.mesh
    for tensor in _TENSOR if given.tensor == 1 else (given.tensor,):
        if hardware.fast_devices % tensor:
            continue
        sharded = hardware.devices // given.pipeline // tensor
        for fsdp in (AUTO, sharded) if given.fsdp == AUTO else (given.fsdp,):
            divided = dataclasses.replace(config, mesh=dataclasses.replace(given, fsdp=fsdp, tensor=tensor))
            for remat in list_levels(divided):
                # Stages of a pipeline wait the less the more micro-batches there are: so it keeps those that are given.
                least = 1 if given.pipeline == 1 else config.accumulate
                changed = dataclasses.replace(divided, remat=remat, accumulate=least)
                try:
                    refuse_float8(changed, hardware.kind)
                    mesh = choose_mesh(changed, hardware)
                except ConfigError:
                    continue
                if (mesh, remat) not in seen:
                    seen.add((mesh, remat))
                    yield changed, mesh


@lru_cache(maxsize=4096)
def fit_memory(config: Config, mesh: Mesh, engine: Engine, usable: int | None) -> Config | None:
    """Return the settings with the fewest micro-batches that fit, from `accumulate` on; None when none does."""
    rows = config.batch // mesh.shards
    counts = [count for count in range(config.accumulate, rows + 1) if rows % count == 0]

    def fits(count: int) -> bool:
        return usable is None or count_bytes(config, mesh, engine, count) <= TIGHT * usable

    if not fits(counts[-1]):  # with one row at a time; a second set of gradients is smaller than what two rows keep
        return None
    first = 0 if fits(counts[0]) else bisect_left(counts, True, key=fits)
    return dataclasses.replace(config, accumulate=counts[first])


@lru_cache(maxsize=8192)
def count_bytes(config: Config, mesh: Mesh, engine: Engine, accumulate: int) -> int:
    """Return the bytes of a step on one device."""
    return estimate_memory(dataclasses.replace(config, accumulate=accumulate), mesh, engine).total


def _unless_chosen(before: Config, after: Config, advice: Advice) -> Config:
    """Return what was given, with the level of recomputation where `remat=auto` chooses that one anyway."""
    if before.remat != "auto":
        return before
    auto = resolve_remat(dataclasses.replace(after, remat=before.remat), advice.mesh, advice.engine, advice.usable)
    return dataclasses.replace(before, remat=after.remat) if auto.remat == after.remat else before


def _name_differences(before: Config, after: Config, mesh: Mesh) -> tuple[str, ...]:
    found: list[str] = []
    if after.mesh.tensor != before.mesh.tensor:
        found.append(f"mesh.tensor={after.mesh.tensor}")
    if after.mesh.context != before.mesh.context:
        found.append(f"mesh.context={after.mesh.context}")
    if after.mesh.fsdp not in (AUTO, before.mesh.fsdp):
        found.append(f"mesh.fsdp={mesh.fsdp}")
    if after.remat != before.remat:
        found.append(f"remat={after.remat}")
    if after.accumulate != before.accumulate:
        found.append(f"accumulate={after.accumulate}")
    return tuple(found)
