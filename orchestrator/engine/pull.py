"""Bringing a run's checkpoint home: its parts, verified, then its manifest, so that half of it is never taken for one.

A part that is there and whole is not fetched again: an interrupted pull goes on where it was.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.known import open_reader
from orchestrator.engine.trainer_process import ask
from orchestrator.errors import NotFoundError, OrchError, StorageError, UserError
from orchestrator.spec.task import Task
from orchestrator.storage.address import is_bucket_uri
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import Checkpoint, Part, Skipped, checkpoints_path, list_checkpoints
from orchestrator.storage.faults import disk_border
from orchestrator.storage.sync import LEFTOVER_AGE_S, OnProgress, Progress

_FETCHERS = 4  # parts that are fetched at once
_MANIFEST = "manifest.json"
_EXPORT_DEADLINE_S = 4 * 3600.0  # a model of 70B is written at the disk's rate


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run and where it is."""

    bucket: Bucket
    run_id: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """folder: of the step. fetched: bytes that came now. skipped: newer steps that are not whole."""

    checkpoint: Checkpoint
    folder: Path
    fetched: int
    skipped: tuple[Skipped, ...]


def find_run(name: str, bucket: str | None) -> Wanted:
    """name: a run id, a cluster (its last run), or the run's folder in a bucket. Raises NotFoundError, UserError."""
    if is_bucket_uri(name):
        whole = name.rstrip("/").removesuffix("/checkpoints")
        place, _, run_id = whole.rpartition("/")
        if not place.partition("://")[2]:
            raise UserError(f"{name} names a bucket, not a run", "", f"name the run's folder: {whole}/RUN_ID")
        return Wanted(Bucket.open(place), run_id)
    with open_reader() as reader:
        job = reader.last_run_of(name)
        if job is None:
            found = reader.find_run(name)
            job = found[1] if found is not None else None
    if job is None:
        if bucket is None:
            raise NotFoundError(
                f"no cluster and no run called '{name}' is on record here",
                "a run from another computer is found through its bucket",
                f"orch pull {name} --bucket URI",
            )
        return Wanted(Bucket.open(bucket), name)
    place = bucket or Task.from_json(job.task).checkpoint.bucket
    if not place:
        raise UserError(
            f"run {job.run_id} has no bucket, so it has no checkpoints",
            "checkpoints are kept only when the task names a bucket",
            "launch it again with --bucket URI",
        )
    return Wanted(Bucket.open(place), job.run_id)


def choose(wanted: Wanted, step: int | None) -> tuple[Checkpoint, tuple[Skipped, ...]]:
    """That step, or the newest whole one and the newer ones that are not. Raises NotFoundError, StorageError."""
    found = list_checkpoints(wanted.bucket, wanted.run_id)
    where = wanted.bucket.uri_of(checkpoints_path(wanted.run_id))
    if step is not None:
        found = [entry for entry in found if entry.step == step] or _no_such_step(found, step, where)
    passed = tuple(entry for entry in found if isinstance(entry, Skipped))
    for entry in found:
        if isinstance(entry, Checkpoint):
            return entry, tuple(skipped for skipped in passed if skipped.step > entry.step)
    if passed:
        raise StorageError(
            f"no checkpoint in {where} is whole" if step is None else f"checkpoint {step} in {where} is not whole",
            f"step {passed[0].step}: {passed[0].reason}",
            f"orch storage ls -r {where}",
        )
    raise NotFoundError(f"there are no checkpoints in {where}", "", f"orch storage ls -r {wanted.bucket.uri}")


def pull(wanted: Wanted, folder: Path, step: int | None, progress: OnProgress) -> Pulled:
    """Fetch into FOLDER/step-00001200. Raises what Bucket methods raise, and StorageError for a damaged part."""
    checkpoint, skipped = choose(wanted, step)
    target = folder / checkpoint.path.rpartition("/")[2]
    manifest = wanted.bucket.get(f"{checkpoint.path}/{_MANIFEST}")
    with disk_border(f"write {target}"):
        target.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        present = target / _MANIFEST
        if present.exists() and present.read_bytes() != manifest:
            present.unlink()  # of another attempt at this step: its parts are about to be replaced
    parts = checkpoint.manifest.parts
    _check_room(target, checkpoint)
    tally = _Tally(len(parts), checkpoint.size, progress)
    with ThreadPoolExecutor(_FETCHERS, thread_name_prefix="pull") as pool:
        jobs = [pool.submit(_fetch, wanted.bucket, checkpoint.path, part, target, tally) for part in parts]
        try:
            fetched = sum(job.result() for job in jobs)
        except BaseException as error:
            tally.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, NotFoundError):
                raise StorageError(
                    f"checkpoint {checkpoint.step} was removed while it was fetched",
                    "the run goes on, and keeps only its newest checkpoints",
                    "the same command again fetches the newest; checkpoint.keep=N of the run keeps more",
                ) from error
            raise
    with disk_border(f"write {present}"):
        _replace(present, manifest)
    return Pulled(checkpoint, target, fetched, skipped)


