"""The texts that `prepare` reads, one document after the other, from files, buckets and gzip, JSON lines or Parquet.

A .jsonl (.ndjson) file has a document on each line, a .parquet file one in each row, in the column that is named; any
other file is one document. `.gz` may follow. A long document comes in parts of about 1 MiB, cut behind a line's end.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

from trainer.checkpoint.store import Store, open_store
from trainer.data import places
from trainer.data.extents import Piece, fingerprint
from trainer.errors import DataError

_PART = 1 << 20
_BUFFER = 8 << 20


@dataclass(frozen=True, slots=True)
class Text:
    """A document, or a part of one. ends: the last part."""

    data: bytes
    ends: bool


class Documents(Protocol):
    @property
    def fingerprint(self) -> str:
        """Of what is read, as far as that is known without reading it."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes to be read, compressed as they are; None when it is not known."""
        ...

    @property
    def seen(self) -> int:
        """Of these, how many were read."""
        ...

    def read(self) -> Iterator[Text]:
        """All documents, always in the same order. Raises DataError, StorageError."""
        ...


def open_documents(source: str, column: str) -> Documents:
    """source: as for `data=` (trainer/data/corpus.py). Raises DataError, StorageError."""
    if source.startswith(places.HUB):
        from trainer.data.hub import HubDocuments, parse

        return HubDocuments(parse(source), column)
    if source == places.PYTHON_STDLIB:
        return FileDocuments([_local(*file) for file in places.stdlib_files()], column)
    place, pattern = places.split_pattern(source)
    if places.is_bucket(place):
        store = open_store(place)
        files = [_object(store, entry.path, entry.size) for entry in places.bucket_objects(store, pattern)]
        return FileDocuments(files, column)
    if "://" in place:
        raise DataError(f"data={source}: not a path, nor an s3://, gs:// or hf:// place")
    return FileDocuments([_local(*file) for file in places.local_files(Path(place).expanduser(), pattern)], column)


@dataclass(frozen=True, slots=True)
class File:
    """size: bytes. open: gives a seekable stream of the bytes as they are stored."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class FileDocuments:
    """The documents of files, in their order."""

    def __init__(self, files: Sequence[File], column: str) -> None:
        self._files = files
        self._column = column
        pieces = [Piece(file.name, file.size) for file in files]
        self.fingerprint = fingerprint(pieces)
        self.size: int | None = sum(file.size for file in files)
        self.seen = 0

    def read(self) -> Iterator[Text]:
        before = 0
        for file in self._files:
            try:
                with file.open() as stream:
                    for text in _texts(file.name, stream, self._column):
                        yield text
                        self.seen = before + min(file.size, stream.tell())
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{file.name} cannot be read: {error}") from error
            before += file.size
        self.seen = before


def _texts(name: str, stream: IO[bytes], column: str) -> Iterator[Text]:
    kind = name.lower()
    if kind.endswith(".parquet"):
        yield from _rows(name, stream, column)
        return
    if kind.endswith(".gz"):
        kind = kind.removesuffix(".gz")
        with gzip.GzipFile(fileobj=stream) as unpacked:
            yield from _lines(name, unpacked, column) if _is_lines(kind) else parts_of(unpacked)
        return
    yield from _lines(name, stream, column) if _is_lines(kind) else parts_of(stream)


def _is_lines(kind: str) -> bool:
    return kind.endswith((".jsonl", ".ndjson"))


def parts_of(stream: IO[bytes] | gzip.GzipFile) -> Iterator[Text]:
    """One document in parts; nothing for an empty one."""
    part, held = b"", b""
    while chunk := stream.read(_PART):
        if part:
            yield Text(part, ends=False)
        held += chunk
        cut = held.rfind(b"\n") + 1 or _before_a_character(held)
        part, held = held[:cut], held[cut:]
    if part + held:
        yield Text(part + held, ends=True)


def _before_a_character(data: bytes) -> int:
    """Where to cut so that no UTF-8 character is divided."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:  # the first byte of a character
            return len(data) - back or len(data)
    return len(data)  # no UTF-8


def _lines(name: str, stream: IO[bytes] | gzip.GzipFile, column: str) -> Iterator[Text]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise DataError(f"{name}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict) or column not in row:
            raise DataError(f"{name}, line {number} has no {column!r}: name the text's column with column=NAME")
        yield from document(row[column], f"{name}, line {number}")


def _rows(name: str, stream: IO[bytes], column: str) -> Iterator[Text]:
    try:
        parquet: Any = import_module("pyarrow.parquet")  # optional
    except ImportError:
        raise DataError(f"{name}: Parquet files need the library `pyarrow`: pip install pyarrow") from None
    try:
        table: Any = parquet.ParquetFile(stream)
        if column not in table.schema_arrow.names:
            raise DataError(f"{name} has no column {column!r}, but {', '.join(table.schema_arrow.names)}: column=NAME")
        for batch in table.iter_batches(batch_size=1000, columns=[column]):
            for value in batch.column(0).to_pylist():
                yield from document(value, name)
    except ValueError as error:  # pyarrow's own errors derive from it
        raise DataError(f"{name} cannot be read: {error}") from error


def document(value: Any, where: str) -> Iterator[Text]:
    """A document that is one value of a table; none for null and for empty text. Raises DataError."""
    if value is None:
        return
    if not isinstance(value, str):
        raise DataError(f"{where}: the column holds {type(value).__name__}, not text: name another with column=NAME")
    yield from parts_of(io.BytesIO(value.encode(errors="surrogatepass")))


def _local(name: str, path: Path) -> File:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return File(name, size, lambda: path.open("rb"))


def _object(store: Store, name: str, size: int) -> File:
    return File(name, size, lambda: io.BufferedReader(_Ranged(store, name, size), _BUFFER))


class _Ranged(io.RawIOBase):
    """An object of a bucket as a stream, read by ranges of what is asked for."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store = store
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), self._size - self._at)
        if count <= 0:
            return 0
        (data,) = self._store.ranges(self._name, [self._at], [count])
        if len(data) != count:
            raise DataError(f"{self._store.uri}/{self._name} became shorter while it was read")
        view[:count] = data
        self._at += count
        return count
