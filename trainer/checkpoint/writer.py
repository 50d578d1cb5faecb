"""Writes checkpoints beside the training: a copy in memory in the loop, everything else in a thread.

All processes save at the same steps. A checkpoint exists from the moment rank 0 has created its manifest, which it
does when every process has said that its parts are in the bucket.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass

from trainer.checkpoint.layout import Broken, Manifest, Part, manifest_path, part_name, part_path, timestamp
from trainer.checkpoint.pointer import advance, prune
from trainer.checkpoint.snapshot import HostBuffer, PartBuffer
from trainer.checkpoint.store import Store
from trainer.config import Scalar
from trainer.data.state import DataState
from trainer.engine import Engine
from trainer.errors import PeerError, StorageError
from trainer.shape.box import Piece
from trainer.team import Team

_SENDERS = 4  # parts of a process that are hashed and sent at once


@dataclass(frozen=True, slots=True)
class Origin:
    """What a manifest says beside its parts."""

    run_id: str
    attempt: int
    config: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Keep:
    """newest: complete checkpoints that are kept. every: also those at a multiple of it; 0: none."""

    newest: int
    every: int = 0


@dataclass(frozen=True, slots=True)
class _Work:
    """What a process has at hand while a checkpoint is written. values: of each kind of tensor, how many it writes,
    and how many all processes together must write."""

    buffer: HostBuffer
    values: Mapping[str, int]
    expected: Mapping[str, int]


class CheckpointWriter:
    """team: a side channel used by nothing else."""

    def __init__(
        self, store: Store, team: Team, origin: Origin, keep: Keep, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._store = store
        self._team = team
        self._origin = origin
        self._keep = keep
        self._report = report
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._senders = ThreadPoolExecutor(max_workers=_SENDERS, thread_name_prefix="checkpoint-part")
        self._running: Future[None] | None = None
        self._preparing: Future[_Work] | None = None

    def prepare(self, engine: Engine) -> Future[_Work]:
        """Get the memory for the copy in the background, so that the first save need not wait for it."""
        if self._preparing is None:
            self._preparing = self._pool.submit(_prepare, engine.written(), _expected(engine.needed()))
        return self._preparing

    def save(self, engine: Engine, data: DataState) -> float:
        """Copy this process's share and begin to write it. Returns the seconds that training stood still for it.

        The one before must be written first. Raises StorageError when that one failed.
        """
        start = time.perf_counter()
        self.wait()
        work = self.prepare(engine).result()
        engine.copy_out(work.buffer.views)
        self._running = self._pool.submit(self._publish, data, work)
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

    def _publish(self, data: DataState, work: _Work) -> None:
        started = time.perf_counter()
        step, first = data.step, self._team.world.is_first
        _raise_first(self._team.gather(self._clear(step) if first else ""))
        parts, failure = self._upload(step, work.buffer)
        told = self._team.gather([[asdict(part) for part in parts], dict(work.values), failure])
        _raise_first([failure for _, _, failure in told])
        whole = tuple(Part.from_json(part) for parts, _, _ in told for part in parts)
        values = Counter[str]()
        for _, counts, _ in told:
            values.update(counts)
        self._agree(step, self._commit(data, whole, values, work.expected) if first else "")
        if first:
            seconds = time.perf_counter() - started
            size = sum(part.size for part in whole)
            self._report(
                f"checkpoint {step} written in {seconds:.2f} s to {self._store.uri} "
                f"({size / 1e6:,.1f} MB, {size / 1e6 / seconds:,.0f} MB/s)"
            )

    def _agree(self, step: int, failure: str) -> None:
        """failure: of rank 0, whose manifest makes the checkpoint whole; who is lost later takes nothing from it."""
        try:
            told = self._team.gather(failure)
        except PeerError as error:
            if failure or not self._team.world.is_first:
                raise
            self._report(f"note: checkpoint {step} is whole, but then: {error}")
            return
        _raise_first(told)

    def _clear(self, step: int) -> str:
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

    def _upload(self, step: int, buffer: HostBuffer) -> tuple[list[Part], str]:
        rank = self._team.world.rank
        paths = [part_name(rank, index) for index in range(len(buffer.parts))]
        sent = [
            self._senders.submit(put_part, self._store, step, name, part)
            for name, part in zip(paths, buffer.parts, strict=True)
        ]
        try:
            return [future.result() for future in sent], ""
        except StorageError as error:
            return [], f"checkpoint {step} was not written by rank {rank}: {error}"

    def _commit(
        self, data: DataState, parts: tuple[Part, ...], values: Mapping[str, int], expected: Mapping[str, int]
    ) -> str:
        step = data.step
        if values != expected:
            # A fault of an engine: better no checkpoint than one that is found to be incomplete when it is needed.
            return f"checkpoint {step} was not written: its parts hold {dict(values)} values instead of {expected}"
        manifest = Manifest(
            step=step,
            run_id=self._origin.run_id,
            attempt=self._origin.attempt,
            world=self._team.world.size,
            time=timestamp(),
            weights_only=False,
            parts=parts,
            data=data,
            config=self._origin.config,
        )
        return publish(self._store, manifest, self._keep)


def _prepare(written: Sequence[Piece], expected: Mapping[str, int]) -> _Work:
    buffer = HostBuffer(written)
    for part in buffer.parts:
        part.touch()
    return _Work(buffer, _values(written), expected)


def put_part(store: Store, step: int, name: str, part: PartBuffer) -> Part:
    """Raises StorageError."""
    with ThreadPoolExecutor(1, thread_name_prefix="checksum") as beside:
        digest = beside.submit(hashlib.sha256, part.data)
        store.put(part_path(step, name), part.data)
        return Part(name, part.data.nbytes, part.header, digest.result().hexdigest())


def publish(store: Store, manifest: Manifest, keep: Keep | None) -> str:
    """Create the manifest, move `latest`, remove old ones (keep=None: none). Returns what went wrong, or ""."""
    path = manifest_path(manifest.step)
    try:
        if not store.create(path, manifest.to_json()):
            return f"checkpoint {manifest.step} was not written: {path} was made by somebody else meanwhile"
    except StorageError as error:
        return f"checkpoint {manifest.step} was not written: {error}"
    try:
        # A step behind `latest`, after going back, does not count among the newest: pruning would take it.
        if advance(store, manifest.step) and keep is not None:
            prune(store, keep.newest, keep.every)
    except (StorageError, Broken) as error:
        return f"checkpoint {manifest.step} is written, but {error}"
    return ""


def _kind(piece: Piece) -> str:
    return piece.name.partition("/")[0]


def _values(pieces: Sequence[Piece]) -> dict[str, int]:
    counts = Counter[str]()
    for piece in pieces:
        counts[_kind(piece)] += piece.box.size
    return dict(counts)


def _expected(needed: Sequence[Piece]) -> dict[str, int]:
    """By what rank 0 needs of each tensor: every process has a region of every tensor (trainer/shape/layout.py)."""
    whole = {piece.name: Piece(piece.name, piece.shape, piece.box.whole(piece.shape)) for piece in needed}
    return _values(list(whole.values()))


def _raise_first(failures: Sequence[str]) -> None:
    for failure in failures:
        if failure:
            raise StorageError(failure)
