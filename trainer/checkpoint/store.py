"""A folder of a bucket (file://, s3://, gs://) with the two conditional writes that checkpoints depend on.

obstore implements them; trainer/checkpoint/bucket_client.py repeats what fails for a while. For a local folder obstore
0.12 has no conditional replace, so that one is done here with an advisory lock and an atomic rename; the lock of `name`
is the file `.name.lock` beside it.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import hashlib
import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore

from trainer.checkpoint.bucket_client import (
    METADATA_SERVER,
    Backend,
    BucketClient,
    UnsettledWrite,
    connect_gcs,
    connect_s3,
)
from trainer.checkpoint.bucket_region import is_region_refusal
from trainer.checkpoint.manifest import MOST_BYTES
from trainer.errors import DiskFull, StorageError

if TYPE_CHECKING:
    from obstore import UpdateVersion

RETRY_SECONDS = 120.0
"""For how long a failed request is repeated outside of a training."""
_CHUNK = 32 << 20  # bytes of one request that reads
_SEND = 16 << 20  # bytes of one request that writes: of 10,000 at most, so an object may have 160 GB
_SENDS = 8  # concurrent ones for an object
_DELETES = 16  # concurrent requests
_LOCK_SECONDS = 30.0  # a process that is not stopped needs milliseconds
_WRITE = 64 << 20  # bytes of one system call, which cannot take more than 2 GiB

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


def open_store(
    place: str,
    *,
    create: bool = False,
    environ: Mapping[str, str] = os.environ,
    retry_seconds: float = RETRY_SECONDS,
) -> Store:
    """Open a folder.

    Credentials and endpoints come from the environment (AWS_*, GOOGLE_*, STORAGE_EMULATOR_HOST) or from the machine's
    role. The region of an S3 bucket is found out where the environment names none, or another one.

    Args:
        place: A file://, s3:// or gs:// URI, or a path.
        create: Create a local folder that does not exist.
        environ: The environment variables.
        retry_seconds: For how long each request is repeated while it fails in a way that may pass.

    Raises:
        StorageError: It cannot be opened.
    """
    scheme, separator, rest = place.partition("://")
    if not separator or scheme == "file":
        return _local(Path(rest if separator else place).expanduser().absolute(), create, retry_seconds)
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme not in ("s3", "gs") or not bucket:
        raise StorageError(f"{place}: not a file://, s3:// or gs:// place")
    with _translating_errors(place, "cannot be opened"):
        connect = connect_s3 if scheme == "s3" else connect_gcs
        return Store(f"{scheme}://{rest.rstrip('/')}", connect(bucket, prefix, environ), retry_seconds=retry_seconds)


@dataclass(frozen=True, slots=True)
class Version:
    """The state of an object that was read; compare only for equality."""

    e_tag: str | None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its content."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object in a listing.

    Attributes:
        path: Relative to the store's folder.
        size: Bytes.
    """

    path: str
    size: int


