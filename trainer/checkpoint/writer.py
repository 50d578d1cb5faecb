"""Writes checkpoints beside the training: a copy in memory in the loop, everything else in a thread.

All processes save at the same steps. A checkpoint exists from the moment rank 0 has created its manifest, which it does
when every process has reported that its parts are in the bucket.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainer.checkpoint.claim import raise_shared_failure
from trainer.checkpoint.description import Description, store_description
from trainer.checkpoint.epoch import utc_timestamp
from trainer.checkpoint.layout import format_data_state, part_name
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, Part, StepFolder
from trainer.checkpoint.pointer import advance_latest, prune_checkpoints
from trainer.checkpoint.snapshot import HostBuffer, PartBuffer
from trainer.checkpoint.store import Store
from trainer.config import Scalar
from trainer.data.state import DataState
from trainer.engine import Engine
from trainer.errors import DiskFull, PeerError, StorageError, TakenOver
from trainer.shape.box import TensorRegion
from trainer.team import Team

_WRITTEN_BEFORE = "written before"  # by this process, in a try whose answer was lost
_SENDERS = 4  # parts of a process that are hashed and sent concurrently


class SaveState(StrEnum):
    """What the last save of this process has come to."""

    RUNNING = "running"
    RETRYING = "retrying"  # running, and a request to the bucket is being repeated
    FAILED = "failed"
    DONE = "done"  # also where there was none


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a manifest records of the run.

    Attributes:
        epoch: Of this start; 0 where none was claimed.
        check: Raises TakenOver once a later start has claimed the run; it is called on rank 0.
    """

    run_id: str
    attempt: int
    config: Mapping[str, Scalar]
    epoch: int = 0
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Which checkpoints are kept.

    Attributes:
        newest: Number of complete checkpoints.
        every: Also keep those at a multiple of it; 0 for none.
        best: Whether to keep the one with the lowest loss of an evaluation as well.
        losses: Those of complete checkpoints that were read, by folder: a manifest never changes.
    """

    newest: int
    every: int = 0
    best: bool = False
    losses: dict[StepFolder, float | None] = field(default_factory=dict[StepFolder, float | None], compare=False)

    def prune(self, store: Store, epoch: int) -> list[str]:
        """Remove the others; return the names of their folders. Raises what `prune_checkpoints` does."""
        losses = self.losses if self.best else None
        return prune_checkpoints(store, self.newest, self.every, epoch, losses=losses)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a process prepares for writing a checkpoint.

    Attributes:
        values: Of each kind of tensor, how many values this process writes.
        whole: Number of values of each tensor of which this process has a region.
        names: Digest of `whole`.
    """

    buffer: HostBuffer
    values: Mapping[str, int]
    whole: Mapping[str, int]
    names: str


