"""A checkpoint writer that is killed at a chosen moment, and others that race. Light: processes import it."""

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

from trainer.checkpoint.pointer import advance
from trainer.checkpoint.store import Buffer, Entry, Found, Store, Version, open_store
from trainer.checkpoint.writer import CheckpointWriter, Keep, Origin
from trainer.environment import World
from trainer.options import flat
from trainer.shape.mesh import Mesh
from trainer.tcp_team import Alone

CONFIG = config_of()
TWO = Keep(2)


def server() -> ForkServerContext:
    """Processes forked from one that has the trainer's checkpoints loaded: they start in milliseconds."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["trainer.checkpoint.session", "trainer.tcp_team"])
    here = Path(__file__).resolve()
    wanted = [str(here.parents[2]), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(wanted))
    return context


def writer_for(store: Store, *, attempt: int = 1, keep: Keep = TWO) -> CheckpointWriter:
    return CheckpointWriter(store, Alone(World()), Origin("run", attempt, flat(CONFIG)), keep)


def engine_at(step: int) -> ToyEngine:
    return ToyEngine(CONFIG, Mesh(), steps=step)


def write(store: Store, step: int, *, attempt: int = 1, keep: Keep = TWO) -> None:
    """One checkpoint, to its end."""
    writer = writer_for(store, attempt=attempt, keep=keep)
    writer.save(engine_at(step), data_of(step))
    writer.wait()


class DyingStore(Store):
    """Kills its process at the n-th moment; each request has one before it and one after it."""

    def __init__(self, inner: Store, moment: int) -> None:
        self.__dict__.update(inner.__dict__)
        self.uri = inner.uri
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

    def find(self, path: str) -> Found | None:
        result: Found | None = self._around("find", path)
        return result

    def put(self, path: str, data: Buffer) -> None:
        self._around("put", path, data)

    def create(self, path: str, data: bytes) -> bool:
        return bool(self._around("create", path, data))

    def swap(self, path: str, data: bytes, expected: Version | None) -> bool:
        return bool(self._around("swap", path, data, expected))

    def entries(self, prefix: str) -> list[Entry]:
        result: list[Entry] = self._around("entries", prefix)
        return result

    def folders(self) -> list[str]:
        result: list[str] = self._around("folders")
        return result

    def delete(self, paths: Sequence[str]) -> None:
        # One by one: each removal is a moment of its own.
        for path in paths:
            self._around("delete", [path])


def write_until_killed(
    uri: str, step: int, moment: int, attempt: int, environ: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Ends with status 0 when the moment is after the last request. environ: leads to the bucket."""
    os.environ.update(environ)
    write(DyingStore(open_store(uri), moment), step, attempt=attempt)
    os._exit(0)


def endless_saves(uri: str, first: int) -> None:
    """One checkpoint after the other, until somebody kills the process."""
    writer = writer_for(open_store(uri))
    for step in _upwards(first):
        writer.save(engine_at(step), data_of(step))


def _upwards(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def race(uri: str, barrier: Barrier, results: Queue[list[int]], rounds: int) -> None:
    """One of many processes that all move `latest` to the same steps; answers with the steps it won."""
    store, won = open_store(uri), list[int]()
    for step in range(1, rounds + 1):
        barrier.wait(60)
        if advance(store, step):
            won.append(step)
    results.put(won)