def _check_room(target: Path, checkpoint: Checkpoint) -> None:
    """Raises StorageError before anything is fetched that the disk cannot hold."""
    with disk_border(f"read {target}"):
        here = {path.name: path.stat().st_size for path in target.iterdir() if path.is_file()}
        free = shutil.disk_usage(target).free
    missing = sum(part.size for part in checkpoint.manifest.parts if here.get(part.name) != part.size)
    if missing > free:
        raise StorageError(
            f"checkpoint {checkpoint.step} does not fit into {target}",
            f"{missing / 1e9:,.1f} GB are to be fetched, {free / 1e9:,.1f} GB are free",
            "name a folder on a larger disk: orch pull NAME FOLDER",
        )


def export(pulled: Pulled, folder: Path, tick: Callable[[float], None]) -> str:
    """Let the trainer write the weights for Hugging Face's libraries. Returns its last line. Raises OrchError."""
    answer = ask(["export", str(pulled.folder), str(folder)], deadline=_EXPORT_DEADLINE_S, tick=tick)
    if answer.status:
        raise OrchError(
            "the checkpoint is here, but was not exported",
            answer.complaint,
            f"python -m trainer export {pulled.folder} {folder}   (needs numpy)",
        )
    return (answer.out.strip().splitlines() or [""])[-1]


@dataclass(slots=True)
class _Tally:
    """What all fetchers together have done. stop: one of them failed."""

    files: int
    bytes: int
    report: OnProgress
    files_done: int = 0
    bytes_done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, count: int, *, files: int = 0) -> None:
        with self.lock:
            self.bytes_done += count
            self.files_done += files
            self.report(Progress(name, self.files_done, self.files, self.bytes_done, self.bytes))


def _fetch(bucket: Bucket, path: str, part: Part, target: Path, tally: _Tally) -> int:
    """Returns the bytes that came; 0 when the part was here."""
    place = target / part.name
    with disk_border(f"read {place}"):
        if place.is_file() and place.stat().st_size == part.size and _digest(place) == part.sha256:
            tally.add(part.name, part.size, files=1)
            return 0
    staged = target / f".orch-{secrets.token_hex(8)}.part"
    digest = hashlib.sha256()
    try:
        # What the chunks raise is translated already, so an OSError here is of our disk.
        with disk_border(f"write {place}"):
            with staged.open("xb") as file:
                for chunk in bucket.read_chunks(f"{path}/{part.name}"):
                    if tally.stop.is_set():
                        return 0
                    file.write(chunk)
                    digest.update(chunk)
                    tally.add(part.name, len(chunk))
                file.flush()
                os.fsync(file.fileno())
            if digest.hexdigest() != part.sha256:
                raise StorageError(
                    f"{bucket.uri_of(path)}/{part.name} is damaged",
                    "its SHA-256 is not the manifest's",
                    "take an older one: orch pull RUN --step N",
                )
            staged.replace(place)
    finally:
        with suppress(FileNotFoundError):
            staged.unlink()
    tally.add(part.name, 0, files=1)
    return part.size


def _remove_leftovers(folder: Path) -> None:
    """What a killed pull left long ago; a younger one may belong to another pull that is at work."""
    for path in folder.glob(".orch-*.part"):
        if time.time() - path.stat().st_mtime > LEFTOVER_AGE_S:
            path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(path: Path, data: bytes) -> None:
    staged = path.with_name(f".orch-{secrets.token_hex(8)}.part")
    with staged.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)


def _no_such_step(found: list[Checkpoint | Skipped], step: int, where: str) -> list[Checkpoint | Skipped]:
    whole = [str(entry.step) for entry in found if isinstance(entry, Checkpoint)]
    there = f"whole ones are of steps {', '.join(whole[:8])}" if whole else "there is no whole one"
    raise NotFoundError(f"there is no checkpoint {step} in {where}", there, "leave --step out for the newest")