class CheckpointWriter:
    """Writes the checkpoints of a run in the background."""

    def __init__(
        self,
        store: Store,
        team: Team,
        origin: RunInfo,
        keep: RetentionPolicy,
        report: Callable[[str], None] = lambda _: None,
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
        self._begun = ""  # folder of the last save
        self._description: Description | None = None
        self._described = False

    def describe(self, description: Description | None) -> None:
        """Let the manifests name the description of the model and its tokenizer, which is written before the first."""
        self._description, self._described = description, False

    def allocate_buffers(self, engine: Engine) -> Future[_Work]:
        """Allocate the memory for the copy in the background, so that the first save need not wait for it."""
        if self._preparing is None:
            self._preparing = self._pool.submit(_prepare, engine.written(), engine.needed())
        return self._preparing

    def save(self, engine: Engine, data: DataState, eval_loss: float | None = None) -> float:
        """Copy this process's share and begin to write it; return the seconds for which training waited.

        The previous checkpoint is completed first.

        Args:
            engine: The state.
            data: The position in the data.
            eval_loss: Loss of an evaluation of this state; None for none.

        Raises:
            StorageError: The previous one failed.
            PeerError: Another rank was lost.
        """
        start = time.perf_counter()
        self.wait_until_written()
        work = self.allocate_buffers(engine).result()
        engine.copy_out(work.buffer.views)
        self._running = self._pool.submit(self._publish, data, work, eval_loss)
        return time.perf_counter() - start

    def inspect(self) -> tuple[SaveState, str]:
        """Return the state of the last save, and why it failed, or "".

        Raises:
            TakenOver: A later start has claimed the run.
            PeerError: Another rank was lost.
        """
        if self._running is None:
            return SaveState.DONE, ""
        if not self._running.done():
            return SaveState.RETRYING if self._store.in_trouble else SaveState.RUNNING, ""
        error = self._running.exception()
        if isinstance(error, StorageError) and not isinstance(error, TakenOver):
            return SaveState.FAILED, str(error)
        self.wait_until_written()
        return SaveState.DONE, ""

    def find_failure(self) -> BaseException | None:
        """Return the error of the last save; None while it is running, and where it succeeded."""
        return self._running.exception() if self._running is not None and self._running.done() else None

    def forget_failure(self) -> None:
        """Forget a save that failed, so that the next one does not raise its error."""
        self._running = None

    def raise_failure(self) -> None:
        """Raise TakenOver or PeerError of a checkpoint that failed in the background."""
        self.inspect()

    def wait(self, seconds: float) -> None:
        """Wait for the checkpoint in progress, at most that long; its error is kept."""
        if self._running is not None:
            wait([self._running], timeout=seconds)

    def wait_until_written(self) -> None:
        """Wait until the checkpoint in progress is complete.

        Raises:
            StorageError: It failed; also TakenOver.
            PeerError: Another rank was lost.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _publish(self, data: DataState, work: _Work, eval_loss: float | None) -> None:
        started = time.perf_counter()
        step, first = data.step, self._team.world.is_first
        store = self._store.limit_retries(self._store.retry_seconds)
        folder = StepFolder(step, self._origin.epoch, self._origin.attempt if self._origin.epoch else 0)
        before, self._begun = self._begun, folder.name
        refusal = self._team.gather(self._check_unwritten(store, folder, before) if first else "")[0]
        if refusal == _WRITTEN_BEFORE:
            if first:
                self._report(f"checkpoint {step} was complete: only the bucket's answer had been lost")
                move_latest_and_prune(store, folder, self._keep, self._report)
            return
        _raise_first([refusal])
        whole, values, expected = self._write_parts(store, folder, work)
        failure = self._commit(store, folder, data, eval_loss, whole, values, expected) if first else ""
        self._report_commit(step, failure)
        if first:
            seconds = time.perf_counter() - started
            size = sum(part.size for part in whole)
            self._report(
                f"checkpoint {step} written in {seconds:.2f} s to {self._store.uri} "
                f"({size / 1e6:,.1f} MB, {size / 1e6 / seconds:,.0f} MB/s)"
            )

    def _write_parts(
        self, store: Store, folder: StepFolder, work: _Work
    ) -> tuple[tuple[Part, ...], Mapping[str, int], Mapping[str, int]]:
        """Upload this process's parts; return those of all, how many values of each kind they hold, and must hold."""
        reports = self._upload_and_share(store, folder, work)
        if any(full for *_, full, _ in reports):
            first = self._team.world.is_first
            if self._team.gather(_make_room(store, folder, self._keep, self._report) if first else False)[0]:
                reports = self._upload_and_share(store, folder, work)
        _raise_first([failure for _, _, failure, _, _ in reports])
        values = Counter[str]()
        for _, counts, *_ in reports:
            values.update(counts)
        expected = self._count_expected(work, [names for *_, names in reports])
        return tuple(Part.from_json(part) for parts, *_ in reports for part in parts), values, expected

    def _count_expected(self, work: _Work, names: Sequence[str]) -> Mapping[str, int]:
        """Count the values of each kind that all processes together must write.

        Processes have regions of the same tensors (trainer/shape/layout.py), except where they are stages of a
        pipeline: then the first process of each stage names its own.

        Args:
            work: Of this process.
            names: The digest of all processes.
        """
        whole = dict(work.whole)
        if len(set(names)) > 1:
            rank = self._team.world.rank
            for others in self._team.gather(whole if names.index(work.names) == rank else {}):
                whole.update(others)
        counts = Counter[str]()
        for name, size in whole.items():
            counts[_kind(name)] += size
        return counts

    def _upload_and_share(self, store: Store, folder: StepFolder, work: _Work) -> list[Any]:
        parts, failure, full = self._upload(store, folder, work.buffer)
        # Who took the run over may remove these parts.
        failure = (self._find_taker() if self._team.world.is_first else "") or failure
        return self._team.gather([[part.to_json() for part in parts], dict(work.values), failure, full, work.names])

    def _report_commit(self, step: int, failure: str) -> None:
        """Share whether rank 0 created the manifest; a rank that is lost afterwards does not undo the checkpoint."""
        try:
            failures = self._team.gather(failure)
        except PeerError as error:
            if failure or not self._team.world.is_first:
                raise
            self._report(f"note: checkpoint {step} is complete, but then: {error}")
            return
        _raise_first(failures)

    def _check_unwritten(self, store: Store, folder: StepFolder, before: str) -> str:
        """Return why this start may not write the checkpoint, or "": nothing that another one wrote is replaced."""
        try:
            if store.find(folder.manifest) is not None:
                if folder.name == before:
                    return _WRITTEN_BEFORE
                return f"checkpoint {folder.step} was not written: {store.uri}/{folder.manifest} is there already"
        except StorageError as error:
            return f"checkpoint {folder.step} was not written: {error}"
        return self._find_taker()

    def _find_taker(self) -> str:
        """Return the message of TakenOver, or "". Where the bucket does not answer, `latest` decides."""
        try:
            self._origin.check()
        except TakenOver as error:
            return str(error)
        except StorageError:
            pass
        return ""

    def _upload(self, store: Store, folder: StepFolder, buffer: HostBuffer) -> tuple[list[Part], str, bool]:
        """Return the parts; or none, why they were not written, and whether the disk is full."""
        rank = self._team.world.rank
        paths = [part_name(rank, index) for index in range(len(buffer.parts))]
        sent = [
            self._senders.submit(upload_part, store, folder.name, name, part)
            for name, part in zip(paths, buffer.parts, strict=True)
        ]
        wait(sent)
        try:
            return [future.result() for future in sent], "", False
        except StorageError as error:
            failure = f"checkpoint {folder.step} was not written by rank {rank}: {error}"
            return [], failure, isinstance(error, DiskFull)

    def _commit(
        self,
        store: Store,
        folder: StepFolder,
        data: DataState,
        eval_loss: float | None,
        parts: tuple[Part, ...],
        values: Mapping[str, int],
        expected: Mapping[str, int],
    ) -> str:
        step = data.step
        if values != expected:
            # A fault of an engine: better no checkpoint than one that is found to be incomplete when it is needed.
            held = f"{dict(values)} values instead of {dict(expected)}"
            return f"checkpoint {step} was not written: its parts hold {held}"
        manifest = Manifest(
            step=step,
            run_id=self._origin.run_id,
            attempt=self._origin.attempt,
            world=self._team.world.size,
            time=utc_timestamp(),
            weights_only=False,
            parts=parts,
            data=format_data_state(data),
            eval_loss=eval_loss,
            config=self._origin.config,
            epoch=self._origin.epoch,
            description="" if self._description is None else self._description.digest,
            folder=folder.name,
        )
        failure = self._store_description(store, step)
        return failure or publish_manifest(store, manifest, self._keep, self._report)

    def _store_description(self, store: Store, step: int) -> str:
        """Write the description beside the checkpoints, once; return the error, or ""."""
        if self._description is not None and not self._described:
            try:
                store_description(store, self._description)
            except StorageError as error:
                return f"checkpoint {step} was not written: {error}"
            self._described = True
        return ""


def _prepare(written: Sequence[TensorRegion], needed: Sequence[TensorRegion]) -> _Work:
    buffer = HostBuffer(written)
    for part in buffer.parts:
        part.prefault()
    whole = {piece.name: math.prod(piece.shape) for piece in needed}
    values = Counter[str]()
    for piece in written:
        values[_kind(piece.name)] += piece.box.size
    return _Work(buffer, values, whole, hashlib.sha256(repr(sorted(whole.items())).encode()).hexdigest())


def upload_part(store: Store, folder: str, name: str, part: PartBuffer) -> Part:
    """Upload one part; return its manifest entry.

    Raises:
        StorageError: The bucket fails.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="checksum") as beside:
        digest = beside.submit(hashlib.sha256, part.data)
        store.put(f"{folder}/{name}", part.data)
        return Part(name=name, size=part.data.nbytes, header=part.header, sha256=digest.result().hexdigest())


def publish_manifest(
    store: Store, manifest: Manifest, keep: RetentionPolicy | None, report: Callable[[str], None]
) -> str:
    """Create the manifest, move `latest` and remove old checkpoints (keep=None: none); return the error, or "".

    With its manifest the checkpoint is complete: a failure of what follows is reported, and the next save does it.
    """
    folder = StepFolder.parse(manifest.folder)
    assert folder is not None  # noqa: S101  # its writer named it
    path = folder.manifest
    try:
        if not store.create(path, manifest.to_json()):
            return f"checkpoint {manifest.step} was not written: {path} was created by another process meanwhile"
    except StorageError as error:
        return f"checkpoint {manifest.step} was not written: {error}"
    try:
        move_latest_and_prune(store, folder, keep, report)
    except TakenOver as error:
        return str(error)
    return ""


def move_latest_and_prune(
    store: Store, folder: StepFolder, keep: RetentionPolicy | None, report: Callable[[str], None]
) -> None:
    """Make `latest` name a complete checkpoint, and remove old ones (keep=None: none); failures are only reported.

    Raises:
        TakenOver: A later start has claimed the run.
    """
    try:
        # A step behind `latest`, after going back, does not count among the newest: pruning would take it.
        if advance_latest(store, folder) and keep is not None:
            keep.prune(store, folder.epoch)
    except TakenOver:
        raise
    except (StorageError, CorruptCheckpoint) as error:
        report(f"note: checkpoint {folder.step} is written, but {error}; the next save tries again")


def _make_room(store: Store, folder: StepFolder, keep: RetentionPolicy, report: Callable[[str], None]) -> bool:
    """Remove what a failed save left, and checkpoints beyond those that are kept; return whether any was removed."""
    try:
        store.delete([entry.path for entry in store.list_objects(folder.name)])
        removed = keep.prune(store, folder.epoch)
    except (StorageError, CorruptCheckpoint) as error:
        report(f"note: the disk is full, and old checkpoints could not be removed: {error}")
        return False
    if removed:
        report(f"note: the disk was full: removed {', '.join(removed)}")
    return bool(removed)


def _kind(name: str) -> str:
    return name.partition("/")[0]


def _raise_first(failures: Sequence[str]) -> None:
    for failure in failures:
        if failure:
            raise_shared_failure(failure)
