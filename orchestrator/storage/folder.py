"""A folder on disk as a bucket: whole-file writes, conditional writes and listings as on the clouds.

A write goes to a temporary file, is flushed to disk, and is renamed under a lock of its folder. The lock is a
short-lived file (`flock`), so it also holds between machines that share the folder over NFS 4. A killed writer
leaves at most a temporary file, which no listing shows.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from orchestrator.errors import ConflictError, NotFoundError, StorageError
from orchestrator.storage.address import is_unfinished
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.objects import Download, Listing, ObjectInfo, OnBytes, Version
from orchestrator.storage.source import SourceFile

CHUNK = 1 << 20
"""The bytes of one read or write."""

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
        with translate_disk_errors(f"write {self._uri(key)}"), self._staged(key) as staged:
            _fill(staged, data)
            with self._locked(key):
                return self._publish(staged, key)

    def create(self, key: str, data: bytes) -> bool:
        with translate_disk_errors(f"write {self._uri(key)}"), self._staged(key) as staged:
            _fill(staged, data)
            with self._locked(key):
                if self._info(key) is not None:
                    return False
                self._publish(staged, key)
                return True

    def replace(self, key: str, data: bytes, expected: Version) -> bool:
        with translate_disk_errors(f"write {self._uri(key)}"), self._staged(key) as staged:
            _fill(staged, data)
            with self._locked(key):
                found = self._info(key)
                if found is None or found.version != expected:
                    return False
                self._publish(staged, key)
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
            for name, is_folder in _entries(self._path(prefix)):
                key = f"{prefix}/{name}" if prefix else name
                if not is_folder:
                    info = self._info(key)
                    objects += [info] if info else []
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
        with translate_disk_errors(f"write {self._uri(key)}"), self._staged(key) as staged:
            with staged.open("wb") as writer:
                for piece in source.pieces(CHUNK, on_bytes):
                    writer.write(piece)
                writer.flush()
                os.fsync(writer.fileno())
            with self._locked(key):
                self._publish(staged, key)

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

    def _path(self, key: str) -> Path:
        """Return the path of a key.

        Raises:
            StorageError: A link among its folders leads out of the bucket.
        """
        path = self.root / key if key else self.root
        if self.root not in (path, path.parent):
            root, folder = (Path(os.path.realpath(one)) for one in (self.root, path.parent))
            if not folder.is_relative_to(root):
                why = f"a link leads out of the bucket, to {folder}"
                raise StorageError(f"{self._uri(key)} is not used", why, f"ls -l {quote(str(self.root))}")
        return path

    def _uri(self, key: str) -> str:
        return f"file://{self.root / key if key else self.root}"

    def _require_root(self) -> None:
        if not self.root.is_dir():
            why = "a file stands there" if self.root.exists() else "the folder does not exist"
            above = next(folder for folder in self.root.parents if folder.is_dir())
            step = f"look above it: ls {above}   or make it: mkdir -p {self.root}"
            raise NotFoundError(f"cannot use file://{self.root} as a bucket", why, step)

    def _info(self, key: str) -> ObjectInfo | None:
        try:
            found = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _object_info(key, found) if stat.S_ISREG(found.st_mode) else None

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield everything below a folder in the byte order of full keys, as the clouds do."""
        for name, is_folder in _entries(self._path(prefix)):
            key = f"{prefix}/{name}" if prefix else name
            if is_folder:
                yield from self._walk(key)
            elif (info := self._info(key)) is not None:  # None: deleted while we listed
                yield info

    def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        if not path.is_file():
            why, step = "there is no such object", f"list it: orch storage ls file://{self.root}"
            raise NotFoundError(f"cannot read {self._uri(key)}", why, step)
        return path.open("rb")

    @contextmanager
    def _staged(self, key: str) -> Generator[Path, None, None]:
        """Make an empty temporary file beside its target; it is removed if it is not published."""
        folder = self._path(key).parent
        staged = folder / f".part#{secrets.randbits(62)}"
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                staged.touch(exist_ok=False)
                break
            except FileNotFoundError:
                continue  # a delete removed the empty folder between the two calls
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _publish(self, staged: Path, key: str) -> Version:
        """Rename a file to the key, under the lock, with a later change time than the old one."""
        path = self._path(key)
        now = time.time_ns()
        if self._info(key) is not None:
            now = max(now, path.stat().st_mtime_ns + 1)
        os.utime(staged, ns=(now, now))
        version = _version(staged.stat())
        staged.replace(path)
        _flush_folder(path.parent)
        return version

    def _delete(self, key: str) -> None:
        path = self._path(key)
        try:
            with self._locked(key):
                if path.is_dir():
                    return  # a folder is not an object
                path.unlink(missing_ok=True)
        except (FileNotFoundError, NotADirectoryError):
            return  # without its folder it does not exist
        for folder in path.parents:  # a cloud has no empty folders
            if folder == self.root or not folder.is_relative_to(self.root):
                return
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or removed by another process

    @contextmanager
    def _locked(self, key: str) -> Generator[None, None, None]:
        """Hold the lock of the key's folder. The lock file is removed before the lock is released."""
        lock = self._path(key).parent / ".lock#0"
        deadline = time.monotonic() + LOCK_DEADLINE_S
        while (descriptor := _try_lock(lock)) is None:
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"cannot write {self._uri(key)}",
                    f"another process has held {lock} for {LOCK_DEADLINE_S:.0f} s",
                    f"find it: fuser {lock}",
                )
            time.sleep(0.001 + secrets.randbelow(4000) / 1e6)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(descriptor)


def _try_lock(lock: Path) -> int | None:
    """Return an open, locked descriptor, or None. A lock on a removed file does not count."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """Return (name, is a folder) of the visible entries, in the byte order of their keys in a listing."""
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or (entry.is_file() and not is_unfinished(entry.name)):
                    found.append((entry.name, is_folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda item: os.fsencode(item[0] + "/" if item[1] else item[0]))


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


def _fill(staged: Path, data: bytes) -> None:
    with staged.open("wb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())


def _flush_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename survives a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
