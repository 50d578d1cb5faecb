"""An engine without arithmetic, its state laid out over a mesh like the real engines'. Light: processes import it."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from trainer.checkpoint.manifest import StepFolder
from trainer.checkpoint.session import Checkpoints
from trainer.config import Config, DistConfig, EngineName
from trainer.data.state import DataState
from trainer.engine import FloatArray, Numbers, TokenArray
from trainer.environment import Run, World
from trainer.options import parse_config
from trainer.rendezvous import find_free_port
from trainer.shape.architecture import Parameter, list_parameters
from trainer.shape.box import Box, TensorRegion
from trainer.shape.layout import choose_writer, compute_box
from trainer.shape.mesh import Mesh, RowShare
from trainer.shape.pipeline import list_stages
from trainer.tcp_team import join_team
from trainer.team import Team

T = TypeVar("T")

SMALL = (
    "model.dim=32",
    "model.layers=2",
    "model.heads=4",
    "model.kv_heads=2",
    "model.ffn=48",
    "model.vocab=64",
    "seq_len=32",
    "checkpoint.timeout=20",
)
MOMENTS: Mapping[str, Sequence[str]] = {"adamw": ("exp_avg", "exp_avg_sq"), "adafactor": ("full",)}


def config_of(*words: str) -> Config:
    return parse_config([*SMALL, *words])


def data_of(step: int) -> DataState:
    return DataState(step=step, seed=0, batch=8, seq_len=32, source="x", total_tokens=1000, vocab=64, fingerprint="f")


def folder_of(step: int, epoch: int = 1, attempt: int = 1) -> str:
    """Name of the folder in which a start of the run writes that step."""
    return StepFolder(step, epoch, attempt).name


def manifest_of(step: int, epoch: int = 1, attempt: int = 1) -> str:
    """Path of its manifest."""
    return StepFolder(step, epoch, attempt).manifest


def truth(name: str, shape: tuple[int, ...], step: int) -> FloatArray:
    """Return the complete tensor after `step` steps; it differs for every name, shape and step."""
    key = zlib.crc32(f"{name} {shape}".encode())
    values = np.arange(int(np.prod(shape)), dtype=np.float32) * np.float32(1e-3)
    return (values + np.float32(key % 1009 + 10_000 * step)).reshape(shape)


class ToyEngine:
    """Knows its state after `steps` steps; -1: nothing yet. process, processes: equal shares of the mesh's devices."""

    def __init__(self, config: Config, mesh: Mesh, process: int = 0, processes: int = 1, steps: int = -1) -> None:
        self.config, self._mesh, self.steps = config, mesh, steps
        local = mesh.devices // processes
        self._devices = range(process * local, (process + 1) * local)
        self.state: dict[TensorRegion, FloatArray] = {}

    @property
    def name(self) -> EngineName:
        return "torch"

    @property
    def mesh(self) -> Mesh:
        return self._mesh

    @property
    def share(self) -> RowShare:
        return RowShare(0, 1, 1)

    @property
    def read_every(self) -> int:
        return 1

    @property
    def peak_flops(self) -> float | None:
        return None

    def headline(self) -> str:
        return "toy"

    def notes(self) -> Sequence[str]:
        return ()

    def program(self) -> str:
        return ""

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        self.steps = step + 1

    def evaluate(self, rows: TokenArray) -> float:
        return 0.0

    def numbers(self) -> Numbers:
        return Numbers(0.0, 0.0, 0)

    def written(self) -> Sequence[TensorRegion]:
        return [
            piece
            for position, parameter in enumerate(list_parameters(self.config.model))
            for device in self._devices
            if self._has(device, parameter) and choose_writer(parameter, position, self._mesh, device) == device
            for piece in self._pieces(parameter, compute_box(parameter, self._mesh, device))
        ]

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        assert list(into) == list(self.written())
        for piece, view in into.items():
            view[...] = truth(piece.name, piece.shape, self.steps)[piece.box.slices()]

    def needed(self) -> Sequence[TensorRegion]:
        boxes = {
            (parameter, compute_box(parameter, self._mesh, device))
            for parameter in list_parameters(self.config.model)
            for device in self._devices
            if self._has(device, parameter)
        }
        return [piece for parameter, box in sorted(boxes, key=repr) for piece in self._pieces(parameter, box)]

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        for piece, array in values:
            assert piece not in self.state, "each piece comes once"
            assert array.shape == piece.box.extent
            assert array.dtype == np.float32
            self.state[piece] = array.copy()
            array[...] = np.nan
        assert set(self.state) == set(self.needed())

    def memory(self) -> int | None:
        return None

    def counters(self) -> Mapping[str, float]:
        return {}

    def diagnostics(self) -> Mapping[str, Any]:
        return {}

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def close(self) -> None:
        return None

    def check(self, step: int, *, expected: Callable[[str], str | None] = lambda name: name) -> None:
        """Every value is that of `step`. expected: the tensor whose values stand there; None: zeros."""
        for piece, values in self.state.items():
            source = expected(piece.name)
            correct = np.zeros(piece.shape, np.float32) if source is None else truth(source, piece.shape, step)
            np.testing.assert_array_equal(values, correct[piece.box.slices()], err_msg=piece.name)

    def _has(self, device: int, parameter: Parameter) -> bool:
        return list_stages(self.config.model, self._mesh)[self._mesh.get_stage(device)].has(parameter)

    def _pieces(self, parameter: Parameter, box: Box) -> Iterator[TensorRegion]:
        names = [f"model/{parameter.name}"]
        names += [f"optimizer/{parameter.name}/{moment}" for moment in MOMENTS[self.config.optim.kind]]
        names += [f"average/{parameter.name}"] if self.config.optim.ema else []
        return (TensorRegion(name, parameter.shape, box) for name in names)


