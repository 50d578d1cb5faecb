"""Make a folder of a bucket like a local folder, or the other way round, sending only what differs.

A plan is made first (`plan_upload`, `plan_download`); running it is all that happens, so a preview is the plan itself.
There is no state besides the two sides: an interrupted run is continued by planning again, and whole files that
arrived are not sent twice.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.storage.address import check_key
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.faults import disk_border
from orchestrator.storage.objects import ObjectInfo
from orchestrator.storage.source import file_sha256

Reason: TypeAlias = Literal["new", "size", "content"]

FILES_AT_ONCE = 4
LOOKUPS_AT_ONCE = 16
LEFTOVER_AGE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file to copy. path: relative to both sides. size: bytes. reason: what differs."""

    path: str
    size: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a sync will do. `skipped` are local things that are no files (sockets, broken links), and are left alone.

    leftovers: unfinished downloads of an earlier run that was killed; removed by a download.
    """

    direction: Literal["up", "down"]
    folder: Path
    bucket: Bucket
    prefix: str
    transfers: tuple[Transfer, ...]
    deletes: tuple[str, ...]
    unchanged: int
    skipped: tuple[str, ...] = ()
    leftovers: tuple[Path, ...] = ()

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(transfer.size for transfer in self.transfers)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. path: the file that just moved on."""

    path: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called for each few MiB and at each file's end, from one thread at a time."""


def plan_upload(folder: Path, bucket: Bucket, prefix: str = "", *, delete: bool = False) -> SyncPlan:
    """Compare a local folder with a bucket's folder. delete: also remove objects that have no file here.

    A file is sent when there is no such object, the sizes differ, or the SHA-256 stored with the object differs or
    is missing. Raises NotFoundError without the folder, UserError for a file name that no object can have, or when
    an empty folder would delete everything.
    """
    local = _look(folder)
    remote = {} if _is_unmade(bucket) else _remote(bucket, prefix)

    def compare(path: str) -> Transfer | None:
        size, there = local.files[path].st_size, remote.get(path)
        if there is None or there.size != size:
            return Transfer(path, size, "new" if there is None else "size")
        same = file_sha256(folder / path) == bucket.sha256(_join(prefix, path))
        return None if same else Transfer(path, size, "content")

    transfers = _compare_all(compare, local.files)
    deletes = _deletes(remote.keys() - local.files.keys(), str(folder), bool(local.files)) if delete else ()
    unchanged = len(local.files) - len(transfers)
    return SyncPlan("up", folder, bucket, prefix, transfers, deletes, unchanged, local.skipped)


def plan_download(bucket: Bucket, prefix: str, folder: Path, *, delete: bool = False) -> SyncPlan:
    """Compare a bucket's folder with a local one, which need not exist. delete: also remove other local files.

    An object is fetched when there is no such file, the sizes differ, or its stored SHA-256 is not the file's.
    Objects of other programs have none: there, equal size and time (a download keeps the time) mean equal.
    """
    local = _look(folder) if folder.exists() else _Local({}, (), ())
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
    return SyncPlan("down", folder, bucket, prefix, transfers, deletes, unchanged, local.skipped, local.leftovers)


def run(plan: SyncPlan, on_progress: OnProgress | None = None, *, files_at_once: int = FILES_AT_ONCE) -> None:
    """Do what the plan says: copies first, deletions only when every copy succeeded.

    Only what stands in the way of a copy on a disk (a file where a folder must be, or the reverse) goes before it.
    The first failure, and Ctrl-C, stop the other copies; whole files that arrived stay. Memory is bounded by
    about 32 MiB times `files_at_once`. Raises what Bucket.upload_file and Bucket.download_file raise.
    """
    in_the_way = _in_the_way(plan)
    _delete(plan, in_the_way)
    meter = _Meter(len(plan.transfers), plan.size, on_progress)
    with ThreadPoolExecutor(files_at_once, thread_name_prefix="sync") as pool:
        copies = [pool.submit(_copy, plan, transfer, meter) for transfer in plan.transfers]
        try:
            _first_failure(copies)
        finally:
            meter.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    _delete(plan, [path for path in plan.deletes if path not in in_the_way])
    for path in plan.leftovers:
        with disk_border(f"delete {path}"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Local:
    files: dict[str, os.stat_result]
    skipped: tuple[str, ...]
    leftovers: tuple[Path, ...]


class _Stopped(Exception):
    """Ends a copy because another one failed; never leaves this module."""


class _Meter:
    """Adds up progress from several threads."""

    def __init__(self, files: int, size: int, on_progress: OnProgress | None) -> None:
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._files, self._size, self._on_progress = files, size, on_progress
        self._files_done = self._bytes_done = 0

    def moved(self, path: str, count: int) -> None:
        if self.stop.is_set():
            raise _Stopped
        self._tell(path, 0, count)

    def finished(self, path: str) -> None:
        self._tell(path, 1, 0)

    def _tell(self, path: str, files: int, count: int) -> None:
        with self._lock:
            self._files_done += files
            self._bytes_done += count
            if self._on_progress is not None:
                now = Progress(path, self._files_done, self._files, self._bytes_done, self._size)
                self._on_progress(now)


def _copy(plan: SyncPlan, transfer: Transfer, meter: _Meter) -> None:
    def on_bytes(count: int) -> None:
        meter.moved(transfer.path, count)

    key, path = _join(plan.prefix, transfer.path), plan.folder / transfer.path
    if plan.direction == "up":
        plan.bucket.upload_file(path, key, on_bytes)
    else:
        plan.bucket.download_file(key, path, on_bytes)
    meter.finished(transfer.path)


def _in_the_way(plan: SyncPlan) -> set[str]:
    """Deletions without which a copy to a disk cannot be made. The clouds have no folders that could collide."""
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
        with disk_border(f"delete {plan.folder / name}"):
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
    """True for a file: bucket whose folder the first write will make; a cloud's bucket has to be there."""
    return bucket.address.scheme == "file" and not Path(bucket.address.container).exists()


def _look(folder: Path) -> _Local:
    """Every regular file below a folder (links to files count, links to folders are not entered)."""
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "there is no such folder"
        raise NotFoundError(f"cannot sync {folder}", why, f"look: ls -ld {folder}")
    files: dict[str, os.stat_result] = {}
    skipped: list[str] = []
    leftovers: list[Path] = []
    with disk_border(f"read {folder}"):
        for parent, folders, names in os.walk(folder, onerror=_raise):
            skipped += [_relative(folder, parent, name) for name in folders if Path(parent, name).is_symlink()]
            for name in names:
                path = Path(parent, name)
                if re.fullmatch(r"\.orch-[0-9a-f]{16}\.part", name):
                    leftovers += [path] if time.time() - path.stat().st_mtime > LEFTOVER_AGE_S else []
                elif path.is_file():
                    files[check_key(_relative(folder, parent, name))] = path.stat()
                else:
                    skipped.append(_relative(folder, parent, name))
    return _Local(files, tuple(sorted(skipped)), tuple(leftovers))


def _raise(error: OSError) -> None:
    raise error


def _relative(folder: Path, parent: str, name: str) -> str:
    return Path(parent, name).relative_to(folder).as_posix()


def _without_folder_markers(remote: dict[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Drop the empty objects that consoles make to show a folder; refuse a real object of a folder's name."""
    folders = {folder for path in remote for folder in _parents(path)}
    for path in folders & remote.keys():
        if remote[path].size:
            why = "it is an object and a folder at once, which a disk cannot hold"
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
