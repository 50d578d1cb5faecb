"""Amazon S3 and Google Cloud Storage through obstore.

A connection has two clients of one bucket: one that retries, and one that does not, for conditional writes. A repeated
conditional write meets its own first attempt and would report a lost race, so after an answer that
leaves the outcome open the object is read back instead.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from orchestrator.retries import BUCKET_CONDITIONAL
from orchestrator.storage.address import Address
from orchestrator.storage.connection import Clients, Connection
from orchestrator.storage.faults import (
    http_status,
    is_missing_bucket,
    is_network_failure,
    never_connected,
    translate_cloud_errors,
)
from orchestrator.storage.objects import Download, Listing, ObjectInfo, OnBytes, Version
from orchestrator.storage.source import SourceFile

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta, PutMode, UpdateVersion

CHECKSUM_FIELD = "orch-sha256"
"""User metadata that holds the SHA-256 of an object we uploaded (`x-amz-meta-…`, `x-goog-meta-…`)."""

PART = 8 << 20
PARTS_AT_ONCE = 3
"""One upload buffers at most about PART * (PARTS_AT_ONCE + 1) bytes."""

MAX_PARTS = 9_000
"""Both clouds allow 10,000 parts an object.

Sources: S3 User Guide, "Amazon S3 multipart upload limits"; Cloud Storage, "XML API multipart uploads" (2026).
"""

READ_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CloudBackend:
    """The Backend of an `s3://` or `gs://` bucket."""

    address: Address
    connection: Connection

    def head(self, key: str) -> ObjectInfo | None:
        with self._translate_errors("read", key):
            try:
                return self._info(self.connection.repeat(lambda clients: obstore.head(clients.retrying, key)))
            except FileNotFoundError:
                return None

    def get(self, key: str) -> bytes:
        with self._translate_errors("read", key):
            return self._read(key)

    def put(self, key: str, data: bytes) -> Version:
        with self._translate_errors("write", key):
            result = self.connection.repeat(
                lambda clients: obstore.put(clients.retrying, key, data, use_multipart=False)
            )
        return self._version(result["e_tag"], result["version"])

    def create(self, key: str, data: bytes) -> bool:
        return self._conditional(key, data, "create")

    def replace(self, key: str, data: bytes, expected: Version) -> bool:
        if self.address.scheme == "gs" and not expected.generation:
            found = self.head(key)  # a listing carries no generation: the ETag identifies the content
            if found is None or found.version.e_tag != expected.e_tag:
                return False
            expected = found.version
        mode: UpdateVersion = {"e_tag": expected.e_tag}
        if expected.generation:
            mode["version"] = expected.generation  # obstore refuses None here, although its type allows it
        return self._conditional(key, data, mode)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        stream: Iterator[Sequence[ObjectMeta]] | None = None
        last: str | None = None

        def next_page(clients: Clients) -> Sequence[ObjectMeta] | None:
            nonlocal stream
            stream = stream or _stream(clients, prefix, 1000, last)
            try:
                return next(stream, None)
            except BaseException:
                stream = None  # the next try begins behind the last page that arrived
                raise

        while True:
            with self._translate_errors("list", prefix):
                page = self.connection.repeat(next_page)
            if page is None:
                return
            yield from map(self._info, page)
            last = page[-1]["path"] if page else last

    def list_dir(self, prefix: str) -> Listing:
        with self._translate_errors("list", prefix):
            result = self.connection.repeat(lambda clients: _list_folder(clients, prefix))
        folders = sorted(result["common_prefixes"], key=str.encode)
        objects = sorted(map(self._info, result["objects"]), key=lambda info: info.path.encode())
        return Listing(tuple(folders), tuple(objects))

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), 1000):
            batch = list(keys[start : start + 1000])
            with self._translate_errors("delete", batch[0]):
                try:
                    self.connection.repeat(partial(_delete, batch))
                except FileNotFoundError as error:
                    if is_missing_bucket(error):
                        raise
                    self._delete_one_by_one(batch)

    def sha256(self, key: str) -> str:
        with self._translate_errors("read", key):
            found = self.connection.repeat(lambda clients: obstore.get(clients.retrying, key, options={"head": True}))
        return _checksum(found.attributes)

    def upload(self, key: str, source: SourceFile, on_bytes: OnBytes) -> None:
        attributes = {CHECKSUM_FIELD: source.sha256}
        part = max(PART, math.ceil(source.size / MAX_PARTS))

        def send(clients: Clients) -> None:
            store, sent = clients.retrying, 0

            def count(size: int) -> None:
                nonlocal sent
                sent += size
                on_bytes(size)

            pieces = source.pieces(part, count)
            try:
                if source.size <= PART:
                    whole = b"".join(pieces)
                    obstore.put(store, key, whole, attributes=attributes, use_multipart=False)
                    return
                obstore.put(store, key, pieces, attributes=attributes, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
            except BaseException:
                on_bytes(-sent)  # the next try sends them again
                raise

        with self._translate_errors("write", key):
            self.connection.repeat(send)

    @contextmanager
    def download(self, key: str) -> Generator[Download, None, None]:
        with self._translate_errors("read", key):
            result = self.connection.repeat(lambda clients: obstore.get(clients.retrying, key))
            stream = iter(result.stream(min_chunk_size=READ_CHUNK))
        yield Download(self._info(result.meta), _checksum(result.attributes), self._chunks(stream, key))

    def probe(self, prefix: str) -> None:
        with self._translate_errors("list", prefix):
            self.connection.repeat(lambda clients: next(_stream(clients, prefix, 1), None))

    def _read(self, key: str) -> bytes:
        return self.connection.repeat(lambda clients: bytes(obstore.get(clients.retrying, key).bytes()))

    def _chunks(self, stream: Iterator[bytes], key: str) -> Iterator[bytes]:
        while True:
            with self._translate_errors("read", key):
                chunk = next(stream, None)
            if chunk is None:
                return
            yield bytes(chunk)

    def _delete_one_by_one(self, keys: Sequence[str]) -> None:
        """Delete one by one, since Cloud Storage stops a batch at the first missing object."""
        for key in keys:
            try:
                self.connection.repeat(partial(_delete, [key]))
            except FileNotFoundError as error:
                if is_missing_bucket(error):
                    raise

    def _conditional(self, key: str, data: bytes, mode: PutMode) -> bool:
        """Write if the condition holds. Return True when this call wrote, False when the condition did not hold."""
        maybe_written = False

        def write() -> bool:
            nonlocal maybe_written
            try:
                self.connection.run(
                    lambda clients: obstore.put(clients.single_try, key, data, mode=mode, use_multipart=False)
                )
            except BaseError as error:
                outcome = _outcome(error)
                if outcome is _Outcome.REFUSED:
                    return maybe_written and self._holds(key, data)
                maybe_written = maybe_written or outcome is _Outcome.UNKNOWN
                raise
            return True

        with self._translate_errors("write", key):
            try:
                return BUCKET_CONDITIONAL.run(write, retry=_is_worth_another_try)
            except BaseError as error:
                if maybe_written and _is_worth_another_try(error) and self._holds(key, data):
                    return True
                raise

    def _holds(self, key: str, data: bytes) -> bool:
        """Return whether the object has exactly this content. Used only after an answer was lost."""
        try:
            return self._read(key) == data
        except FileNotFoundError:
            return False

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        version = self._version(meta["e_tag"], meta["version"])
        return ObjectInfo(
            path=meta["path"], size=meta["size"], modified=meta["last_modified"].astimezone(UTC), version=version
        )

    def _version(self, e_tag: str | None, version: str | None) -> Version:
        """Return a Version without S3's version ids, which only some answers have; S3's conditions use the ETag."""
        return Version(e_tag or "", version or "" if self.address.scheme == "gs" else "")

    def _translate_errors(self, verb: str, key: str) -> AbstractContextManager[None]:
        place = f"{self.address.scheme}://{self.address.container}/{key}"
        return translate_cloud_errors(self.address, f"{verb} {place.rstrip('/')}")


def _delete(keys: list[str], clients: Clients) -> None:
    obstore.delete(clients.retrying, keys)


def _stream(clients: Clients, prefix: str, page: int, after: str | None = None) -> Iterator[Sequence[ObjectMeta]]:
    # one overload of list() returns arro3 types, which are not installed and not used
    found = obstore.list(clients.retrying, prefix or None, offset=after, chunk_size=page)  # pyright: ignore[reportUnknownMemberType]
    return iter(found)


def _list_folder(clients: Clients, prefix: str) -> ListResult[Sequence[ObjectMeta]]:
    # as in _stream: an unused overload has types that are not installed
    return obstore.list_with_delimiter(clients.retrying, prefix or None)  # pyright: ignore[reportUnknownMemberType]


class _Outcome(Enum):
    """The state of the object after a failed conditional write."""

    REFUSED = auto()  # the condition did not hold
    NOT_DONE = auto()  # nothing was written: try again
    UNKNOWN = auto()  # it may have been written: try again, but compare the content after a refusal
    FAILED = auto()  # trying again cannot help


def _is_worth_another_try(error: BaseException) -> bool:
    return isinstance(error, BaseError) and _outcome(error) is not _Outcome.FAILED


def _outcome(error: BaseError) -> _Outcome:
    status = http_status(error)
    if is_missing_bucket(error):
        return _Outcome.FAILED  # obstore calls it a failed precondition
    if status in (408, 409, 429):
        # 409: a concurrent write or delete; "retry the upload" (S3 API reference, PutObject, 2026)
        return _Outcome.NOT_DONE
    if isinstance(error, AlreadyExistsError | PreconditionError):
        return _Outcome.REFUSED
    if status >= 500:
        return _Outcome.UNKNOWN
    if status or not is_network_failure(error):
        return _Outcome.FAILED
    return _Outcome.NOT_DONE if never_connected(error) else _Outcome.UNKNOWN


def _checksum(attributes: Mapping[str, str]) -> str:
    return attributes.get(CHECKSUM_FIELD, "")
