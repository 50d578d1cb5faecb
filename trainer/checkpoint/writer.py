"""Writes checkpoints beside the training: a copy in memory in the loop, everything else in a thread.

All ranks save at the same steps. A checkpoint exists from the moment rank 0 has created its manifest, which it
does when every rank has said that its part is in the bucket.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from trainer.checkpoint.layout import (
    Broken,
    Manifest,
    Part,
    manifest_path,
    part_name,
    step_folder,
    timestamp,
)
from trainer.checkpoint.pointer import advance, prune
from trainer.checkpoint.snapshot import HostBuffer
from trainer.checkpoint.store import Store
from trainer.config import Scalar
from trainer.data import DataState
from trainer.distributed import Team
from trainer.errors import StorageError


@dataclass(frozen=True, slots=True)
class Origin:
    """What a manifest says beside its parts."""

    run_id: str
    attempt: int
    config: Mapping[str, Scalar]


class CheckpointWriter:
    """team: a side channel used by nothing else. keep: complete checkpoints that are kept."""

    def __init__(
        self, store: Store, team: Team, origin: Origin, keep: int, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._store = store
        self._team = team
        self._origin = origin
        self._keep = keep
        self._report = report
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None
        self._buffer: HostBuffer | None = None

    def save(self, data: DataState, tensors: Mapping[str, Tensor]) -> float:
        """Copy this rank's share and begin to write it. Returns the seconds that training stood still for it.

        The one before must be written first. Raises StorageError when that one failed.
        """
        start = time.perf_counter()
        self.wait()
        if self._buffer is None:
            self._buffer = HostBuffer(tensors)
        self._buffer.fill(tensors)
        self._running = self._pool.submit(self._publish, data, self._buffer)
        return time.perf_counter() - start

    def check(self) -> None:
        """Raise the StorageError or PeerError of a checkpoint that failed meanwhile."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Until the checkpoint under way is complete; raises like `check`."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _publish(self, data: DataState, buffer: HostBuffer) -> None:
        started = time.perf_counter()
        step, world = data.step, self._team.world
        _raise_first(self._team.gather(self._clear_manifest(step) if world.is_first else ""))
        parts = self._team.gather(self._upload(step, buffer))
        _raise_first([failure for _, failure in parts])
        whole = tuple(part for part, _ in parts if part is not None)
        _raise_first(self._team.gather(self._commit(data, whole) if world.is_first else ""))
        if world.is_first:
            self._report(f"checkpoint {step} written in {time.perf_counter() - started:.2f} s to {self._store.uri}")

    def _clear_manifest(self, step: int) -> str:
        """An earlier attempt may have been at this step; its parts are about to be replaced."""
        try:
            found = self._store.find(manifest_path(step))
            if found is None:
                return ""
            try:
                attempt = Manifest.from_json(found.data, step).attempt
            except Broken:
                attempt = 0
            if attempt > self._origin.attempt:
                return f"attempt {attempt} of this run has written step {step}: this one is out of date"
            self._store.delete([manifest_path(step)])
        except StorageError as error:
            return f"checkpoint {step} was not written: {error}"
        return ""

    def _upload(self, step: int, buffer: HostBuffer) -> tuple[Part | None, str]:
        name = part_name(self._team.world.rank, self._team.world.size)
        try:
            digest = hashlib.sha256(buffer.data).hexdigest()
            self._store.put(f"{step_folder(step)}/{name}", buffer.data)
        except StorageError as error:
            return None, f"checkpoint {step} was not written by rank {self._team.world.rank}: {error}"
        return Part(name, len(buffer.data), digest), ""

    def _commit(self, data: DataState, parts: tuple[Part, ...]) -> str:
        manifest = Manifest(
            step=data.step,
            run_id=self._origin.run_id,
            attempt=self._origin.attempt,
            world=self._team.world.size,
            time=timestamp(),
            parts=parts,
            data=data,
            config=self._origin.config,
        )
        path = manifest_path(data.step)
        try:
            if not self._store.create(path, manifest.to_json()):
                return f"checkpoint {data.step} was not written: {path} was made by somebody else meanwhile"
        except StorageError as error:
            return f"checkpoint {data.step} was not written: {error}"
        try:
            advance(self._store, data.step)
            prune(self._store, self._keep)
        except (StorageError, Broken) as error:
            return f"checkpoint {data.step} is written, but {error}"
        return ""


def _raise_first(failures: list[str]) -> None:
    for failure in failures:
        if failure:
            raise StorageError(failure)
