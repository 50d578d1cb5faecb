"""Downloading a run's checkpoint: verified parts first, then the manifest, so incomplete copies are recognised.

A complete part that exists is not downloaded again: an interrupted download resumes.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.training.process import run_trainer
from orchestrator.errors import NotFoundError, OrchError, StorageError, UserError
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.storage.address import is_bucket_uri
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import (
    Checkpoint,
    Part,
    Skipped,
    checkpoints_path,
    list_checkpoints,
    name_description,
    read_description,
    read_same_manifest,
)
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.sync import LEFTOVER_AGE_S, OnProgress, Progress
from orchestrator.store.lookup import suggest_run
from orchestrator.task.model import Task

_FETCHERS = 4  # concurrent downloads
_MANIFEST = "manifest.json"
_EXPORT_DEADLINE_S = 4 * 3600.0  # a model of 70B is written at the disk's rate


@dataclass(frozen=True, slots=True)
class RunLocation:
    """A run and the bucket that holds it."""

    bucket: Bucket
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadedCheckpoint:
    """A checkpoint on this computer.

    Attributes:
        checkpoint: The checkpoint.
        folder: The folder of its step.
        fetched: Bytes downloaded by this call.
        skipped: Newer steps that are incomplete.
    """

    checkpoint: Checkpoint
    folder: Path
    fetched: int
    skipped: tuple[Skipped, ...]


def find_run(name: str, bucket: str | None) -> RunLocation:
    """Find a run by its id, its cluster (its last run), or its folder in a bucket.

    Raises:
        NotFoundError: No such run is on record, and no bucket is given.
        UserError: The name is a bucket, or the run has none.
    """
    if is_bucket_uri(name):
        return find_run_in_bucket(name, bucket)
    with open_reader() as reader:
        job = reader.last_run_of(name)
        if job is None:
            found = reader.find_run(name)
            job = found[1] if found is not None else None
        near = suggest_run(reader, name)
    if job is None:
        return find_run_in_bucket(name, bucket, near)
    return locate_recorded_run(job.run_id, bucket or Task.from_json(job.task).checkpoint.bucket, job.task)


def find_run_in_bucket(name: str, bucket: str | None, near: str = "") -> RunLocation:
    """Return a run that is not on record.

    Args:
        name: Its id, or its folder in a bucket.
        bucket: The bucket of an id.
        near: The recorded runs with the nearest names, in words.

    Raises:
        NotFoundError: No bucket is given.
        UserError: The name is a bucket.
    """
    if is_bucket_uri(name):
        whole = name.rstrip("/").removesuffix("/checkpoints")
        place, _, run_id = whole.rpartition("/")
        if not place.partition("://")[2]:
            raise UserError(f"{name} names a bucket, not a run", "", f"name the run's folder: {whole}/RUN_ID")
        return RunLocation(open_project_bucket(place), run_id)
    if bucket is None:
        raise NotFoundError(
            f"no cluster and no run called '{name}' is on record here",
            near or "a run from another computer is found through its bucket",
            f"orch pull {name} --bucket URI",
        )
    return RunLocation(open_project_bucket(bucket), name)


def locate_recorded_run(run_id: str, place: str, task: str = "") -> RunLocation:
    """Return a run on record, whose task may name an identity for its bucket. Raises UserError where it has none."""
    if not place:
        raise UserError(
            f"run {run_id} has no bucket, so it has no checkpoints",
            "checkpoints are kept only when the task names a bucket",
            "launch it again with --bucket URI",
        )
    return RunLocation(open_project_bucket(place, task=task), run_id)


def choose_checkpoint(run: RunLocation, step: int | None) -> tuple[Checkpoint, tuple[Skipped, ...]]:
    """Return that step, or the newest complete one, and the newer ones that are incomplete.

    Raises:
        NotFoundError: There is no such checkpoint.
        StorageError: There is no complete one.
    """
    found = list_checkpoints(run.bucket, run.run_id)
    where = run.bucket.uri_of(checkpoints_path(run.run_id))
    if step is not None:
        found = [entry for entry in found if entry.step == step] or _no_such_step(found, step, where)
    passed = tuple(entry for entry in found if isinstance(entry, Skipped))
    for entry in found:
        if isinstance(entry, Checkpoint):
            return entry, tuple(skipped for skipped in passed if skipped.step > entry.step)
    if passed:
        raise StorageError(
            f"no checkpoint in {where} is complete" if step is None else f"checkpoint {step} in {where} is incomplete",
            f"step {passed[0].step}: {passed[0].reason}",
            f"orch storage ls -r {where}",
        )
    raise NotFoundError(f"there are no checkpoints in {where}", "", f"orch storage ls -r {run.bucket.uri}")


def download_checkpoint(
    run: RunLocation,
    folder: Path,
    step: int | None,
    progress: OnProgress,
    agree: Callable[[int], None] = lambda _bytes: None,
) -> DownloadedCheckpoint:
    """Download into FOLDER/step-00001200.

    Args:
        run: The run.
        folder: For all checkpoints of it.
        step: This one; None for the newest complete one.
        progress: Called while it moves.
        agree: Called with the bytes to download before any of them moves; it raises to stop.

    Raises:
        StorageError: A part is damaged, or the disk is full.
        OrchError: What Bucket methods raise.
    """
    checkpoint, skipped = choose_checkpoint(run, step)
    target = folder / f"step-{checkpoint.step:08d}"
    manifest = read_same_manifest(run.bucket, checkpoint)
    with translate_disk_errors(f"write {target}"):
        target.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        present = target / _MANIFEST
        if present.exists() and present.read_bytes() != manifest:
            present.unlink()  # of another start of the run: its parts are about to be replaced
    parts = checkpoint.manifest.parts
    agree(_measure_missing(target, checkpoint))
    tally = _Tally(files=len(parts), bytes=checkpoint.size, report=progress)
    with (
        _open_target(target, checkpoint, len(manifest)) as receiving,
        ThreadPoolExecutor(_FETCHERS, thread_name_prefix="pull") as pool,
    ):
        jobs = [pool.submit(_fetch, run.bucket, checkpoint.path, part, receiving, tally) for part in parts]
        try:
            fetched = sum(job.result() for job in jobs)
        except BaseException as error:
            tally.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, NotFoundError):
                raise StorageError(
                    f"checkpoint {checkpoint.step} was removed while it was downloaded",
                    "the run continues, and keeps only its newest checkpoints",
                    "the same command again downloads the newest; checkpoint.keep=N of the run keeps more",
                ) from error
            raise
        _fetch_description(run.bucket, checkpoint, folder)
        with translate_disk_errors(f"write {present}"), receiving.write_file(_MANIFEST, flush=True) as write:
            write(manifest)
    return DownloadedCheckpoint(checkpoint=checkpoint, folder=target, fetched=fetched, skipped=skipped)


def _fetch_description(bucket: Bucket, checkpoint: Checkpoint, folder: Path) -> None:
    """Download the description of model and tokenizer beside the folders of steps, unless it is here."""
    digest = checkpoint.manifest.description
    place = folder / name_description(digest)
    with translate_disk_errors(f"write {place}"):
        if digest and not (place.is_file() and _digest(place) == digest):
            text = read_description(bucket, checkpoint)
            if text is not None:
                limits = ReceivingLimits(entries=1, bytes=len(text))
                with (
                    ReceivingFolder(folder, limits) as receiving,
                    receiving.write_file(place.name, flush=True) as write,
                ):
                    write(text)


def _open_target(target: Path, checkpoint: Checkpoint, manifest: int) -> ReceivingFolder:
    """Open the folder for what the manifest lists, and not a byte more."""
    with translate_disk_errors(f"write {target}"):
        files = [part.target for part in checkpoint.manifest.parts]
        folders = {str(folder) for file in files for folder in PurePosixPath(file).parents}
        limits = ReceivingLimits(entries=len(files) + len(folders) + 1, bytes=checkpoint.size + manifest)
        return ReceivingFolder(target, limits)


def _measure_missing(target: Path, checkpoint: Checkpoint) -> int:
    """Return the bytes of the checkpoint that are not here yet. Raises StorageError where the disk cannot hold them."""
    with translate_disk_errors(f"read {target}"):
        places = [(part, target / part.target) for part in checkpoint.manifest.parts]
        missing = sum(part.size for part, place in places if not place.is_file() or place.stat().st_size != part.size)
        free = shutil.disk_usage(target).free
    if missing > free:
        raise StorageError(
            f"checkpoint {checkpoint.step} does not fit into {target}",
            f"{missing / 1e9:,.1f} GB to download, {free / 1e9:,.1f} GB free",
            "name a folder on a larger disk: orch pull NAME FOLDER",
        )
    return missing


def export_checkpoint(downloaded: DownloadedCheckpoint, folder: Path, tick: Callable[[float], None]) -> list[str]:
    """Let the trainer write the weights for Hugging Face's libraries, and return its lines: notes, then the result.

    Raises:
        OrchError: The export failed.
    """
    answer = run_trainer(["export", str(downloaded.folder), str(folder)], deadline=_EXPORT_DEADLINE_S, tick=tick)
    if answer.status:
        raise OrchError(
            "the checkpoint is here, but was not exported",
            answer.complaint,
            f"python -m trainer export {downloaded.folder} {folder}   (needs numpy)",
        )
    return answer.out.strip().splitlines() or [""]


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Progress of all downloads together; `stop` is set when one of them failed."""

    files: int
    bytes: int
    report: OnProgress
    files_done: int = 0
    bytes_done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, count: int, *, files: int = 0) -> None:
        """Count bytes and files, and report the totals."""
        with self.lock:
            self.bytes_done += count
            self.files_done += files
            self.report(
                Progress(
                    path=name,
                    files_done=self.files_done,
                    files=self.files,
                    bytes_done=self.bytes_done,
                    bytes=self.bytes,
                )
            )


