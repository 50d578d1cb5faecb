"""Functions that the ranks of the tests run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor.debug import CommDebugMode

from trainer.accelerators.registry import open_native_device
from trainer.config import Config, ModelConfig, OptimConfig
from trainer.engine import FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.errors import PeerError
from trainer.shape.box import TensorRegion
from trainer.shape.mesh import Mesh, assign_rows
from trainer.team import Team
from trainer.torch_engine import process_group
from trainer.torch_engine.build import assemble_model, build_sharded_model
from trainer.torch_engine.engine import TorchEngine
from trainer.torch_engine.gradients import BucketedGradients

SMALL = Config(
    batch=8,
    seq_len=32,
    device="cpu",
    threads=1,
    grad_clip=0.5,
    model=ModelConfig(dim=32, layers=2, heads=4, kv_heads=4, head=8, vocab=64, tied=True),
    optim=OptimConfig(ema=0.9),
)
STEPS = 6
RATE = 3e-3
EVALUATED_ALIKE = 2e-6  # sums of the same numbers in another order
Outcome = list[tuple[float, float, int]]


def rows_of(config: Config, step: int) -> TokenArray:
    """Make a step's whole batch, which contains a learnable pattern."""
    draw = np.random.default_rng([7, step])
    starts = draw.integers(0, 16, (config.batch, 1))
    return ((starts + np.arange(config.seq_len + 1) * draw.integers(1, 3, (config.batch, 1))) % 40).astype(np.uint8)


def share_of(engine: TorchEngine, config: Config, step: int) -> TokenArray:
    first, count = engine.share.rows(config.batch)
    return rows_of(config, step)[first : first + count]


def engine_on(config: Config, world: World, mesh: Mesh) -> TorchEngine:
    accelerator = open_native_device("cpu", world)
    # The whole front of torch.compile, gradients included, without minutes in a C++ compiler.
    accelerator.compiler = "aot_eager"  # type: ignore[misc,assignment]  # an attribute of the real class
    return TorchEngine(config, world, accelerator, mesh)


def run(engine: TorchEngine, config: Config, first: int = 0, last: int = STEPS) -> Outcome:
    found: Outcome = []
    for step in range(first, last):
        # Every rank but the first wants to stop at step 3, so the count is the ranks' but one.
        stop = step == 3 and torch.distributed.is_initialized() and torch.distributed.get_rank() > 0
        # A step's loss is that of its rows before it; an evaluation that changed anything would change what follows.
        evaluated = engine.evaluate(share_of(engine, config, step)) if step % 2 else None
        engine.step(share_of(engine, config, step), RATE, stop, step)
        numbers: Numbers = engine.numbers()
        assert evaluated is None or abs(evaluated - numbers.loss) < EVALUATED_ALIKE
        found.append((numbers.loss, numbers.grad_norm, numbers.stops))
    return found


def take_out(engine: TorchEngine) -> dict[TensorRegion, FloatArray]:
    arrays = {piece: np.full(piece.box.extent, np.nan, np.float32) for piece in engine.written()}
    engine.copy_out(arrays)
    return arrays


def put_in(engine: TorchEngine, whole: Mapping[str, FloatArray]) -> None:
    engine.load((piece, whole[piece.name][piece.box.slices()]) for piece in engine.needed())


def put_together(parts: list[dict[TensorRegion, FloatArray]]) -> dict[str, FloatArray]:
    """Assemble whole tensors from the processes' regions, and check that each element is written exactly once."""
    whole: dict[str, FloatArray] = {}
    seen: dict[str, Any] = {}
    for part in parts:
        for piece, array in part.items():
            values = whole.setdefault(piece.name, np.zeros(piece.shape, np.float32))
            times = seen.setdefault(piece.name, np.zeros(piece.shape, np.int32))
            values[piece.box.slices()] = array
            times[piece.box.slices()] += 1
    assert {name for name, times in seen.items() if (times != 1).any()} == set()
    return whole


def join_once(world: World, team: Team) -> None:
    if world.size > 1:
        process_group.join_process_group(torch.device("cpu"), "gloo", team, SMALL.dist)


def on_meshes(
    world: World, team: Team, cases: list[tuple[Config, Mesh]]
) -> list[tuple[Outcome, dict[TensorRegion, FloatArray]]]:
    """Return each case's numbers over all steps, and the state that this rank writes at the end."""
    join_once(world, team)
    found: list[tuple[Outcome, dict[TensorRegion, FloatArray]]] = []
    for config, mesh in cases:
        engine = engine_on(config, world, mesh)
        found.append((run(engine, config), take_out(engine)))
    return found