def as_world(size: int, rank: Callable[[Team], T]) -> list[T]:
    """`rank(team)` in a thread for each rank; they meet over real sockets. Raises what a rank raises."""
    address = f"127.0.0.1:{find_free_port('127.0.0.1')}"

    def run(number: int) -> T:
        world = World(rank=number, size=size, coordinator=address, launcher="orch") if size > 1 else World()
        team = join_team(world, DistConfig(timeout=20.0, join_timeout=20.0))
        try:
            return rank(team)
        finally:
            team.close()

    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(run, number) for number in range(size)]]


def save(place: str, config: Config, mesh: Mesh, processes: int, *steps: int, attempt: int = 1) -> list[str]:
    """Save these steps, each to its end. Returns what rank 0 reported."""
    lines: list[str] = []

    def rank(team: Team) -> None:
        run = Run(run_id="run", attempt=attempt, checkpoint_uri=place)
        session = Checkpoints.open(config, run, team, lines.append if team.world.is_first else lambda _: None)
        for step in steps:
            engine = ToyEngine(config, mesh, team.world.rank, team.world.size, step)
            assert session.save(engine, data_of(step), wait=True)
        team.gather(None)  # no rank leaves while another still needs it

    as_world(processes, rank)
    return lines


def resume(
    place: str, config: Config, mesh: Mesh, processes: int, resume_from: str = ""
) -> tuple[int, list[ToyEngine], list[str]]:
    """(steps that are done, the processes' engines, what rank 0 reported)."""
    lines: list[str] = []

    def rank(team: Team) -> tuple[int, ToyEngine]:
        run = Run(run_id="run", attempt=2, checkpoint_uri=place, resume_from=resume_from)
        session = Checkpoints.open(config, run, team, lines.append if team.world.is_first else lambda _: None)
        engine = ToyEngine(config, mesh, team.world.rank, team.world.size)
        return session.resume(engine, data_of(0)), engine

    results = as_world(processes, rank)
    assert len({done for done, _ in results}) == 1
    return results[0][0], [engine for _, engine in results], lines
