"""`orch_run.init()` and the run that it returns: what an own program calls."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..checkpoint.claim import Beat, hold_epoch, wait_for_access
from ..checkpoint.epoch import Epoch
from ..checkpoint.manifest import (
    Manifest,
    run_folder,
)
from ..checkpoint.pointer import fence_latest
from ..checkpoint.store import Store, open_store
from ..environment import Run as Origin
from ..environment import World, read_run, read_world
from ..errors import ConfigError, Exit
from ..heartbeat import Heartbeat
from ..signals import StopRequest
from .arguments import parse_numbers, parse_whole
from .end import end_without_bucket
from .files import copy_files, list_files, reporting_disk
from .metrics import MetricsParts
from .restored import note_saved
from .restorer import Restorer
from .saver import Save, Saver
from .staging import Staging, open_staging
from .start import Agreement, name_start
from .trust import make_trust

STOPPED = int(Exit.STOPPED)
"""The status of a program that was stopped and has saved: orch starts it again to resume."""
_DEFAULT_FOLDER = "orch-run"


class Latest(NamedTuple):
    """The newest complete checkpoint.

    Attributes:
        step: Its step.
        meta: What `save` was given.
        size: Bytes of its files.
        folder: Name of its folder in the bucket.
    """

    step: int
    meta: dict[str, Any]
    size: int
    folder: str


def init(uri: str = "", *, keep: int = 3, keep_every: int = 0, environ: Mapping[str, str] = os.environ) -> Run:
    """Return this process's part of the run; call it once, on every rank.

    Args:
        uri: Folder of the checkpoints: a path, file://, s3:// or gs:// URI; "" for that of the task's bucket under
            orch, and ./orch-run/checkpoints elsewhere.
        keep: Newest complete checkpoints that are kept.
        keep_every: Also keep each checkpoint at a multiple of this step; 0 for none.
        environ: What orch or torchrun has set.

    Raises:
        ConfigError: The environment or an argument has a wrong value.
        StorageError: The folder cannot be opened, or another rank does not come. Under orch, where its reason does not
            pass and the program does not catch it, the process ends with status 16 and is not started again.
        TakenOver: A later attempt of the run is at work.
    """
    keep, keep_every = parse_whole("init(): keep", keep, 1), parse_whole("init(): keep_every", keep_every, 0)
    origin, world = read_run(environ), read_world(environ)
    under_orch = "ORCH_RANK" in environ
    if under_orch:
        end_without_bucket(origin, world, partial(_report_line, world.rank, world.size))
    place = uri or origin.checkpoint_uri or ("" if under_orch else f"{_DEFAULT_FOLDER}/checkpoints")
    if uri and run_folder(uri) != run_folder(origin.checkpoint_uri):
        origin = replace(origin, epoch=0)  # the launcher claimed another folder
    if not place:
        report = partial(_report_line, world.rank, world.size)
        run = Run(origin, world, open_staging(origin, world, "", environ, report), None, None, None)
        run.report("note: the task names no bucket, so nothing is saved: add checkpoint: {bucket: ...} to it")
        return run
    return _open_run(place, origin, world, keep, keep_every, environ)


def _open_run(uri: str, origin: Origin, world: World, keep: int, keep_every: int, environ: Mapping[str, str]) -> Run:
    store = open_store(uri, create=True)
    place = open_store(run_folder(store.uri), create=True)
    start = name_start(read_run(environ), world, environ)
    report = partial(_report_line, world.rank, world.size)
    agreement = Agreement(place=place, name=start, is_first=world.is_first, report=report, key=origin.key, choices=[])
    beat: Beat | None = None
    if world.is_first:
        epoch = wait_for_access(partial(_hold, store, place, origin), store.retry_seconds, report)
        origin = replace(origin, epoch=epoch.epoch)
        agreement.epoch = epoch.epoch
        agreement.publish()
        beat = _begin_beat(place, epoch)
    else:
        origin = replace(origin, epoch=agreement.follow_epoch())
        agreement.epoch = origin.epoch
    staging = open_staging(origin, world, place.uri, environ, report)
    saver = Saver(store, origin, world, start, keep, keep_every, report)
    if not world.is_first:
        saver.remove_own_shards()
    restorer = Restorer(
        store=store,
        agreement=agreement,
        saver=saver,
        staging=staging,
        world=world,
        trust=make_trust(origin, store, resumable=_is_of_launcher(store, environ)),
        epoch=origin.epoch,
        report=report,
    )
    return Run(origin, world, staging, saver, restorer, beat)


def _is_of_launcher(store: Store, environ: Mapping[str, str]) -> bool:
    """Return whether orch launched the program with this folder of checkpoints."""
    uri = environ.get("ORCH_CHECKPOINT_URI", "")
    return "ORCH_RANK" in environ and run_folder(uri) == run_folder(store.uri)


def _hold(store: Store, place: Store, origin: Origin) -> Epoch:
    epoch = hold_epoch(place, origin)
    fence_latest(store, epoch.epoch)
    return epoch


def _begin_beat(place: Store, epoch: Epoch) -> Beat:
    beat = Beat(place, epoch)
    beat.__enter__()  # a thread that ends with the process
    return beat


class Run:
    """A start of the user's program, on one rank.

    Attributes:
        rank: Of this process, from 0.
        world: Number of processes.
        local_rank: Among the processes of this host.
        attempt: From 1: how often the run has been started.
        run_id: The same over all attempts.
        every: Steps between checkpoints that the task asks for (checkpoint.every); 0 if it does not.
    """

    def __init__(
        self,
        origin: Origin,
        world: World,
        staging: Staging,
        saver: Saver | None,
        restorer: Restorer | None,
        beat: Beat | None,
    ) -> None:
        """Take what `init` has opened; programs call `init`."""
        self.rank, self.world, self.local_rank = world.rank, world.size, world.local_rank
        self.attempt, self.run_id = origin.attempt, origin.run_id
        self.every = origin.every
        self.saver = saver
        self._staging, self._process = staging, os.getpid()
        self._origin, self._restorer, self._beat = origin, restorer, beat
        self._heartbeat = Heartbeat(origin.heartbeat_file, world, self.report)
        self._metrics: MetricsParts | None = None
        self._stop: StopRequest | None = None
        self._heartbeat.beat(None, "starting")
        self._closed = self._said_unsaved = False
        _call_at_end(self.close)

    def report(self, line: str) -> None:
        """Print a line to standard error, where the logs of orch have it."""
        _report_line(self.rank, self.world, line)

    def new_folder(self) -> Path:
        """Return a new empty folder on the local disk; `save` takes it over without a copy, and removes it.

        Raises:
            ConfigError: The run is closed.
            TakenOver: A later attempt of the run is at work.
            StorageError: The disk fails, or three saves in a row have failed.
        """
        self._check_open("new_folder()")
        self.raise_failure()
        with reporting_disk("new_folder()"):
            return self._staging.new_folder()

    def save(
        self, folder: str | os.PathLike[str], step: int, meta: Mapping[str, Any] | None = None, *, sharded: bool = False
    ) -> bool:
        """Save the files of a folder as the checkpoint of a step; they are uploaded in the background.

        A copy is made first, unless the folder is of `new_folder`. The checkpoint exists once all files are in the
        bucket, and never in part. With two saves waiting, it waits.

        Args:
            folder: With the files; folders below it are kept, empty ones are not.
            step: Steps that are done.
            meta: Anything that JSON has; `latest` returns it.
            sharded: False: only rank 0's files count, and other ranks return immediately. True: every rank calls it,
                with files of other names; the checkpoint is complete when those of all ranks are there.

        Returns:
            Whether this rank saves anything.

        Raises:
            ConfigError: The folder is empty, or the step or meta is impossible.
            TakenOver: A later attempt of the run is at work: this one writes nothing more.
            StorageError: Three saves in a row have failed, or the disk fails.
        """
        self._check_open("save()")
        self.raise_failure()
        saver, source = self.saver, Path(folder)
        own = self._staging.holds(source)
        if saver is None or (self.rank and not sharded):
            if own:
                shutil.rmtree(source, ignore_errors=True)
            return False
        step = parse_whole("save(): step", step, 1)
        try:
            given = json.loads(json.dumps(dict(meta or {}), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"save(meta=...): {error}: give what JSON has") from error
        with reporting_disk(f"save({str(source)!r})"):
            names, place = list_files(source), source
            if not own:
                note_saved(source, names, self.report)
                place = self.new_folder()
                copy_files(source, names, place)
        saver.submit(Save(step=step, place=place, names=names, meta=given, sharded=sharded))
        return True

    def latest(self) -> Latest | None:
        """Return the newest complete checkpoint; None without one. It reads no more than the manifest.

        Raises:
            StorageError: The bucket fails.
        """
        if self._restorer is None:
            return None
        manifest = next((one for one in self._restorer.list_complete() if isinstance(one, Manifest)), None)
        return None if manifest is None else _describe(manifest)

    def restore(self, folder: str | os.PathLike[str], files: str = "*") -> int | None:
        """Write the newest complete checkpoint to a folder; every rank calls it, and all get the same one.

        A checkpoint whose checksums are wrong is passed over for the one before it. Saves that this rank has begun are
        written first, or have failed: where every rank saved a step, call it on all of them.

        Args:
            folder: Any but the program's own. Files that this run restored or saved there are replaced or removed.
                Others stay; where the checkpoint has their name, they are moved to a folder .orch-restored.kept.
                Processes of a host may share it.
            files: Only paths that match, such as "*.safetensors"; rank 0 reads all, to verify them.

        Returns:
            Its step; None for a run without checkpoints.

        Raises:
            ConfigError: The folder holds the program.
            StorageError: The bucket fails, the checkpoint's writer is unknown, it is damaged on this rank alone, or
                rank 0 does not call it.
        """
        found = self._restorer.restore(Path(folder), files) if self._restorer is not None else None
        if found is None:
            if self.rank == 0 and self.attempt > 1 and not self._said_unsaved and self._restorer is not None:
                self._said_unsaved = True
                self.report("no checkpoint: earlier attempts ended before their first save; from the first step again")
            return None
        size = f"{found.size / 1e6:,.1f} MB"
        self.report(f"resumed from step {found.step} of attempt {found.attempt} ({size}), in {self.uri}")
        return found.step

    @property
    def uri(self) -> str:
        """Where the checkpoints are; "" for nowhere."""
        return "" if self._restorer is None else self._restorer.store.uri

    def heartbeat(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Report that steps are done, for `orch queue`, hangs and rehearsals; cheap enough for every step.

        Args:
            step: Steps that are done.
            metrics: Numbers of the step, such as loss and tokens_per_s; rank 0's are drawn on the run's page.

        Raises:
            ConfigError: The step or a metric is no number.
            TakenOver: A later attempt of the run is at work.
            StorageError: The first save failed for a reason that does not pass, or three in a row have failed.
        """
        step = parse_whole("heartbeat(): step", step, 0)
        numbers = parse_numbers(metrics) if metrics is not None else {}
        self._heartbeat.beat(step)
        if numbers and self.rank == 0 and self._restorer is not None:
            if self._metrics is None:
                self._metrics = MetricsParts(self._restorer.agreement.place, self._origin, self.report)
            self._metrics.write(step, numbers)
        self.raise_failure()

    def should_stop(self) -> bool:
        """Return whether this process was asked to stop, by SIGTERM or SIGHUP: save, `wait`, and exit with STOPPED.

        The first call makes the process survive the first SIGTERM. Ranks are asked at different moments: all must agree
        on a step before they stop, for example by an all-reduce of the answers.
        """
        if self._stop is None:
            self._stop = StopRequest().__enter__()
        return self._stop.requested

    def wait(self) -> None:
        """Wait until every save of this rank is written.

        Raises:
            StorageError: The last one failed.
        """
        if self.saver is not None:
            self.saver.wait()

    def close(self) -> None:
        """Write what is left; at the end of the interpreter it is called by itself.

        It waits for other ranks that still save the same checkpoint, until SIGTERM comes.
        """
        if self._closed or os.getpid() != self._process:  # a forked process, such as a worker that loads data, ends
            return
        self._closed = True
        if self.saver is not None:
            self.saver.finish(lambda: self._stop is not None and self._stop.requested)
        self._staging.remove()
        if self._metrics is not None:
            self._metrics.close()
        if self._beat is not None:
            self._beat.__exit__(None, None, None)

    def raise_failure(self) -> None:
        """Raise TakenOver, or the StorageError of too many failed saves."""
        if self._beat is not None:
            self._beat.raise_failure()
        if self.saver is not None:
            self.saver.raise_failure()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ConfigError(f"{call}: the run is closed: save before close()")


def _report_line(rank: int, world: int, line: str) -> None:
    prefix = f"orch_run[{rank}]: " if world > 1 else "orch_run: "
    with suppress(OSError):
        sys.stderr.write(f"{prefix}{line}\n")
        sys.stderr.flush()


def _call_at_end(close: Callable[[], None]) -> None:
    """Call it when the interpreter ends, while pools of threads still take work: functions of atexit come too late."""
    getattr(threading, "_register_atexit", atexit.register)(close)


def _describe(manifest: Manifest) -> Latest:
    return Latest(manifest.step, dict(manifest.meta), manifest.size, manifest.folder)