def stopped_and_resumed(world: World, team: Team, cases: list[tuple[Config, Mesh]]) -> list[tuple[Outcome, Outcome]]:
    """Run each case uninterrupted, and again with a reload half way into a new engine."""
    join_once(world, team)
    found: list[tuple[Outcome, Outcome]] = []
    for config, mesh in cases:
        through = run(engine_on(config, world, mesh), config)
        first = engine_on(config, world, mesh)
        before = run(first, config, last=STEPS // 2)
        parts: list[Any] = [take_out(first)]
        if world.size > 1:
            parts = [None] * world.size
            torch.distributed.all_gather_object(parts, take_out(first))
        second = engine_on(dataclasses.replace(config, seed=5), world, mesh)  # other first values, all to be replaced
        put_in(second, put_together(parts))
        found.append((through, before + run(second, config, first=STEPS // 2)))
    return found


def continued(world: World, team: Team, config: Config, mesh: Mesh, whole: Mapping[str, FloatArray]) -> Outcome:
    """Run two more steps from a state after all steps."""
    join_once(world, team)
    engine = engine_on(config, world, mesh)
    put_in(engine, whole)
    return run(engine, config, STEPS, STEPS + 2)


def left_alone(world: World, team: Team, mesh: Mesh) -> tuple[str, float]:
    """End the last rank after two steps; return the others' error, and after how many seconds it came."""
    join_once(world, team)
    config = dataclasses.replace(SMALL, accumulate=mesh.pipeline)
    engine = engine_on(config, world, mesh)
    run(engine, config, last=2)
    if world.rank == world.size - 1:
        return "left", 0.0
    began = time.monotonic()
    try:
        run(engine, config, first=2)
    except PeerError as error:
        return str(error), time.monotonic() - began
    return "nothing was noticed", time.monotonic() - began


def left_waiting(world: World, team: Team, mesh: Mesh, limit: float) -> tuple[str, float]:
    """Freeze the last rank after a step, connected; return the others' error, and after how many seconds it came."""
    config = dataclasses.replace(SMALL, dist=dataclasses.replace(SMALL.dist, timeout=limit))
    process_group.join_process_group(torch.device("cpu"), "gloo", team, config.dist)
    engine = engine_on(config, world, mesh)
    run(engine, config, last=1)
    if world.rank == world.size - 1:
        time.sleep(5 * limit)
        return "frozen", 0.0
    began = time.monotonic()
    try:
        run(engine, config, first=1)
    except PeerError as error:
        return str(error), time.monotonic() - began
    return "nothing was noticed", time.monotonic() - began


def with_small_buckets(world: World, team: Team, config: Config, mesh: Mesh, sizes: list[int]) -> list[list[bytes]]:
    """Return the exact summed gradients of one step, for buckets of at most these sizes in bytes."""
    join_once(world, team)
    accelerator = open_native_device("cpu", world)
    first, count = assign_rows(mesh, world.rank, world.size).rows(config.batch)
    rows = accelerator.to_device(rows_of(config, 0)[first : first + count])
    found: list[list[bytes]] = []
    for size in sizes:
        build = assemble_model(config, accelerator, mesh, build_sharded_model(config, accelerator, mesh), world.rank)
        build.initialize_weights(config.seed)
        group_of_copies = torch.distributed.group.WORLD
        build = dataclasses.replace(build, gradients=BucketedGradients(build.slots, mesh, group_of_copies, size))
        for _ in range(2):  # the second time the buffers are used again
            summed = build.gradients.finish(build.backward(rows), stop=False)
        found.append([gradient.numpy().tobytes() for gradient in summed.gradients])
    return found


def counted_collectives(world: World, team: Team, config: Config, meshes: list[Mesh]) -> list[dict[str, int]]:
    """Count the collectives of one step on each mesh with torch's own counter."""
    join_once(world, team)
    found: list[dict[str, int]] = []
    for mesh in meshes:
        engine = engine_on(config, world, mesh)
        with CommDebugMode() as counter:
            run(engine, config, last=1)
        counts: dict[str, int] = {}
        for operation, count in counter.get_comm_counts().items():
            name = str(operation).replace("_", "")
            kind = next(k for k in ("all_reduce", "all_gather", "reduce_scatter") if k.replace("_", "") in name)
            counts[kind] = counts.get(kind, 0) + count
        found.append(counts)
    return found


def compiled_on(world: World, team: Team, config: Config, meshes: list[Mesh]) -> tuple[list[float], list[list[str]]]:
    """Return the number of compiled programs and the notes, after two steps on each mesh."""
    join_once(world, team)
    programs: list[float] = []
    notes: list[list[str]] = []
    for mesh in meshes:
        engine = engine_on(config, world, mesh)
        run(engine, config, last=2)
        programs.append(engine.counters()["compilations"])
        notes.append(list(engine.notes()))
    return programs, notes