class _Stopped(Exception):
    """The end of a download because another one failed; not raised outside this module."""


def _fetch(bucket: Bucket, path: str, part: Part, target: ReceivingFolder, tally: _Tally) -> int:
    """Return the bytes that were downloaded; 0 when the part was here."""
    place = target.folder / part.target
    with translate_disk_errors(f"read {place}"):
        if place.is_file() and place.stat().st_size == part.size and _digest(place) == part.sha256:
            tally.add(part.name, part.size, files=1)
            return 0
    digest = hashlib.sha256()
    # Errors of the chunks are translated already, so an OSError here is of our disk.
    with translate_disk_errors(f"write {place}"), target.write_file(part.target, flush=True) as write:
        for chunk in bucket.read_chunks(f"{path}/{part.name}"):
            if tally.stop.is_set():
                raise _Stopped
            write(chunk)
            digest.update(chunk)
            tally.add(part.name, len(chunk))
        if digest.hexdigest() != part.sha256:
            raise StorageError(
                f"{bucket.uri_of(path)}/{part.name} is damaged",
                "its SHA-256 is not the manifest's",
                "take an older one: orch pull RUN --step N",
            )
    tally.add(part.name, 0, files=1)
    return part.size


def _remove_leftovers(folder: Path) -> None:
    """Delete what a killed download left long ago; a younger file may belong to a running one."""
    for path in folder.rglob(".orch-*.part"):
        if time.time() - path.stat().st_mtime > LEFTOVER_AGE_S:
            path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_such_step(found: list[Checkpoint | Skipped], step: int, where: str) -> list[Checkpoint | Skipped]:
    complete = [str(entry.step) for entry in found if isinstance(entry, Checkpoint)]
    available = f"complete ones: steps {', '.join(complete[:8])}" if complete else "there is no complete one"
    raise NotFoundError(f"there is no checkpoint {step} in {where}", available, "leave --step out for the newest")
