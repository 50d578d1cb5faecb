"""A folder of a bucket (file://, s3://, gs://) with the two conditional writes that checkpoints depend on.

A local folder needs only the standard library (folder_store.py), a bucket needs obstore (bucket_store.py). Imports are
relative here and in what this module imports, since own programs load these modules under another name: see
trainer/program/__init__.py.
"""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..errors import AccessDenied, DiskFull, LastingStorageError, StorageError
from .bucket_region import is_region_refusal

RETRY_SECONDS = 120.0
"""For how long a failed request is repeated outside of a training."""
MAKE_ROOM = (
    "free some room (df -h), or keep fewer checkpoints (checkpoint.keep=1), or give a larger place as checkpoint.uri"
)
METADATA_SERVER = "169.254.169.254"
"""Where EC2 and Google machines get their role's credentials."""
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
# A machine without a role answers 404, one whose metadata are turned off 403 (EC2 User Guide, "Use instance metadata",
# read 2026-11-29); elsewhere no one answers at that address. 429, 5xx and a time-out may pass.
_NO_ROLE = re.compile(r"status code: 40[0134] |\(os error (?:101|111|113)\)|(?i:connection refused|unreachable)")
_REFUSED_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch")  # an expired token is replaced at the next start

Buffer: TypeAlias = bytes | bytearray | memoryview


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
        from .folder_store import open_folder

        return open_folder(Path(rest if separator else place).expanduser().absolute(), create, retry_seconds)
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme not in ("s3", "gs") or not bucket:
        raise StorageError(f"{place}: not a file://, s3:// or gs:// place")
    try:
        from .bucket_store import open_bucket
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise StorageError(f"{place}: needs the package obstore here: pip install obstore") from error
    return open_bucket(scheme, bucket, prefix, environ, retry_seconds)


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
        tag: Changes with the content: the entity tag, and the generation where the bucket has one; empty if unknown.
    """

    path: str
    size: int
    tag: str = ""


class Store(ABC):
    """A folder of a bucket; every method raises StorageError, naming the object, when the bucket fails."""

    def __init__(self, uri: str, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self.uri = uri
        self.retry_seconds = retry_seconds

    @property
    def in_trouble(self) -> bool:
        """Whether a request is being repeated now."""
        return False

    def limit_retries(self, _seconds: float) -> Store:
        """Return the same folder, whose requests together are repeated no longer than that many seconds from now."""
        return self

    @abstractmethod
    def find(self, path: str) -> StoredObject | None:
        """Return the complete object, or None if there is none."""

    @abstractmethod
    def put(self, path: str, data: Buffer) -> None:
        """Write or replace an object, completely or not at all; on a local disk it also survives a power failure."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none; return False when one with other content exists."""

    @abstractmethod
    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        """Replace the state that was read (None: no object); return False when the object has changed since.

        False is also the answer when this write took effect and its answer was lost: the caller reads again.
        """

    @abstractmethod
    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        """Return everything below `prefix` ("" or a folder), at most `most`, without hidden files, in no order."""

    @abstractmethod
    def list_folders(self) -> list[str]:
        """Return the names of the direct subfolders."""

    @abstractmethod
    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """Return ranges of one object, in order; nearby ones are read together."""

    @abstractmethod
    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """Fill `target` (bytes, writable) from `offset` of an object."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, in no order; absent ones are no error."""

    def check_room(self, _size: int) -> None:
        """Raise DiskFull where a local disk, or the quota on it, has no room for that many bytes more."""
        return

    def remove_leftovers(self, _folder: str) -> None:
        """Remove a local folder that holds nothing but what killed writers left."""
        return

    def name_object(self, path: str) -> str:
        """Return the URI of an object, or of the folder for ""."""
        return f"{self.uri}/{path}" if path else self.uri


@contextmanager
def translate_errors(where: str, what: str, kinds: tuple[type[Exception], ...]) -> Generator[None, None, None]:
    """Translate errors of these kinds to StorageError."""
    try:
        yield
    except kinds as error:
        if is_disk_full(error):
            raise DiskFull(f"{where} {what}: the disk is full: {MAKE_ROOM}") from error
        raise _classify(f"{where} {what}", error) from error


def _classify(what: str, error: BaseException) -> StorageError:
    """Return the error of a bucket or disk, by whether it passes; obstore has code and status only in its text."""
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text)
    named = f" ({code[1]})" if code is not None else ""
    if is_missing_bucket(error):
        return LastingStorageError(f"{what}: there is no such bucket: make it, or name another one")
    if (METADATA_SERVER not in text and "status code: 401" in text) or (code is not None and code[1] in _REFUSED_KEYS):
        return LastingStorageError(f"{what}: the credentials are wrong{named}: give the host others")
    if is_region_refusal(text) or (METADATA_SERVER in text and _NO_ROLE.search(text)):
        return LastingStorageError(f"{what}: {_describe(error)}")
    if METADATA_SERVER not in text and "status code: 403" in text:
        return AccessDenied(
            f"{what}: access is denied{named}: give these credentials the right to read and write there"
        )
    if isinstance(error, OSError) and error.errno in _DENIED:
        return LastingStorageError(f"{what}: {error.strerror}: mount it writable, or give this user the right (ls -ld)")
    return StorageError(f"{what}: {_describe(error)}")


def is_missing_bucket(error: BaseException) -> bool:
    """Return whether the answer names the bucket, not the object, as missing.

    Both clouds' XML APIs have the code (Amazon S3 API reference, "Error responses"; Cloud Storage, "HTTP status and
    error codes for XML"; 2026). obstore reports it as a missing object or as a failed condition.
    """
    return "<Code>NoSuchBucket</Code>" in str(error)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says that the disk has no room left."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno in full:
        return True
    return any(f"(os error {number})" in str(error) for number in full)  # of obstore, which is written in Rust


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
