"""Saves a program's checkpoints in the background: the parts of each rank, then the manifest, then `latest`."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..checkpoint.claim import raise_taken_over
from ..checkpoint.epoch import utc_timestamp
from ..checkpoint.manifest import (
    PROGRAM_FORMAT,
    CorruptCheckpoint,
    Manifest,
    Part,
    StepFolder,
    find_blocked_file,
)
from ..checkpoint.pointer import advance_latest, prune_checkpoints, read_latest
from ..checkpoint.signature import is_signature, sign, sign_manifest
from ..checkpoint.store import Store
from ..environment import Run, World
from ..errors import LastingStorageError, StorageError, TakenOver
from .files import upload_files
from .start import PATIENCE_SECONDS, wait_for

QUEUED = 2
"""Saves that wait or are being written; a further one waits in `save`."""
MOST_FAILURES = 3
"""Failed saves in a row, after which `save` raises."""
_STOPPED_SECONDS = 60.0  # for which the end of a program waits for other ranks after SIGTERM


@dataclass(frozen=True, kw_only=True)
class Save:
    """One checkpoint to write.

    Attributes:
        place: Local folder with the files, removed afterwards.
        names: Of the files, below it.
        meta: Of the manifest.
        sharded: Whether every rank has files of it.
    """

    step: int
    place: Path
    names: list[str]
    meta: Mapping[str, Any]
    sharded: bool


class Defect(StorageError):
    """A save failed by an error of the program or of this library, not of the bucket."""


class Saver:
    """Writes saves one after the other in a thread."""

    def __init__(
        self,
        store: Store,
        run: Run,
        world: World,
        start: str,
        keep: int,
        keep_every: int,
        report: Callable[[str], None],
    ) -> None:
        """Take the folder of checkpoints, and the run with the epoch of this start."""
        self._store, self._run, self._world, self._start = store, run, world, start
        self._keep, self._keep_every, self._report = keep, keep_every, report
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="orch-run-save")
        self._room = threading.Semaphore(QUEUED)
        self._last: Future[None] | None = None
        self._failures: list[StorageError] = []  # in a row
        self._written = False  # whether a save of this start has succeeded
        self._shards: set[int] = set()  # steps of which rank 0 may count the shard of this rank
        self._is_ending: Callable[[], bool] = lambda: False

    def submit(self, save: Save) -> None:
        """Write a checkpoint in the background; wait while too many are waiting."""
        self._room.acquire()
        self._last = self._pool.submit(self._write, save)

    def raise_failure(self) -> None:
        """Raise TakenOver, the StorageError of too many failed saves, or what no further try can repair.

        That is a defect, and before the first checkpoint a reason that does not pass, such as a full disk.
        """
        failures = self._failures
        final = (TakenOver, Defect) if self._written else (TakenOver, Defect, LastingStorageError)
        if failures and (isinstance(failures[-1], final) or len(failures) >= MOST_FAILURES):
            raise self._grade(failures[-1])

    def drain(self) -> None:
        """Wait until each save is written or has failed."""
        if self._last is not None:
            self._last.result()

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            StorageError: The last save failed.
        """
        self.drain()
        if self._failures:
            raise self._grade(self._failures[-1])

    def _grade(self, failure: StorageError) -> StorageError:
        """Return the failure, as one that a restart may pass where this start has a checkpoint to resume from."""
        return StorageError(str(failure)) if self._written and isinstance(failure, LastingStorageError) else failure

    def finish(self, is_stopped: Callable[[], bool]) -> None:
        """Wait at the end of the process; failures were reported.

        SIGTERM ends the wait for other ranks: immediately, or soon where it came before the program ended.
        """
        began = time.monotonic()
        soonest = began + _STOPPED_SECONDS if is_stopped() else began
        latest = began + PATIENCE_SECONDS
        self._is_ending = lambda: time.monotonic() > (soonest if is_stopped() else latest)
        try:
            with suppress(StorageError):
                self.wait()
        except BaseException:  # KeyboardInterrupt: the interpreter waits for the thread
            self._is_ending = lambda: True
            raise

    def remove_own_shards(self) -> None:
        """Remove what this rank left in an earlier start of the same attempt, before rank 0 could count it.

        Raises:
            StorageError: The bucket fails.
        """
        for name in self._store.list_folders():
            folder = StepFolder.parse(name)
            if folder is not None and (folder.epoch, folder.attempt) == (self._run.epoch, self._run.attempt):
                self._store.delete([_shard_path(folder, self._world.rank)])

    def _write(self, save: Save) -> None:
        try:
            started = time.monotonic()
            folder = StepFolder(save.step, self._run.epoch, self._run.attempt)
            self._check_unwritten(folder)
            parts = upload_files(self._store, folder.name, self._world.rank, save.place, save.names)
            if not self._world.is_first:
                self._put_shard(folder, parts)
            else:
                whole = (*parts, *self._collect_shards(folder)) if save.sharded else parts
                self._publish(folder, save, whole)
                size, seconds = sum(part.size for part in whole), time.monotonic() - started
                self._report(
                    f"checkpoint {save.step} written in {seconds:.2f} s to {self._store.uri} ({size / 1e6:,.1f} MB)"
                )
            self._failures, self._written = [], True
        except Exception as error:
            failure = error if isinstance(error, StorageError) else _translate_defect(save.step, error)
            self._failures = [*self._failures, failure]
            self._report(f"note: checkpoint {save.step} was not written: {failure}")
        finally:
            shutil.rmtree(save.place, ignore_errors=True)
            self._room.release()

    def forget_shards(self, resumed: int) -> None:
        """Remove what ranks left of steps after the one that is resumed: they do not count when it is saved again.

        Rank 0 removes them before the other ranks learn which step it resumes. Each other rank removes its own, too:
        its last save may have ended after rank 0 listed them.

        Raises:
            StorageError: The bucket fails.
        """
        self._shards.difference_update([step for step in tuple(self._shards) if step > resumed])
        ranks = range(1, self._world.size) if self._world.is_first else (self._world.rank,)
        for name in self._store.list_folders():
            folder = StepFolder.parse(name)
            if folder is None or folder.step <= resumed:
                continue
            if (folder.epoch, folder.attempt) == (self._run.epoch, self._run.attempt):
                self._store.delete([_shard_path(folder, rank) for rank in ranks])

    def _check_unwritten(self, folder: StepFolder) -> None:
        """Refuse what a start may not write: nothing of another one is replaced, and the newest start wins.

        What this attempt has written after the step that `latest` names is damaged, or was never complete, and is
        written again: `restore` moves `latest` back.
        """
        try:
            latest = read_latest(self._store)
        except CorruptCheckpoint:
            latest = None  # the next move repairs it
        if latest is not None and latest.epoch > folder.epoch:
            raise_taken_over(latest.epoch, folder.epoch)
        # Rank 0 may be about to publish the shard that is there, whose files must not change.
        is_written = self._store.find(folder.manifest) is not None
        if folder.step in self._shards or (is_written and (latest is None or latest.step >= folder.step)):
            raise StorageError(f"{self._store.uri}/{folder.manifest} is there already: this attempt saved that step")
        if is_written and self._world.is_first:
            self._store.delete([folder.manifest])  # first: until the new one is complete, there is no checkpoint

    def _put_shard(self, folder: StepFolder, parts: tuple[Part, ...]) -> None:
        path, content = _shard_path(folder, self._world.rank), _format_shard(self._start, parts)
        signature = sign(self._run.key, path, content).hex() if self._run.key else ""
        self._shards.add(folder.step)
        self._store.put(path, json.dumps({"signature": signature, "shard": content.decode()}).encode())

    def _collect_shards(self, folder: StepFolder) -> list[Part]:
        """Return the parts of all other ranks, once all are there."""
        found: list[Part] = []
        for rank in range(1, self._world.size):
            what = f"rank {rank} to save checkpoint {folder.step} as well"
            found += wait_for(partial(self._find_shard, folder, rank), what, self._report, self._must_end)
        return found

    def _must_end(self) -> bool:
        return self._is_ending()  # what it is changes while a thread waits

    def _find_shard(self, folder: StepFolder, rank: int) -> list[Part] | None:
        """Return the parts of another rank; None while it has left none in this start.

        Raises:
            StorageError: The bucket fails, or it was not this run that wrote them: rank 0 would sign them.
        """
        path = _shard_path(folder, rank)
        found = self._store.find(path)
        if found is None:
            return None
        try:
            written: Any = json.loads(found.data)
            text, signature = written["shard"].encode(), bytes.fromhex(written["signature"])
            if self._run.key and not is_signature(self._run.key, path, text, signature):
                raise StorageError(f"{self._store.uri}/{path} does not carry the signature of this run")
            content: Any = json.loads(text)
            parts, start = [Part.from_json(part, PROGRAM_FORMAT) for part in content["parts"]], content["start"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{self._store.uri}/{path} cannot be read: {error}") from error
        return parts if start == self._start else None

    def _publish(self, folder: StepFolder, save: Save, parts: tuple[Part, ...]) -> None:
        """Create the manifest, with which the checkpoint is complete, move `latest`, and remove old checkpoints."""
        files = sorted(part.file for part in parts)
        twice = next((one for one, other in itertools.pairwise(files) if one == other), "")
        if twice:
            raise StorageError(f"two ranks have a file {twice}: give each rank's file its own name")
        if blocked := find_blocked_file(files):
            raise StorageError(f"{blocked} is a file of one rank and a folder of another: give one another name")
        manifest = Manifest(
            step=save.step,
            run_id=self._run.run_id,
            attempt=self._run.attempt,
            world=self._world.size if save.sharded else 1,
            time=utc_timestamp(),
            weights_only=False,
            parts=parts,
            data=None,
            config={},
            format=PROGRAM_FORMAT,
            epoch=self._run.epoch,
            meta=save.meta,
            folder=folder.name,
        )
        if self._run.key:
            manifest = sign_manifest(manifest, self._run.key)
        if not self._store.create(folder.manifest, manifest.to_json()):
            raise StorageError(f"{self._store.uri}/{folder.manifest} was created by another process meanwhile")
        try:
            if advance_latest(self._store, folder):
                prune_checkpoints(self._store, self._keep, self._keep_every, folder.epoch)
        except TakenOver:
            raise
        except (StorageError, CorruptCheckpoint) as error:
            self._report(f"note: checkpoint {folder.step} is written, but {error}; the next save tries again")


def _translate_defect(step: int, error: Exception) -> Defect:
    defect = Defect(f"saving checkpoint {step} failed: {type(error).__name__}: {error}")
    defect.__cause__ = error
    return defect


def _format_shard(start: str, parts: tuple[Part, ...]) -> bytes:
    return json.dumps({"start": start, "parts": [part.to_json() for part in parts]}).encode()


def _shard_path(folder: StepFolder, rank: int) -> str:
    return f"{folder.name}/shard-{rank:05d}.json"
