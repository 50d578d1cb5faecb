"""A folder of an s3:// or gs:// bucket as a Store, by obstore.

trainer/checkpoint/bucket_client.py repeats what fails for a while.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from ..errors import LastingStorageError, StorageError
from .bucket_client import Backend, BucketClient, UnsettledWrite, connect_gcs, connect_s3
from .manifest import MOST_BYTES
from .store import Buffer, ObjectEntry, Store, StoredObject, Version, is_missing_bucket, translate_errors

try:
    import numpy as np
except ModuleNotFoundError:  # in an own program
    np = None  # type: ignore[assignment]  # a module elsewhere

if TYPE_CHECKING:
    from obstore import UpdateVersion

_CHUNK = 32 << 20  # bytes of one request that reads
_SEND = 16 << 20  # bytes of one request that writes: of 10,000 at most, so an object may have 160 GB
_SENDS = 8  # concurrent ones for an object
_DELETES = 16  # concurrent requests

T = TypeVar("T")


def open_bucket(scheme: str, bucket: str, prefix: str, environ: Mapping[str, str], retry_seconds: float) -> BucketStore:
    """Open a folder of a bucket.

    Raises:
        StorageError: It cannot be opened.
    """
    uri = f"{scheme}://{bucket}/{prefix}" if prefix else f"{scheme}://{bucket}"
    with _translating(uri, "cannot be opened"):
        connect = connect_s3 if scheme == "s3" else connect_gcs
        return BucketStore(uri, connect(bucket, prefix, environ), retry_seconds=retry_seconds)


class BucketStore(Store):
    """A folder of a bucket, whose requests are repeated while they fail in a way that may pass."""

    def __init__(self, uri: str, client: BucketClient, *, retry_seconds: float) -> None:
        """Take the client of the folder."""
        super().__init__(uri, retry_seconds=retry_seconds)
        self._client = client
        self._deadline: float | None = None

    @property
    def in_trouble(self) -> bool:
        """See Store."""
        return self._client.in_trouble

    def limit_retries(self, seconds: float) -> Store:
        """See Store."""
        limited = copy.copy(self)
        limited._deadline = time.monotonic() + seconds
        return limited

    def find(self, path: str) -> StoredObject | None:
        """See Store."""

        def find(backend: Backend) -> StoredObject | None:
            try:
                result = obstore.get(backend, path)
                if result.meta["size"] > MOST_BYTES:
                    raise StorageError(f"{self.uri}/{path}: {result.meta['size']} bytes: not of this trainer")
                data = bytes(result.bytes())
            except FileNotFoundError as error:
                if is_missing_bucket(error):
                    raise
                return None
            return StoredObject(data, Version(result.meta.get("e_tag"), result.meta.get("version")))

        return self._run(path, "cannot be read", find)

    def put(self, path: str, data: Buffer) -> None:
        """See Store."""

        def put(backend: Backend) -> None:
            obstore.put(backend, path, data, chunk_size=_SEND, max_concurrency=_SENDS)

        self._run(path, "cannot be written", put)

    def create(self, path: str, data: bytes) -> bool:
        """See Store."""

        def create(backend: Backend) -> bool:
            try:
                obstore.put(backend, path, data, mode="create")
            except AlreadyExistsError as error:
                if is_missing_bucket(error):
                    raise
                # An earlier try whose answer was lost leaves our own object there.
                found = self.find(path)
                if found is None:  # 409: another write was in progress, and has failed
                    raise UnsettledWrite(str(error)) from error
                return found.data == data
            return True

        return self._run(path, "cannot be written", create)

    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        """See Store."""

        def replace(backend: Backend) -> bool:
            try:
                obstore.put(backend, path, data, mode="create" if expected is None else _condition(expected))
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                if is_missing_bucket(error):
                    raise
                if expected is None and isinstance(error, FileNotFoundError):  # a new object needs only its bucket
                    why = "the address answers 404, as one that has no buckets does: correct AWS_ENDPOINT_URL"
                    raise LastingStorageError(f"{self.uri}/{path} cannot be written: {why}") from error
                return False
            return True

        return self._run(path, "cannot be written", replace)

    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        """See Store."""

        def list_all(backend: Backend) -> list[ObjectEntry]:
            # Its annotations speak of pyarrow, which is not installed.
            pages: Any = obstore.list(backend, prefix or None)  # pyright: ignore[reportUnknownMemberType]
            listed = itertools.islice((meta for page in pages for meta in page), most)
            return [ObjectEntry(str(meta["path"]), int(meta["size"]), _tag(meta)) for meta in listed]

        entries = self._run(prefix, "cannot be listed", list_all)
        return [entry for entry in entries if not entry.path.rsplit("/", 1)[-1].startswith(".")]

    def list_folders(self) -> list[str]:
        """See Store."""

        def list_prefixes(backend: Backend) -> Sequence[str]:
            # Likewise.
            listing: Any = obstore.list_with_delimiter(backend)  # pyright: ignore[reportUnknownMemberType]
            prefixes: Sequence[str] = listing["common_prefixes"]
            return prefixes

        paths = self._run("", "cannot be listed", list_prefixes)
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]

    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """See Store."""

        def read(backend: Backend) -> list[bytes]:
            return [bytes(part) for part in obstore.get_ranges(backend, path, starts=offsets, lengths=counts)]

        return self._run(path, "cannot be read", read)

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """See Store."""
        with _translating(self.name_object(path), "cannot be read"):
            if self._read_chunks(path, offset, target) != len(target):
                raise StorageError(f"{self.uri}/{path} ends too early: it changed while it was read")

    def delete(self, paths: Sequence[str]) -> None:
        """See Store."""
        with ThreadPoolExecutor(_DELETES, thread_name_prefix="delete") as pool:
            list(pool.map(self._delete_one, paths))

    def _delete_one(self, path: str) -> None:
        def delete(backend: Backend) -> None:
            try:
                obstore.delete(backend, path)
            except FileNotFoundError:
                return

        self._run(path, "cannot be deleted", delete)

    def _read_chunks(self, path: str, offset: int, target: memoryview) -> int:
        # In stretches: the client's time limit is for one request with all of its answer.
        for at in range(0, len(target), _CHUNK):
            count = min(_CHUNK, len(target) - at)

            def read(backend: Backend, at: int = at, count: int = count) -> obstore.Bytes:
                return obstore.get_range(backend, path, start=offset + at, length=count)

            found = memoryview(self._repeat(read))
            _copy(target[at : at + len(found)], found)
            if len(found) != count:
                return at + len(found)
        return len(target)

    def _run(self, path: str, what: str, call: Callable[[Backend], T]) -> T:
        with _translating(self.name_object(path), what):
            return self._repeat(call)

    def _repeat(self, call: Callable[[Backend], T]) -> T:
        own = time.monotonic() + self.retry_seconds
        return self._client.run(call, own if self._deadline is None else self._deadline)


def _translating(where: str, what: str) -> AbstractContextManager[None]:
    return translate_errors(where, what, (BaseError, OSError, ValueError, UnsettledWrite))


def _copy(target: memoryview, source: memoryview) -> None:
    if np is None:
        target[:] = source
    else:  # it lets other threads run meanwhile
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


def _tag(meta: Mapping[str, Any]) -> str:
    """Return what changes with an object's content, of its entry in a listing."""
    return " ".join(str(meta[name]) for name in ("e_tag", "version") if meta.get(name))


def _condition(expected: Version) -> UpdateVersion:
    condition: UpdateVersion = {}
    if expected.e_tag is not None:
        condition["e_tag"] = expected.e_tag
    if expected.generation is not None:
        condition["version"] = expected.generation
    return condition
