"""A checkpoint writer that is killed at a chosen moment, for test_trainer_writer.py. Light: processes import it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint.store import Buffer, Entry, Found, Store, Version, open_store
from trainer.checkpoint.writer import CheckpointWriter, Origin
from trainer.data import DataState
from trainer.distributed import Team
from trainer.environment import World


def tensors_of(step: int, attempt: int = 1) -> dict[str, Tensor]:
    return {"model/a": torch.full((300,), float(step + 1000 * attempt)), "optimizer/a/step": torch.tensor(float(step))}


def state_of(step: int) -> DataState:
    return DataState(step, 0, 8, 32, "x", 1000, "f")


def writer_for(store: Store, *, attempt: int = 1, keep: int = 2) -> CheckpointWriter:
    return CheckpointWriter(store, Team(World(), None, 10), Origin("run", attempt, {}), keep)


def write(store: Store, step: int, *, attempt: int = 1) -> None:
    """One checkpoint, to its end."""
    writer = writer_for(store, attempt=attempt)
    writer.save(state_of(step), tensors_of(step, attempt))
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


def write_until_killed(uri: str, step: int, moment: int, attempt: int) -> None:
    """Ends with status 0 when the moment is after the last request."""
    write(DyingStore(open_store(uri), moment), step, attempt=attempt)
    os._exit(0)