class Store:
    """A folder of a bucket; every method raises StorageError, naming the object, when the bucket fails."""

    def __init__(
        self, uri: str, client: BucketClient, folder: Path | None = None, *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self.uri = uri
        self.retry_seconds = retry_seconds
        self._client = client
        self._folder = folder
        self._deadline: float | None = None

    @property
    def in_trouble(self) -> bool:
        """Whether a request is being repeated now."""
        return self._client.in_trouble

    def limit_retries(self, seconds: float) -> Store:
        """Return the same folder, whose requests together are repeated no longer than that many seconds from now."""
        limited = copy.copy(self)
        limited._deadline = time.monotonic() + seconds
        return limited

    def find(self, path: str) -> StoredObject | None:
        """Return the complete object, or None if there is none."""

        def find(backend: Backend) -> StoredObject | None:
            try:
                result = obstore.get(backend, path)
                if result.meta["size"] > MOST_BYTES:
                    raise StorageError(f"{self.uri}/{path}: {result.meta['size']} bytes: not of this trainer")
                data = bytes(result.bytes())
            except FileNotFoundError:
                return None
            if self._folder is not None:
                return StoredObject(data, _content_version(data))
            return StoredObject(data, Version(result.meta.get("e_tag"), result.meta.get("version")))

        return self._run(path, "cannot be read", find)

    def put(self, path: str, data: Buffer) -> None:
        """Write or replace an object, completely or not at all; on a local disk it also survives a power failure."""

        def put(backend: Backend) -> None:
            if self._folder is not None:
                target = self._folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_file(target, data)
                return
            obstore.put(backend, path, data, chunk_size=_SEND, max_concurrency=_SENDS)

        self._run(path, "cannot be written", put)

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none; return False when one with other content exists."""

        def create(backend: Backend) -> bool:
            try:
                obstore.put(backend, path, data, mode="create")
            except AlreadyExistsError as error:
                # An earlier try whose answer was lost leaves our own object there.
                found = self.find(path)
                if found is None:  # 409: another write was in progress, and has failed
                    raise UnsettledWrite(str(error)) from error
                return found.data == data
            return True

        return self._run(path, "cannot be written", create)

    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        """Replace the state that was read (None: no object); return False when the object has changed since.

        False is also the answer when this write took effect and its answer was lost: the caller reads again.
        """
        if expected is not None and self._folder is not None:
            with self._translating_errors(path, "cannot be written"):
                return _swap_file(self._folder / path, data, expected)

        def replace(backend: Backend) -> bool:
            try:
                obstore.put(backend, path, data, mode="create" if expected is None else _condition(expected))
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return False
            return True

        return self._run(path, "cannot be written", replace)

    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        """Return everything below `prefix` ("" or a folder), at most `most`, without hidden files, in no order."""

        def list_all(backend: Backend) -> list[ObjectEntry]:
            # Its annotations speak of pyarrow, which is not installed.
            pages: Any = obstore.list(backend, prefix or None)  # pyright: ignore[reportUnknownMemberType]
            listed = itertools.islice((meta for page in pages for meta in page), most)
            return [ObjectEntry(str(meta["path"]), int(meta["size"])) for meta in listed]

        entries = self._run(prefix, "cannot be listed", list_all)
        return [entry for entry in entries if not entry.path.rsplit("/", 1)[-1].startswith(".")]

    def list_folders(self) -> list[str]:
        """Return the names of the direct subfolders."""

        def list_prefixes(backend: Backend) -> Sequence[str]:
            # Likewise.
            listing: Any = obstore.list_with_delimiter(backend)  # pyright: ignore[reportUnknownMemberType]
            prefixes: Sequence[str] = listing["common_prefixes"]
            return prefixes

        paths = self._run("", "cannot be listed", list_prefixes)
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]

    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """Return ranges of one object, in order; nearby ones are read together."""

        def read(backend: Backend) -> list[bytes]:
            return [bytes(part) for part in obstore.get_ranges(backend, path, starts=offsets, lengths=counts)]

        return self._run(path, "cannot be read", read)

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """Fill `target` (bytes, writable) from `offset` of an object."""
        with self._translating_errors(path, "cannot be read"):
            if self._folder is not None:
                count = _read_file(self._folder / path, offset, target)
            else:
                count = self._read_bucket_into(path, offset, target)
            if count != len(target):
                raise StorageError(f"{self.uri}/{path} ends too early: it changed while it was read")

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, in no order; absent ones are no error."""
        if len(paths) > 1 and self._folder is None:
            with ThreadPoolExecutor(_DELETES, thread_name_prefix="delete") as pool:
                list(pool.map(self._delete_one, paths))
            return
        for path in paths:
            self._delete_one(path)
        if self._folder is not None:
            for folder in {(self._folder / path).parent for path in paths} - {self._folder}:
                _remove_if_empty(folder)

    def remove_leftovers(self, folder: str) -> None:
        """Remove a local folder that holds nothing but what killed writers left."""
        if self._folder is None:
            return
        place = self._folder / folder
        with self._translating_errors(folder, "cannot be tidied"):
            left = list(place.iterdir()) if place.is_dir() else []
            if left and all(_is_leftover(path.name) for path in left):
                for path in left:
                    path.unlink(missing_ok=True)
            _remove_if_empty(place)

    def _delete_one(self, path: str) -> None:
        def delete(backend: Backend) -> None:
            try:
                obstore.delete(backend, path)
            except FileNotFoundError:
                return

        self._run(path, "cannot be deleted", delete)

    def _read_bucket_into(self, path: str, offset: int, target: memoryview) -> int:
        # In stretches: the client's time limit is for one request with all of its answer.
        for at in range(0, len(target), _CHUNK):
            count = min(_CHUNK, len(target) - at)

            def read(backend: Backend, at: int = at, count: int = count) -> obstore.Bytes:
                return obstore.get_range(backend, path, start=offset + at, length=count)

            found = self._repeat(read)
            # numpy lets other threads run while it copies.
            np.copyto(np.frombuffer(target[at : at + len(found)], np.uint8), np.frombuffer(memoryview(found), np.uint8))
            if len(found) != count:
                return at + len(found)
        return len(target)

    def _run(self, path: str, what: str, call: Callable[[Backend], T]) -> T:
        with self._translating_errors(path, what):
            return self._repeat(call)

    def _repeat(self, call: Callable[[Backend], T]) -> T:
        own = time.monotonic() + self.retry_seconds
        return self._client.run(call, own if self._deadline is None else self._deadline)

    @contextmanager
    def _translating_errors(self, path: str, what: str) -> Generator[None]:
        with _translating_errors(f"{self.uri}/{path}" if path else self.uri, what):
            yield


def _local(folder: Path, create: bool, retry_seconds: float) -> Store:
    if not create and not folder.is_dir():
        raise StorageError(f"{folder}: no such folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be created: {error.strerror}") from error
    return Store(f"file://{folder}", BucketClient(LocalStore(folder)), folder, retry_seconds=retry_seconds)


def _condition(expected: Version) -> UpdateVersion:
    condition: UpdateVersion = {}
    if expected.e_tag is not None:
        condition["e_tag"] = expected.e_tag
    if expected.generation is not None:
        condition["version"] = expected.generation
    return condition


def _content_version(data: bytes) -> Version:
    return Version(hashlib.sha256(data).hexdigest())


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
        with lock.open("ab") as held:
            _lock(held.fileno(), lock)  # released with the file, also when the process is killed
            if not path.exists() or _content_version(path.read_bytes()) != expected:
                return False
            _write_file(path, data)
            return True
    except OSError as error:
        if _is_disk_full(error):
            raise
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


def _lock(descriptor: int, lock: Path) -> None:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StorageError(
                    f"{lock}: held for {_LOCK_SECONDS:.0f} s by a process that is stopped: kill or continue it"
                ) from None
            time.sleep(0.005)
        else:
            return


def _write_file(path: Path, data: Buffer) -> None:
    # Several machines may share the folder, so a process id is not unique.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest[:_WRITE]) :]
            os.fsync(file.fileno())
        temporary.replace(path)
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


@contextmanager
def _translating_errors(where: str, what: str) -> Generator[None]:
    """Translate the library's errors to StorageError."""
    try:
        yield
    except (BaseError, OSError, ValueError, UnsettledWrite) as error:
        if _is_disk_full(error):
            raise DiskFull(
                f"{where} {what}: the disk is full: free some room (df -h), or keep fewer checkpoints "
                "(checkpoint.keep=1), or give a larger place as checkpoint.uri"
            ) from error
        raise StorageError(f"{where} {what}: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    text = str(error).strip()
    reason = text.splitlines()[0] if text else type(error).__name__
    if METADATA_SERVER in reason:
        # Without credentials the library queries the machine's role, and reports that failure.
        return (
            "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            f"GOOGLE_APPLICATION_CREDENTIALS, or give the host a role ({reason})"
        )
    if is_region_refusal(text):
        return f"the bucket may be in another region: export AWS_REGION=THE-BUCKETS-REGION ({reason})"
    return reason


def _is_disk_full(error: BaseException) -> bool:
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno in full:
        return True
    return any(f"(os error {number})" in str(error) for number in full)  # of obstore, which is written in Rust
