"""Small runs of engines in this process: the same rows for each, their results, and their states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config import Config, DistConfig
from trainer.engine import Engine, FloatArray, TokenArray
from trainer.environment import World
from trainer.jax_engine.compiling import CompilationCounter
from trainer.jax_engine.engine import JaxEngine
from trainer.jax_engine.grid import arrange_devices, assign_rows, detect_topology
from trainer.jax_engine.library import jax
from trainer.jax_engine.step import build_step
from trainer.options import parse_config
from trainer.shape.mesh import resolve_mesh
from trainer.tcp_team import join_team

SMALL = "model.dim=32 model.layers=2 model.heads=4 model.kv_heads=2 seq_len=16 batch=8 threads=1 device=cpu"
RATE = 1e-2
EVALUATED_ALIKE = 5e-6  # sums of the same numbers in another order


def settings(words: str = "") -> Config:
    return parse_config([*SMALL.split(), *words.split()])


def jax_engine(words: str = "", devices: int = 1) -> JaxEngine:
    """Open an engine on the first of this process's devices; open_jax_engine uses all of them."""
    config = settings(words)
    counter = CompilationCounter()
    chosen = jax.devices()[:devices]
    mesh = resolve_mesh(config.mesh, detect_topology(chosen), config.model)
    grid = arrange_devices(chosen, mesh)
    return JaxEngine(config, World(), build_step(config, mesh, grid), assign_rows(grid, 0, mesh.context), counter)


def torch_engine(words: str = "") -> Engine:
    from trainer.torch_engine.engine import open_torch_engine

    world = World()
    return open_torch_engine(settings(words + " engine=torch"), world, join_team(world, DistConfig()))


def rows_of(config: Config, step: int) -> TokenArray:
    """Make rows that resemble text: a few tokens are frequent, so the loss falls."""
    random = np.random.default_rng([7, step])
    drawn = np.minimum(random.geometric(0.05, (config.batch, config.seq_len + 1)), config.model.tokens) - 1
    return drawn.astype(np.uint8)


def run(
    engine: Engine, words: str = "", steps: int = 4, first: int = 0, rate: float = RATE
) -> list[tuple[float, float]]:
    """Run steps, and return the loss and gradient norm of each."""
    config = settings(words)
    found: list[tuple[float, float]] = []
    for step in range(first, first + steps):
        # A step's loss is that of its rows before it; an evaluation that changed anything would change what follows.
        evaluated = engine.evaluate(rows_of(config, step)) if step == first + 1 else None
        engine.step(rows_of(config, step), rate, False, step)
        numbers = engine.numbers()
        assert evaluated is None or abs(evaluated - numbers.loss) < EVALUATED_ALIKE
        found.append((numbers.loss, numbers.grad_norm))
    return found


def state_of(*engines: Engine) -> dict[str, FloatArray]:
    """Assemble whole tensors from the engines' regions, and check that each value is written exactly once."""
    whole: dict[str, FloatArray] = {}
    times: dict[str, npt.NDArray[np.int64]] = {}
    for engine in engines:
        pieces = {piece: np.full(piece.box.extent, np.nan, np.float32) for piece in engine.written()}
        engine.copy_out(pieces)
        for piece, values in pieces.items():
            whole.setdefault(piece.name, np.empty(piece.shape, np.float32))[piece.box.slices()] = values
            times.setdefault(piece.name, np.zeros(piece.shape, np.int64))[piece.box.slices()] += 1
    assert all((count == 1).all() for count in times.values())
    return whole


def give(engine: Engine, state: Mapping[str, FloatArray]) -> None:
    """Load a state; one buffer is reused for all regions of a size, as the contract allows."""
    buffers: dict[tuple[int, ...], FloatArray] = {}

    def pieces() -> Any:
        for piece in reversed(engine.needed()):
            buffer = buffers.setdefault(piece.box.extent, np.empty(piece.box.extent, np.float32))
            buffer[...] = state[piece.name][piece.box.slices()]
            yield piece, buffer
            buffer[...] = np.nan

    engine.load(pieces())
