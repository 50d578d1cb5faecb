"""A folder of a local or shared disk as a Store, with the standard library alone.

The conditional replace is done with an advisory lock and an atomic rename; the lock of `name` is the file `.name.lock`
beside it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..errors import MissingFolderError, StorageError
from .file_lock import hold_lock
from .manifest import MOST_BYTES
from .store import Buffer, ObjectEntry, Store, StoredObject, Version, is_disk_full, translate_errors

_LOCK_SECONDS = 30.0  # a process that is not stopped needs milliseconds
_WRITE = 64 << 20  # bytes of one system call, which cannot take more than 2 GiB


def open_folder(folder: Path, create: bool, retry_seconds: float) -> FolderStore:
    """Open a folder of a disk.

    Raises:
        StorageError: It does not exist, or cannot be created.
    """
    if not create and not folder.is_dir():
        raise MissingFolderError(f"{folder}: no such folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be created: {error.strerror}") from error
    return FolderStore(folder, retry_seconds=retry_seconds)


class FolderStore(Store):
    """A folder of a disk; errors of disks do not pass, so no request is repeated."""

    def __init__(self, folder: Path, *, retry_seconds: float) -> None:
        """Take an existing folder."""
        super().__init__(f"file://{folder}", retry_seconds=retry_seconds)
        self._folder = folder

    def find(self, path: str) -> StoredObject | None:
        """See Store."""
        place = self._folder / path
        with self._translating(path, "cannot be read"):
            try:
                with place.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    if size > MOST_BYTES:
                        raise StorageError(f"{self.uri}/{path}: {size} bytes: not of this trainer")
                    data = file.read()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return StoredObject(data, _content_version(data))

    def put(self, path: str, data: Buffer) -> None:
        """See Store."""
        with self._translating(path, "cannot be written"), _writing(self._folder / path, data) as temporary:
            temporary.replace(self._folder / path)

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
            return _swap_file(self._folder / path, data, expected)

    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        """See Store."""
        with self._translating(prefix, "cannot be listed"):
            found = itertools.islice(_walk(self._folder / prefix), most)
            return [ObjectEntry(str(path.relative_to(self._folder)), size) for path, size in found]

    def list_folders(self) -> list[str]:
        """See Store."""
        with self._translating("", "cannot be listed"):
            if not self._folder.is_dir():
                return []
            return [entry.name for entry in os.scandir(self._folder) if entry.is_dir()]

    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """See Store."""
        parts = [bytearray(count) for count in counts]
        for offset, part in zip(offsets, parts, strict=True):
            self.read_into(path, offset, memoryview(part))
        return [bytes(part) for part in parts]

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """See Store."""
        with self._translating(path, "cannot be read"):
            if _read_file(self._folder / path, offset, target) != len(target):
                raise StorageError(f"{self.uri}/{path} ends too early: it changed while it was read")

    def delete(self, paths: Sequence[str]) -> None:
        """See Store."""
        for path in paths:
            with self._translating(path, "cannot be deleted"):
                (self._folder / path).unlink(missing_ok=True)
        for folder in {(self._folder / path).parent for path in paths} - {self._folder}:
            _remove_if_empty(folder)

    def remove_leftovers(self, folder: str) -> None:
        """See Store."""
        place = self._folder / folder
        with self._translating(folder, "cannot be tidied"):
            left = list(place.iterdir()) if place.is_dir() else []
            if left and all(_is_leftover(path.name) for path in left):
                for path in left:
                    path.unlink(missing_ok=True)
            _remove_if_empty(place)

    def _link(self, path: str, data: bytes) -> bool:
        """Write an object if there is none, else return False."""
        place = self._folder / path
        with self._translating(path, "cannot be written"), _writing(place, data) as temporary:
            try:
                os.link(temporary, place)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
        return True

    def _translating(self, path: str, what: str) -> AbstractContextManager[None]:
        return translate_errors(self.name_object(path), what, (OSError, ValueError))


def _content_version(data: bytes) -> Version:
    return Version(hashlib.sha256(data).hexdigest())


def _walk(folder: Path) -> Iterator[tuple[Path, int]]:
    for place, _, names in os.walk(folder, onerror=_raise_unless_absent, followlinks=True):
        for name in names:
            if not name.startswith("."):
                try:
                    size = os.stat(os.path.join(place, name)).st_size  # noqa: PTH116, PTH118  # of many files
                except FileNotFoundError:
                    continue  # deleted by another since it was listed
                yield Path(place, name), size


def _raise_unless_absent(error: OSError) -> None:
    """Raise an error of a listing: what cannot be read must not pass for an empty folder, from which a run begins."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _read_file(path: Path, offset: int, target: memoryview) -> int:
    """Return the number of bytes that were read; fewer than requested at the file's end."""
    done = 0
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while done < len(target) and (count := file.readinto(target[done:])):
            done += count
    return done


def _swap_file(path: Path, data: bytes, expected: Version) -> bool:
    lock = path.with_name(f".{path.name}.lock")
    try:
        with hold_lock(lock, seconds=_LOCK_SECONDS):
            if not path.exists() or _content_version(path.read_bytes()) != expected:
                return False
            with _writing(path, data) as temporary:
                temporary.replace(path)
            return True
    except OSError as error:
        if is_disk_full(error):
            raise
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


@contextmanager
def _writing(path: Path, data: Buffer) -> Generator[Path, None, None]:
    """Write the data beside `path`, down to the disk; yield where it is. It is removed on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several machines may share the folder, so a process id is not unique.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest[:_WRITE]) :]
            os.fsync(file.fileno())
        yield temporary
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _is_leftover(name: str) -> bool:
    """Return whether a file was left by a killed writer: ours, or obstore's own staging file."""
    return (name.startswith(".") and name.endswith(".tmp")) or re.fullmatch(r".+#\d+", name) is not None


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # not empty, or already removed: both are fine
