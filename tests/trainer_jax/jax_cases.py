"""Small runs of engines in this process: the same rows for each, what came of them, and the state taken out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config import Config, DistConfig
from trainer.engine import Engine, FloatArray, TokenArray
from trainer.environment import World
from trainer.jax_engine.compiling import Compilations
from trainer.jax_engine.engine import JaxEngine
from trainer.jax_engine.grid import lay_out, row_share, topology_of
from trainer.jax_engine.library import jax
from trainer.jax_engine.step import build
from trainer.options import parse
from trainer.shape.mesh import resolve
from trainer.tcp_team import join

SMALL = "model.dim=32 model.layers=2 model.heads=4 model.kv_heads=2 seq_len=16 batch=8 threads=1 device=cpu"
RATE = 1e-2


def settings(words: str = "") -> Config:
    return parse([*SMALL.split(), *words.split()])


def jax_engine(words: str = "", devices: int = 1) -> JaxEngine:
    """On the first of this process's devices, as open_jax makes it on all of them."""
    config = settings(words)
    counter = Compilations()
    chosen = jax.devices()[:devices]
    mesh = resolve(config.mesh, topology_of(chosen), config.model)
    grid = lay_out(chosen, mesh)
    return JaxEngine(config, World(), build(config, mesh, grid), row_share(grid, 0), counter)


def torch_engine(words: str = "") -> Engine:
    from trainer.torch_engine.engine import open_torch

    world = World()
    return open_torch(settings(words + " engine=torch"), world, join(world, DistConfig()))


def rows_of(config: Config, step: int) -> TokenArray:
    """Text-like: few tokens are frequent, so that the loss falls."""
    random = np.random.default_rng([7, step])
    drawn = np.minimum(random.geometric(0.05, (config.batch, config.seq_len + 1)), config.model.tokens) - 1
    return drawn.astype(np.uint8)


def run(
    engine: Engine, words: str = "", steps: int = 4, first: int = 0, rate: float = RATE
) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step."""
    config = settings(words)
    found: list[tuple[float, float]] = []
    for step in range(first, first + steps):
        engine.step(rows_of(config, step), rate, False, step)
        numbers = engine.numbers()
        found.append((numbers.loss, numbers.grad_norm))
    return found


def state_of(*engines: Engine) -> dict[str, FloatArray]:
    """Whole tensors of the state, put together from what the engines write; each value is written exactly once."""
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
    """Load a state; one buffer is used for all pieces of a size, as the contract allows."""
    buffers: dict[tuple[int, ...], FloatArray] = {}

    def pieces() -> Any:
        for piece in reversed(engine.needed()):
            buffer = buffers.setdefault(piece.box.extent, np.empty(piece.box.extent, np.float32))
            buffer[...] = state[piece.name][piece.box.slices()]
            yield piece, buffer
            buffer[...] = np.nan

    engine.load(pieces())
