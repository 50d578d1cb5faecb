"""Synchronization of a bucket's folder with a local folder, in either direction, sending only differences.

A plan is made first (`plan_upload`, `plan_download`) and then executed, so a preview is the plan itself.
There is no other state than the two sides: an interrupted run is resumed by planning again, and complete files that
arrived are not sent twice.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias

from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.received_files import ReceivingFolder
from orchestrator.storage.address import check_key
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.objects import ObjectInfo
from orchestrator.storage.source import file_sha256

Reason: TypeAlias = Literal["new", "size", "content"]

FILES_AT_ONCE = 4
LOOKUPS_AT_ONCE = 16
LEFTOVER_AGE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file to copy: its path relative to both sides, its size in bytes, and the difference."""

    path: str
    size: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """The steps of a sync.

    Attributes:
        skipped: local entries that are not files (sockets, broken links) and are ignored.
        outside: links to files outside of the folder, which are neither sent nor deleted in the bucket.
        kept: those of `outside` that an earlier upload with copy_links sent, where `delete` would remove other files.
        leftovers: unfinished downloads of an earlier run that was killed; a download removes them.
    """

    direction: Literal["up", "down"]
    folder: Path
    bucket: Bucket
    prefix: str
    transfers: tuple[Transfer, ...]
    deletes: tuple[str, ...]
    unchanged: int
    skipped: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    leftovers: tuple[Path, ...] = ()

    @property
    def size(self) -> int:
        """The bytes to copy."""
        return sum(transfer.size for transfer in self.transfers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a sync; `path` is the file that advanced."""

    path: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""A callback for every few MiB and at each file's end, from one thread at a time."""


def plan_upload(
    folder: Path, bucket: Bucket, prefix: str = "", *, delete: bool = False, copy_links: bool = False
) -> SyncPlan:
    """Compare a local folder with a bucket's folder.

    A file is sent when there is no such object, the sizes differ, or the SHA-256 stored with the object differs or
    is missing.

    Args:
        folder: The local one.
        bucket: The bucket.
        prefix: Of the bucket's folder.
        delete: Also remove objects without a local file.
        copy_links: Also send files outside of the folder that links in it lead to.

    Raises:
        NotFoundError: the folder does not exist.
        UserError: no object can have a file's name, or an empty folder would delete everything.
    """
    local = _list_local(folder)
    outside = () if copy_links else local.outside
    files = {path: found for path, found in local.files.items() if path not in outside}
    remote = {} if _is_unmade(bucket) else _remote(bucket, prefix)

    def compare(path: str) -> Transfer | None:
        size, there = files[path].st_size, remote.get(path)
        if there is None or there.size != size:
            return Transfer(path, size, "new" if there is None else "size")
        same = file_sha256(folder / path) == bucket.sha256(_join(prefix, path))
        return None if same else Transfer(path, size, "content")

    transfers = _compare_all(compare, files)
    deletes = _deletes(remote.keys() - local.files.keys(), str(folder), bool(files)) if delete else ()
    unchanged = len(files) - len(transfers)
    return SyncPlan(
        direction="up",
        folder=folder,
        bucket=bucket,
        prefix=prefix,
        transfers=transfers,
        deletes=deletes,
        unchanged=unchanged,
        skipped=local.skipped,
        outside=outside,
        kept=tuple(path for path in outside if delete and path in remote),
    )


def plan_download(bucket: Bucket, prefix: str, folder: Path, *, delete: bool = False) -> SyncPlan:
    """Compare a bucket's folder with a local one, which need not exist; `delete` also removes other local files.

    An object is fetched when there is no such file, the sizes differ, or its stored SHA-256 is not the file's.
    Objects of other programs have none: there, equal size and time (a download keeps the time) mean equal.
    """
    local = _list_local(folder) if folder.exists() else _Local({}, (), (), ())
    remote = _without_folder_markers(_remote(bucket, prefix))

    def compare(path: str) -> Transfer | None:
        there, here = remote[path], local.files.get(path)
        if here is None or here.st_size != there.size:
            return Transfer(path, there.size, "new" if here is None else "size")
        stored = bucket.sha256(_join(prefix, path))
        same_time = int(here.st_mtime) == int(there.modified.timestamp())
        same = file_sha256(folder / path) == stored if stored else same_time
        return None if same else Transfer(path, there.size, "content")

    transfers = _compare_all(compare, remote)
    source = bucket.uri_of(prefix)
    deletes = _deletes(local.files.keys() - remote.keys(), source, bool(remote)) if delete else ()
    unchanged = len(remote) - len(transfers)
    return SyncPlan(
        direction="down",
        folder=folder,
        bucket=bucket,
        prefix=prefix,
        transfers=transfers,
        deletes=deletes,
        unchanged=unchanged,
        skipped=local.skipped,
        leftovers=local.leftovers,
    )


def run_sync(plan: SyncPlan, on_progress: OnProgress | None = None, *, files_at_once: int = FILES_AT_ONCE) -> None:
    """Execute a plan: copies first, deletions only when every copy succeeded.

    Only what blocks a copy on a disk (a file where a folder must be, or the reverse) is deleted before it.
    The first failure, and Ctrl-C, stop the other copies; complete files that arrived stay. Memory is bounded by
    about 32 MiB times `files_at_once`. Raises what Bucket.upload_file and Bucket.download_into raise.
    """
    in_the_way = _in_the_way(plan)
    _delete(plan, in_the_way)
    meter = _Meter(len(plan.transfers), plan.size, on_progress)
    with _open_target(plan) as target, ThreadPoolExecutor(files_at_once, thread_name_prefix="sync") as pool:
        copies = [pool.submit(_copy, plan, target, transfer, meter) for transfer in plan.transfers]
        try:
            _first_failure(copies)
        finally:
            meter.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    _delete(plan, [path for path in plan.deletes if path not in in_the_way])
    for path in plan.leftovers:
        with translate_disk_errors(f"delete {path}"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Local:
    files: dict[str, os.stat_result]
    skipped: tuple[str, ...]
    outside: tuple[str, ...]
    leftovers: tuple[Path, ...]


class _Stopped(Exception):
    """The end of a copy because another one failed; not raised outside this module."""


class _Meter:
    """The sum of progress from several threads."""

    def __init__(self, files: int, size: int, on_progress: OnProgress | None) -> None:
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._files, self._size, self._on_progress = files, size, on_progress
        self._files_done = self._bytes_done = 0

    def moved(self, path: str, count: int) -> None:
        if self.stop.is_set():
            raise _Stopped
        self._report(path, 0, count)

    def finished(self, path: str) -> None:
        self._report(path, 1, 0)

    def _report(self, path: str, files: int, count: int) -> None:
        with self._lock:
            self._files_done += files
            self._bytes_done += count
            if self._on_progress is not None:
                now = Progress(
                    path=path,
                    files_done=self._files_done,
                    files=self._files,
                    bytes_done=self._bytes_done,
                    bytes=self._size,
                )
                self._on_progress(now)


def _open_target(plan: SyncPlan) -> AbstractContextManager[ReceivingFolder | None]:
    """Return the folder that a download writes to; None for an upload, and where nothing is written."""
    if plan.direction == "up" or not plan.transfers:
        return nullcontext()
    with translate_disk_errors(f"write {plan.folder}"):
        return ReceivingFolder(plan.folder)


def _copy(plan: SyncPlan, target: ReceivingFolder | None, transfer: Transfer, meter: _Meter) -> None:
    def on_bytes(count: int) -> None:
        meter.moved(transfer.path, count)

    key = _join(plan.prefix, transfer.path)
    if target is None:
        plan.bucket.upload_file(plan.folder / transfer.path, key, on_bytes)
    else:
        plan.bucket.download_into(target, transfer.path, key, on_bytes)
    meter.finished(transfer.path)


def _in_the_way(plan: SyncPlan) -> set[str]:
    """Return the deletions that a copy to a disk requires. Clouds have no folders that could collide."""
    if plan.direction == "up" and plan.bucket.address.scheme != "file":
        return set()
    targets = {transfer.path for transfer in plan.transfers}
    folders = {folder for path in targets for folder in _parents(path)}
    return {path for path in plan.deletes if path in folders or not targets.isdisjoint(_parents(path))}


def _parents(path: str) -> list[str]:
    return [path[:end] for end in range(len(path)) if path[end] == "/"]


def _delete(plan: SyncPlan, paths: Iterable[str]) -> None:
    if plan.direction == "up":
        plan.bucket.delete_all(_join(plan.prefix, path) for path in paths)
        return
    for name in paths:
        with translate_disk_errors(f"delete {plan.folder / name}"):
            (plan.folder / name).unlink(missing_ok=True)
            for folder in _parents(name)[::-1]:  # as a bucket, a synced folder keeps no empty folders
                if any((plan.folder / folder).iterdir()):
                    break
                (plan.folder / folder).rmdir()


def _first_failure(copies: Iterable[Future[None]]) -> None:
    """Wait until all succeeded or one failed; raise that failure."""
    waiting = set(copies)
    while waiting:
        done, waiting = wait(waiting, timeout=1.0, return_when="FIRST_EXCEPTION")
        for copy in done:
            copy.result()


def _compare_all(compare: Callable[[str], Transfer | None], paths: Iterable[str]) -> tuple[Transfer, ...]:
    ordered = sorted(paths, key=str.encode)
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="compare") as pool:
        try:
            return tuple(found for found in pool.map(compare, ordered) if found is not None)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _remote(bucket: Bucket, prefix: str) -> dict[str, ObjectInfo]:
    return {_below(prefix, info.path): info for info in bucket.list(prefix)}


def _is_unmade(bucket: Bucket) -> bool:
    """Return whether a file: bucket has no folder yet, which the first write makes. A cloud's bucket must exist."""
    return bucket.address.scheme == "file" and not Path(bucket.address.container).exists()


def _list_local(folder: Path) -> _Local:
    """List every regular file below a folder; links to files count, also outside, and those to folders do not."""
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "there is no such folder"
        raise NotFoundError(f"cannot sync {folder}", why, f"ls -ld {quote(str(folder))}")
    files: dict[str, os.stat_result] = {}
    skipped: list[str] = []
    outside: list[str] = []
    leftovers: list[Path] = []
    root = folder.resolve()
    with translate_disk_errors(f"read {folder}"):
        for parent, folders, names in os.walk(folder, onerror=_raise):
            skipped += [_relative(folder, parent, name) for name in folders if Path(parent, name).is_symlink()]
            for name in names:
                path = Path(parent, name)
                if re.fullmatch(r"\.orch-[0-9a-f]{16}\.part", name):
                    leftovers += [path] if time.time() - path.stat().st_mtime > LEFTOVER_AGE_S else []
                elif path.is_file():
                    relative = check_key(_relative(folder, parent, name))
                    files[relative] = path.stat()
                    outside += [relative] if path.is_symlink() and not path.resolve().is_relative_to(root) else []
                else:
                    skipped.append(_relative(folder, parent, name))
    return _Local(files, tuple(sorted(skipped)), tuple(sorted(outside)), tuple(leftovers))


def _raise(error: OSError) -> None:
    raise error


def _relative(folder: Path, parent: str, name: str) -> str:
    return Path(parent, name).relative_to(folder).as_posix()


def _without_folder_markers(remote: dict[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Drop the empty objects that consoles make to show a folder; refuse a real object of a folder's name."""
    folders = {folder for path in remote for folder in _parents(path)}
    for path in folders & remote.keys():
        if remote[path].size:
            why = "it is both an object and a folder, which a disk cannot hold"
            raise StorageError(f"cannot copy {path}", why, "rename the object")
    return {check_key(path): info for path, info in remote.items() if path and path not in folders}


def _deletes(extra: Iterable[str], source: str, source_has_files: bool) -> tuple[str, ...]:
    paths = tuple(sorted(extra, key=str.encode))
    if paths and not source_has_files:
        why = f"{source} is empty, so --delete would remove all {len(paths)} files on the other side"
        raise UserError("refusing to sync", why, "if you mean it, use: orch storage rm -r")
    return paths


def _join(prefix: str, path: str) -> str:
    prefix = prefix.strip("/")
    return f"{prefix}/{path}" if prefix else path


def _below(prefix: str, path: str) -> str:
    prefix = prefix.strip("/")
    return path[len(prefix) + 1 :] if prefix else path
