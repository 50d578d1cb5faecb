"""A folder of a bucket (file://, s3://, gs://) with the two conditional writes that checkpoints rest on.

obstore does the work. A local folder has no conditional replace there (obstore 0.12), so that one is done here
with an advisory lock and an atomic rename; the lock of `name` is the file `.name.lock` beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore, LocalStore, S3Store

from trainer.errors import StorageError

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, GCSCredential, RetryConfig

_METADATA_SERVER = "169.254.169.254"  # where EC2 and Google machines ask for their role
_CHUNK = 32 << 20  # bytes of one request that reads
_SEND = 16 << 20  # bytes of one request that writes: of 10,000 at most, so an object may have 160 GB
_SENDS = 8  # of them at once for an object
_DELETES = 16  # requests at once
_WRITE = 64 << 20  # bytes of one system call, which cannot take more than 2 GiB

Buffer: TypeAlias = bytes | bytearray | memoryview


def open_store(place: str, *, create: bool = False, environ: Mapping[str, str] = os.environ) -> Store:
    """`place`: a file://, s3:// or gs:// URI, or a path. create: make a local folder that is not there.

    Credentials and endpoints come from the environment (AWS_*, GOOGLE_*, STORAGE_EMULATOR_HOST) or from the
    machine's role. Raises StorageError.
    """
    scheme, separator, rest = place.partition("://")
    if not separator or scheme == "file":
        return _local(Path(rest if separator else place).expanduser().absolute(), create)
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme not in ("s3", "gs") or not bucket:
        raise StorageError(f"{place}: not a file://, s3:// or gs:// place")
    with _explained(place, "cannot be opened"):
        if scheme == "s3":
            return Store(f"s3://{rest.rstrip('/')}", _s3(bucket, prefix, environ), None)
        return Store(f"gs://{rest.rstrip('/')}", _gcs(bucket, prefix, environ), None)


@dataclass(frozen=True, slots=True)
class Version:
    """Which state of an object was read. Compare only for equality."""

    e_tag: str | None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Entry:
    """An object below the folder. path: relative to it. size: bytes."""

    path: str
    size: int


class Store:
    """Every method raises StorageError, naming the object, when the bucket refuses or cannot be reached."""

    def __init__(self, uri: str, backend: S3Store | GCSStore | LocalStore, folder: Path | None) -> None:
        self.uri = uri
        self._backend = backend
        self._folder = folder

    def find(self, path: str) -> Found | None:
        """The whole object, or None when there is none."""
        with self._explained(path, "cannot be read"):
            try:
                result = obstore.get(self._backend, path)
                data = bytes(result.bytes())
            except FileNotFoundError:
                return None
            meta = result.meta
        if self._folder is not None:
            return Found(data, _content_version(data))
        return Found(data, Version(meta.get("e_tag"), meta.get("version")))

    def put(self, path: str, data: Buffer) -> None:
        """Write or replace, whole or not at all; on a local disk it is there also after a power failure."""
        with self._explained(path, "cannot be written"):
            if self._folder is not None:
                target = self._folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_file(target, data)
                return
            obstore.put(self._backend, path, data, chunk_size=_SEND, max_concurrency=_SENDS)

    def create(self, path: str, data: bytes) -> bool:
        """Write only if there is no such object; False when there is one with other content."""
        with self._explained(path, "cannot be written"):
            try:
                obstore.put(self._backend, path, data, mode="create")
            except AlreadyExistsError:
                # A first try whose answer was lost looks the same as somebody else's object.
                found = self.find(path)
                return found is not None and found.data == data
            return True

    def swap(self, path: str, data: bytes, expected: Version | None) -> bool:
        """Replace the state that was read (None: no object); False when it is no longer the present one."""
        if expected is None:
            return self._create_only(path, data)
        if self._folder is not None:
            return _swap_file(self._folder / path, data, expected)
        with self._explained(path, "cannot be written"):
            try:
                obstore.put(self._backend, path, data, mode=_condition(expected))
            except (PreconditionError, FileNotFoundError):
                return False
            return True

    def entries(self, prefix: str) -> list[Entry]:
        """Everything below `prefix` ("" or a folder), without hidden files, in no order."""
        with self._explained(prefix, "cannot be listed"):
            # Its annotations speak of pyarrow, which is not installed.
            pages: Any = obstore.list(self._backend, prefix or None)  # pyright: ignore[reportUnknownMemberType]
            entries = [Entry(str(meta["path"]), int(meta["size"])) for page in pages for meta in page]
        return [entry for entry in entries if not entry.path.rsplit("/", 1)[-1].startswith(".")]

    def folders(self) -> list[str]:
        """Names of the folders directly below."""
        with self._explained("", "cannot be listed"):
            listing: Any = obstore.list_with_delimiter(self._backend)  # pyright: ignore[reportUnknownMemberType]
            paths: Sequence[str] = listing["common_prefixes"]  # as above
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]

    def ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        """Stretches of one object, in order; nearby ones are read together."""
        with self._explained(path, "cannot be read"):
            parts = obstore.get_ranges(self._backend, path, starts=offsets, lengths=counts)
            return [bytes(part) for part in parts]

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        """Fill `target` (bytes, writable) with what lies at `offset` of an object."""
        with self._explained(path, "cannot be read"):
            if self._folder is not None:
                count = _read_file(self._folder / path, offset, target)
            else:
                count = self._read_ranges(path, offset, target)
            if count != len(target):
                raise StorageError(f"{self.uri}/{path} ends too early: it changed while it was read")

    def delete(self, paths: Sequence[str]) -> None:
        """In no order. Objects that are not there are no error."""
        if len(paths) > 1 and self._folder is None:
            with ThreadPoolExecutor(_DELETES, thread_name_prefix="delete") as pool:
                list(pool.map(self._delete_one, paths))
            return
        for path in paths:
            self._delete_one(path)
        if self._folder is not None:
            for folder in {(self._folder / path).parent for path in paths} - {self._folder}:
                _remove_if_empty(folder)

    def tidy(self, folder: str) -> None:
        """Remove a local folder in which there is nothing but what killed writers left."""
        if self._folder is None:
            return
        place = self._folder / folder
        with self._explained(folder, "cannot be tidied"):
            left = list(place.iterdir()) if place.is_dir() else []
            if left and all(_is_leftover(path.name) for path in left):
                for path in left:
                    path.unlink(missing_ok=True)
            _remove_if_empty(place)

    def _delete_one(self, path: str) -> None:
        with self._explained(path, "cannot be deleted"), suppress(FileNotFoundError):
            obstore.delete(self._backend, path)

    def _read_ranges(self, path: str, offset: int, target: memoryview) -> int:
        # In stretches: the client's time limit is for one request with all of its answer.
        for at in range(0, len(target), _CHUNK):
            wanted = min(_CHUNK, len(target) - at)
            found = obstore.get_range(self._backend, path, start=offset + at, length=wanted)
            # numpy lets other threads run while it copies.
            np.copyto(np.frombuffer(target[at : at + len(found)], np.uint8), np.frombuffer(memoryview(found), np.uint8))
            if len(found) != wanted:
                return at + len(found)
        return len(target)

    def _create_only(self, path: str, data: bytes) -> bool:
        with self._explained(path, "cannot be written"):
            try:
                obstore.put(self._backend, path, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

    @contextmanager
    def _explained(self, path: str, what: str) -> Generator[None]:
        with _explained(f"{self.uri}/{path}" if path else self.uri, what):
            yield


def _local(folder: Path, create: bool) -> Store:
    if not create and not folder.is_dir():
        raise StorageError(f"{folder}: no such folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror}") from error
    return Store(f"file://{folder}", LocalStore(folder), folder)


def _s3(bucket: str, prefix: str, environ: Mapping[str, str]) -> S3Store:
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    client, retry = _client(endpoint), _retry()
    if endpoint:
        return S3Store(
            bucket, prefix=prefix or None, region=region, endpoint=endpoint, client_options=client, retry_config=retry
        )
    return S3Store(bucket, prefix=prefix or None, region=region, client_options=client, retry_config=retry)


def _gcs(bucket: str, prefix: str, environ: Mapping[str, str]) -> GCSStore:
    emulator = environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator:
        return GCSStore(bucket, prefix=prefix or None, client_options=_client(""), retry_config=_retry())
    base = emulator if "://" in emulator else f"http://{emulator}"
    return GCSStore(
        bucket,
        prefix=prefix or None,
        config={"base_url": base},
        credential_provider=_anonymous,
        client_options=_client(base),
        retry_config=_retry(),
    )


def _anonymous() -> GCSCredential:
    """An emulator asks for no login, but obstore sends none of its writes without a token."""
    return {"token": "anonymous", "expires_at": None}


def _client(endpoint: str) -> ClientConfig:
    plain = urlsplit(endpoint).scheme == "http"
    return {"allow_http": plain, "connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=300)}


def _retry() -> RetryConfig:
    return {"max_retries": 8, "retry_timeout": timedelta(seconds=120)}


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
    """Bytes that were read; fewer than asked for at the file's end."""
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
            fcntl.flock(held, fcntl.LOCK_EX)  # released with the file, also when the process is killed
            if not path.exists() or _content_version(path.read_bytes()) != expected:
                return False
            _write_file(path, data)
            return True
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


def _write_file(path: Path, data: Buffer) -> None:
    # Several machines may share the folder, so a process number names nobody.
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
    """Of a killed writer: ours, or obstore's own staging file."""
    return (name.startswith(".") and name.endswith(".tmp")) or re.fullmatch(r".+#\d+", name) is not None


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # not empty, or gone already: both are fine


@contextmanager
def _explained(where: str, what: str) -> Generator[None]:
    """Translate what the library raises, once."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        text = str(error).strip()
        reason = text.splitlines()[0] if text else type(error).__name__
        if _METADATA_SERVER in reason:
            # Without credentials the library asks the machine for its role, and that is what it then reports.
            reason = (
                "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                f"GOOGLE_APPLICATION_CREDENTIALS, or give the host a role ({reason})"
            )
        raise StorageError(f"{where} {what}: {reason}") from error
