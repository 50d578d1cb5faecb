"""The content of a bucket as values, and the protocol of each kind of bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from orchestrator.storage.source import SourceFile


@dataclass(frozen=True, slots=True)
class Version:
    """The state of an object: the ETag and, on Cloud Storage, the generation. Compare with `==` only."""

    e_tag: str
    generation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object.

    Attributes:
        path: relative to its bucket.
        size: bytes.
        modified: in UTC.
    """

    path: str
    size: int
    modified: datetime
    version: Version


@dataclass(frozen=True, slots=True)
class Listing:
    """One level of a bucket: folders (paths without a closing slash) and objects, each in byte order."""

    folders: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class Download:
    """An object being read: its state, the SHA-256 stored beside it ("" if none), and its bytes in order."""

    info: ObjectInfo
    sha256: str
    chunks: Iterator[bytes]


OnBytes: TypeAlias = Callable[[int], None]
"""A callback with the number of bytes just copied, negative for those to be sent again. It may raise to stop."""


def ignore_bytes(count: int) -> None:
    """Ignore progress."""


class Backend(Protocol):
    """The operations of each kind of bucket. Keys are full, checked names; errors are OrchErrors."""

    def head(self, key: str) -> ObjectInfo | None: ...

    def get(self, key: str) -> bytes: ...

    def put(self, key: str, data: bytes) -> Version: ...

    def create(self, key: str, data: bytes) -> bool: ...

    def replace(self, key: str, data: bytes, expected: Version) -> bool: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def list_dir(self, prefix: str) -> Listing: ...

    def delete(self, keys: Sequence[str]) -> None: ...

    def sha256(self, key: str) -> str: ...

    def upload(self, key: str, source: SourceFile, on_bytes: OnBytes) -> None: ...

    def download(self, key: str) -> AbstractContextManager[Download]: ...

    def probe(self, prefix: str) -> None: ...
