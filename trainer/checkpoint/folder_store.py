"""A folder of a local or shared disk as a Store, with the standard library alone.

The conditional replace is done with an advisory lock and an atomic rename; the lock of `name` is the file `.name.lock`
beside it. Links, pipes and devices in the folder are not used: see regular_files.py.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from ..errors import MissingFolderError, StorageError
from .file_lock import hold_lock
from .manifest import MOST_BYTES
from .regular_files import create_at, list_folder, open_parent, open_regular, open_regular_at, reserve_room
from .store import Buffer, ObjectEntry, Store, StoredObject, Version, translate_errors

_LOCK_SECONDS = 30.0  # a process that is not stopped needs milliseconds
_WRITE = 64 << 20  # bytes of one system call, which cannot take more than 2 GiB


def open_folder(folder: Path, create: bool, retry_seconds: float) -> FolderStore:
    """Open a folder of a disk.

    Raises:
        StorageError: It does not exist, or cannot be created.
    """
    if not create and not folder.is_dir():
        raise MissingFolderError(f"{folder}: no such folder")
    with translate_errors(f"{folder}:", "cannot be created", (OSError,)):
        folder.mkdir(parents=True, exist_ok=True)
    return FolderStore(folder, retry_seconds=retry_seconds)


class FolderStore(Store):
    """A folder of a disk; errors of disks do not pass, so no request is repeated."""

    def __init__(self, folder: Path, *, retry_seconds: float) -> None:
        """Take an existing folder."""
        super().__init__(f"file://{folder}", retry_seconds=retry_seconds)
        self._folder = folder

    def find(self, path: str) -> StoredObject | None:
        """See Store."""
        with self._translating(path, "cannot be read"):
            try:
                data = self._read_small(open_regular(self._folder, path), path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return StoredObject(data, _content_version(data))

    def put(self, path: str, data: Buffer) -> None:
        """See Store."""
        with (
            self._translating(path, "cannot be written"),
            open_parent(self._folder, path, create=True) as (folder, name),
            _writing(folder, name, data) as temporary,
        ):
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def create(self, path: str, data: bytes) -> bool:
        """See Store."""
        if self._link(path, data):
            return True
        found = self.find(path)
        return found is not None and found.data == data

    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        """See Store."""
        if expected is None:
            return self._link(path, data)
        with self._translating(path, "cannot be written"):
            return self._swap(path, data, expected)

    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        """See Store."""
        with self._translating(prefix, "cannot be listed"):
            return list(itertools.islice(self._walk(prefix), most))

    def list_folders(self) -> list[str]:
        """See Store."""
        with self._translating("", "cannot be listed"):
            return [entry.name for entry in list_folder(self._folder, "") if entry.file is None]

    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """See Store."""
        parts = [bytearray(count) for count in counts]
        for offset, part in zip(offsets, parts, strict=True):
            self.read_into(path, offset, memoryview(part))
        return [bytes(part) for part in parts]

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """See Store."""
        with self._translating(path, "cannot be read"):
            if _read_file(open_regular(self._folder, path), offset, target) != len(target):
                raise StorageError(f"{self.uri}/{path} ends too early: it changed while it was read")

    def delete(self, paths: Sequence[str]) -> None:
        """See Store."""
        for path in paths:
            with (
                self._translating(path, "cannot be deleted"),
                suppress(FileNotFoundError),
                open_parent(self._folder, path) as (folder, name),
            ):
                os.unlink(name, dir_fd=folder)
        for above in {path.rpartition("/")[0] for path in paths} - {""}:
            self._remove_if_empty(above)

    def check_room(self, size: int) -> None:
        """See Store. The file is taken back: no other way shows all kinds of quotas."""
        with self._translating("", f"has no room for a checkpoint of {size / 1e6:,.1f} MB"):
            free = os.statvfs(self._folder)
            if free.f_bavail * free.f_frsize < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with open_parent(self._folder, f".room.{secrets.token_hex(6)}.tmp") as (folder, name):
                file = create_at(folder, name)
                try:
                    reserve_room(file, size)
                finally:
                    os.close(file)
                    os.unlink(name, dir_fd=folder)

    def remove_leftovers(self, folder: str) -> None:
        """See Store."""
        with self._translating(folder, "cannot be tidied"):
            left = list_folder(self._folder, folder)
            if left and all(_is_leftover(entry.name) for entry in left):
                for entry in left:
                    with suppress(FileNotFoundError), open_parent(self._folder, f"{folder}/{entry.name}") as (at, name):
                        os.unlink(name, dir_fd=at)
            self._remove_if_empty(folder)

    def _walk(self, prefix: str) -> Iterator[ObjectEntry]:
        folders = [prefix]
        while folders:
            above = folders.pop()
            for entry in list_folder(self._folder, above):
                path = f"{above}/{entry.name}" if above else entry.name
                if entry.file is None:
                    folders.append(path)
                elif not entry.name.startswith("."):
                    yield ObjectEntry(path, entry.file.st_size)

    def _link(self, path: str, data: bytes) -> bool:
        """Write an object if there is none, else return False."""
        with (
            self._translating(path, "cannot be written"),
            open_parent(self._folder, path, create=True) as (folder, name),
            _writing(folder, name, data) as temporary,
        ):
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
            finally:
                os.unlink(temporary, dir_fd=folder)
        return True

    def _swap(self, path: str, data: bytes, expected: Version) -> bool:
        with open_parent(self._folder, path) as (folder, name):
            lock = (self._folder / path).with_name(f".{name}.lock")
            with hold_lock(lock, seconds=_LOCK_SECONDS, folder=folder):
                try:
                    now = self._read_small(open_regular_at(folder, name, shown=str(self._folder / path)), path)
                except FileNotFoundError:
                    return False
                if _content_version(now) != expected:
                    return False
                with _writing(folder, name, data) as temporary:
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                return True

    def _read_small(self, descriptor: int, path: str) -> bytes:
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > MOST_BYTES:
                raise StorageError(f"{self.uri}/{path}: {size} bytes: not of this trainer")
            return file.read()

    def _remove_if_empty(self, folder: str) -> None:
        with suppress(OSError), open_parent(self._folder, folder) as (above, name):
            os.rmdir(name, dir_fd=above)  # else it is not empty, or already removed: both are fine

    def _translating(self, path: str, what: str) -> AbstractContextManager[None]:
        return translate_errors(self.name_object(path), what, (OSError, ValueError))


def _content_version(data: bytes) -> Version:
    return Version(hashlib.sha256(data).hexdigest())


def _read_file(descriptor: int, offset: int, target: memoryview) -> int:
    """Return the number of bytes that were read; fewer than requested at the file's end."""
    done = 0
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        file.seek(offset)
        while done < len(target) and (count := file.readinto(target[done:])):
            done += count
    return done


@contextmanager
def _writing(folder: int, name: str, data: Buffer) -> Generator[str, None, None]:
    """Write the data to a new file in the folder, down to the disk; yield its name. It is removed on an error."""
    # Several machines may share the folder, so a process id is not unique.
    temporary = f".{name}.{secrets.token_hex(6)}.tmp"
    try:
        with os.fdopen(create_at(folder, temporary), "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest[:_WRITE]) :]
            os.fsync(file.fileno())
        yield temporary
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _is_leftover(name: str) -> bool:
    """Return whether a file was left by a killed writer: ours, or obstore's own staging file."""
    return (name.startswith(".") and name.endswith(".tmp")) or re.fullmatch(r".+#\d+", name) is not None
