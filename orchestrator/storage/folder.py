"""A folder on disk as a bucket: whole-file writes, conditional writes and listings as on the clouds.

A write goes to a temporary file, is flushed to disk, and is renamed under a lock of its folder. The lock is a
short-lived file (`flock`), so it also holds between machines that share the folder over NFS 4. A killed writer
leaves at most a temporary file, which no listing shows. Links, pipes and devices in the folder are not used:
trainer/checkpoint/regular_files.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.storage.address import is_unfinished
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.objects import Download, Listing, ObjectInfo, OnBytes, Version
from orchestrator.storage.source import SourceFile
from trainer.checkpoint.regular_files import (
    FolderEntry,
    create_at,
    list_folder,
    open_parent,
    open_regular,
    open_regular_at,
    stat_regular,
)

CHUNK = 1 << 20
"""The bytes of one read or write."""

_LOCK = ".lock#0"
LOCK_DEADLINE_S = 60.0
"""A lock is held for milliseconds; after a minute its holder is stopped or the file system is broken."""


class FolderBackend:
    """The Backend of a `file://` bucket. The absolute folder `root` is made by the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def head(self, key: str) -> ObjectInfo | None:
        with translate_disk_errors(f"read {self._uri(key)}"):
            return self._info(key)

    def get(self, key: str) -> bytes:
        with self.download(key) as download:
            return b"".join(download.chunks)

    def put(self, key: str, data: bytes) -> Version:
        with (
            translate_disk_errors(f"write {self._uri(key)}"),
            self._staged(key, [data]) as staged,
            self._locked(staged.folder, key),
        ):
            return staged.publish()

    def create(self, key: str, data: bytes) -> bool:
        with (
            translate_disk_errors(f"write {self._uri(key)}"),
            self._staged(key, [data]) as staged,
            self._locked(staged.folder, key),
        ):
            if self._info(key) is not None:
                return False
            staged.publish()
            return True

    def replace(self, key: str, data: bytes, expected: Version) -> bool:
        with (
            translate_disk_errors(f"write {self._uri(key)}"),
            self._staged(key, [data]) as staged,
            self._locked(staged.folder, key),
        ):
            found = self._info(key)
            if found is None or found.version != expected:
                return False
            staged.publish()
            return True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with translate_disk_errors(f"list {self._uri(prefix)}"):
            self._require_root()
            yield from self._walk(prefix)

    def list_dir(self, prefix: str) -> Listing:
        with translate_disk_errors(f"list {self._uri(prefix)}"):
            self._require_root()
            folders: list[str] = []
            objects: list[ObjectInfo] = []
            for entry in self._entries(prefix):
                key = f"{prefix}/{entry.name}" if prefix else entry.name
                if entry.file is not None:
                    objects.append(_object_info(key, entry.file))
                elif next(self._walk(key), None) is not None:
                    folders.append(key)
            folders.sort(key=os.fsencode)
            return Listing(tuple(folders), tuple(objects))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with translate_disk_errors(f"delete {self._uri(key)}"):
                self._delete(key)

    def sha256(self, key: str) -> str:
        digest = hashlib.sha256()
        with self.download(key) as download:
            for chunk in download.chunks:
                digest.update(chunk)
        return digest.hexdigest()

    def upload(self, key: str, source: SourceFile, on_bytes: OnBytes) -> None:
        """Copy a file into the bucket. Its SHA-256 is not stored, since a disk can be read again."""
        pieces = source.pieces(CHUNK, on_bytes)
        with (
            translate_disk_errors(f"write {self._uri(key)}"),
            self._staged(key, pieces) as staged,
            self._locked(staged.folder, key),
        ):
            staged.publish()

    @contextmanager
    def download(self, key: str) -> Generator[Download, None, None]:
        doing = f"read {self._uri(key)}"
        with translate_disk_errors(doing):
            reader = self._open(key)
        with reader:
            info = _object_info(key, os.fstat(reader.fileno()))
            yield Download(info, "", _chunks(reader, doing))

    def probe(self, prefix: str) -> None:
        with translate_disk_errors(f"list {self._uri(prefix)}"):
            self._require_root()
            os.scandir(self.root).close()

    def _uri(self, key: str) -> str:
        return f"file://{self.root / key if key else self.root}"

    def _require_root(self) -> None:
        if not self.root.is_dir():
            why = "a file stands there" if self.root.exists() else "the folder does not exist"
            above = next(folder for folder in self.root.parents if folder.is_dir())
            step = f"look above it: ls {above}   or make it: mkdir -p {self.root}"
            raise NotFoundError(f"cannot use file://{self.root} as a bucket", why, step)

    def _info(self, key: str) -> ObjectInfo | None:
        found = stat_regular(self.root, key)
        return None if found is None else _object_info(key, found)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield everything below a folder in the byte order of full keys, as the clouds do."""
        for entry in self._entries(prefix):
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.file is None:
                yield from self._walk(key)
            else:
                yield _object_info(key, entry.file)

    def _entries(self, folder: str) -> Sequence[FolderEntry]:
        """Return the visible entries of a folder in the byte order of their keys in a listing."""
        found = list_folder(self.root, folder)
        visible = [entry for entry in found if entry.file is None or not is_unfinished(entry.name)]
        return sorted(visible, key=lambda entry: os.fsencode(entry.name if entry.file else f"{entry.name}/"))

    def _open(self, key: str) -> BinaryIO:
        try:
            return os.fdopen(open_regular(self.root, key), "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            why, step = "there is no such object", f"list it: orch storage ls file://{self.root}"
            raise NotFoundError(f"cannot read {self._uri(key)}", why, step) from error

    @contextmanager
    def _staged(self, key: str, pieces: Iterable[bytes]) -> Generator[_Staged, None, None]:
        """Write the content to a temporary file beside its target; it is removed if it is not published."""
        temporary = f".part#{secrets.randbits(62)}"
        while True:
            with open_parent(self.root, key, create=True) as (folder, name):
                try:
                    file = create_at(folder, temporary, shown=str(self.root / key))
                except FileNotFoundError:
                    continue  # a delete removed the empty folder between the two calls
                try:
                    with os.fdopen(file, "wb") as writer:
                        for piece in pieces:
                            writer.write(piece)
                        writer.flush()
                        os.fsync(file)
                        yield _Staged(folder, name, temporary, file)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=folder)
                return

    def _delete(self, key: str) -> None:
        try:
            with open_parent(self.root, key) as (folder, name), self._locked(folder, key):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return  # a folder is not an object
                os.unlink(name, dir_fd=folder)
        except NotADirectoryError:
            return  # without its folder it does not exist
        except FileNotFoundError:
            pass  # its folder may be empty
        above = key.rpartition("/")[0]
        while above:  # a cloud has no empty folders
            try:
                with open_parent(self.root, above) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            except OSError:
                return  # not empty, or removed by another process
            above = above.rpartition("/")[0]

    @contextmanager
    def _locked(self, folder: int, key: str) -> Generator[None, None, None]:
        """Hold the lock of the key's folder. The lock file is removed before the lock is released."""
        deadline = time.monotonic() + LOCK_DEADLINE_S
        while (descriptor := _try_lock(folder)) is None:
            if time.monotonic() > deadline:
                lock = (self.root / key).parent / _LOCK
                raise ConflictError(
                    f"cannot write {self._uri(key)}",
                    f"another process has held {lock} for {LOCK_DEADLINE_S:.0f} s",
                    f"find it: fuser {lock}",
                )
            time.sleep(0.001 + secrets.randbelow(4000) / 1e6)
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(_LOCK, dir_fd=folder)
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A complete temporary file: descriptors of its folder and of itself, its target's name and its own."""

    folder: int
    name: str
    temporary: str
    file: int

    def publish(self) -> Version:
        """Rename it to its name, under the lock, with a later change time than the old one."""
        now = time.time_ns()
        with suppress(FileNotFoundError):
            now = max(now, os.stat(self.name, dir_fd=self.folder, follow_symlinks=False).st_mtime_ns + 1)
        os.utime(self.file, ns=(now, now))
        version = _version(os.fstat(self.file))
        os.replace(self.temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)  # the rename survives a power loss
        return version


def _try_lock(folder: int) -> int | None:
    """Return an open, locked descriptor, or None. A lock on a removed file does not count."""
    descriptor = open_regular_at(folder, _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(_LOCK, dir_fd=folder, follow_symlinks=False)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _object_info(key: str, found: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(found.st_mtime, UTC)
    return ObjectInfo(path=key, size=found.st_size, modified=modified, version=_version(found))


def _version(found: os.stat_result) -> Version:
    """Return a version that is unique for each write: `_publish` makes the change time of a key increase."""
    return Version(f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"')


def _chunks(reader: BinaryIO, doing: str) -> Iterator[bytes]:
    while True:
        with translate_disk_errors(doing):
            chunk = reader.read(CHUNK)
        if not chunk:
            return
        yield chunk
