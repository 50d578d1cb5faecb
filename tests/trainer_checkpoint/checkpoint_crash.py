"""A checkpoint writer that is killed at a chosen moment, and writers that race. Light, because processes import it."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import MappingProxyType
from typing import Any

from checkpoint_toy import ToyEngine, config_of, data_of
from checkpoint_wrapped import WrappedStore

from trainer.checkpoint.manifest import StepFolder
from trainer.checkpoint.pointer import advance_latest
from trainer.checkpoint.store import Buffer, ObjectEntry, Store, StoredObject, Version, open_store
from trainer.checkpoint.writer import CheckpointWriter, RetentionPolicy, RunInfo
from trainer.environment import World
from trainer.options import flatten_config
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam

CONFIG = config_of()
TWO = RetentionPolicy(2)


def server() -> ForkServerContext:
    """Processes forked from one that has the trainer's checkpoints loaded: they start in milliseconds."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["trainer.checkpoint.session", "trainer.tcp_team"])
    here = Path(__file__).resolve()
    folders = [str(here.parents[2]), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
    return context


def writer_for(store: Store, *, attempt: int = 1, keep: RetentionPolicy = TWO) -> CheckpointWriter:
    """Return the writer of an attempt whose epoch has the same number."""
    origin = RunInfo("run", attempt, flatten_config(CONFIG), attempt)
    return CheckpointWriter(store, SingleProcessTeam(World()), origin, keep)


def engine_at(step: int) -> ToyEngine:
    return ToyEngine(CONFIG, Mesh(), steps=step)


def write(store: Store, step: int, *, attempt: int = 1, keep: RetentionPolicy = TWO) -> None:
    """Write one checkpoint completely."""
    writer = writer_for(store, attempt=attempt, keep=keep)
    writer.save(engine_at(step), data_of(step))
    writer.wait_until_written()


class DyingStore(WrappedStore):
    """A store that kills its process at the n-th moment; each request has one before it and one after it."""

    def __init__(self, inner: Store, moment: int) -> None:
        super().__init__(inner)
        self._left = moment

    def _tick(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def _around(self, name: str, *arguments: Any) -> Any:
        self._tick()
        result = getattr(super(), name)(*arguments)
        self._tick()
        return result

    def find(self, path: str) -> StoredObject | None:
        result: StoredObject | None = self._around("find", path)
        return result

    def put(self, path: str, data: Buffer) -> None:
        self._around("put", path, data)

    def create(self, path: str, data: bytes) -> bool:
        return bool(self._around("create", path, data))

    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        return bool(self._around("replace_if_unchanged", path, data, expected))

    def list_objects(self, prefix: str) -> list[ObjectEntry]:
        result: list[ObjectEntry] = self._around("list_objects", prefix)
        return result

    def list_folders(self) -> list[str]:
        result: list[str] = self._around("list_folders")
        return result

    def delete(self, paths: Sequence[str]) -> None:
        # One by one: each removal is a separate moment.
        for path in paths:
            self._around("delete", [path])


def write_until_killed(
    uri: str, step: int, moment: int, attempt: int, environ: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write one checkpoint; end with status 0 when the moment is after the last request."""
    os.environ.update(environ)
    write(DyingStore(open_store(uri), moment), step, attempt=attempt)
    os._exit(0)


def endless_saves(uri: str, first: int, attempt: int) -> None:
    """Write one checkpoint after the other until the process is killed."""
    writer = writer_for(open_store(uri), attempt=attempt)
    for step in _upwards(first):
        writer.save(engine_at(step), data_of(step))


def _upwards(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def race(uri: str, barrier: Barrier, results: Queue[list[int]], rounds: int) -> None:
    """Move `latest` to the same steps as many other processes; send the steps that this one won."""
    store, won = open_store(uri), list[int]()
    for step in range(1, rounds + 1):
        barrier.wait(60)
        if advance_latest(store, StepFolder(step, 1, 1)):
            won.append(step)
    results.put(won)
