"""The texts that `prepare` reads, document by document, from files and buckets.

A .jsonl (.ndjson) file has one document per line and a .parquet file one per row, in the named column. Any other file
is one document. `.gz` may follow. A long document comes in chunks of about 1 MiB, cut after a line's end.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, cast

from trainer.checkpoint.store import Store, open_store
from trainer.data import sources
from trainer.data.extents import Piece, fingerprint_pieces
from trainer.errors import DataError

_PART = 1 << 20
_BUFFER = 8 << 20


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A document, or a part of a long one.

    Attributes:
        data: The text in UTF-8.
        is_last: Whether the document ends with this chunk.
        replies: In chat data, first and last character of each part that is trained on, the last one excluded.
        trains_end: In chat data, whether the token that is added at the end is trained on.
        is_first: Whether the document begins with this chunk.
    """

    data: bytes
    is_last: bool
    replies: tuple[tuple[int, int], ...] = ()
    trains_end: bool = False
    is_first: bool = True


class Documents(Protocol):
    """A source of documents in a fixed order."""

    @property
    def fingerprint(self) -> str:
        """Short hash of what is read, as far as it is known without reading."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes to read, as stored (compressed); None when unknown."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, counted as in `size`."""
        ...

    def read(self) -> Iterator[TextChunk]:
        """Yield all documents, always in the same order.

        Raises:
            DataError: A file is unreadable or malformed.
            StorageError: The bucket cannot be read.
        """
        ...


class RowReader(Protocol):
    """Turns rows of .jsonl files into documents."""

    def read_row(self, row: Mapping[str, Any], where: str) -> Iterator[TextChunk]:
        """Yield the documents of a row.

        Raises:
            DataError: The row has another form; `where` names its place.
        """
        ...


def open_documents(source: str, column: str, chat: RowReader | None = None) -> Documents:
    """Open the documents of a source.

    Args:
        source: As for the setting `data` (trainer/data/corpus.py).
        column: The column or JSON key that holds the text.
        chat: Reads the rows of chat data, which are in .jsonl files; None for text.

    Raises:
        DataError: There is nothing to read.
        StorageError: The bucket cannot be read.
    """
    if chat is not None and source.startswith(sources.HUB_SCHEME):
        raise DataError(f"{source}: chat data is read from .jsonl files: save the data set with to_json(FILE)")
    if source.startswith(sources.HUB_SCHEME):
        from trainer.data.hub import HubDocuments, parse_hub_name

        return HubDocuments(parse_hub_name(source), column)
    if source == sources.PYTHON_STDLIB:
        return FileDocuments([_local(*file) for file in sources.list_stdlib_files()], column)
    place, pattern = sources.split_pattern(source)
    if sources.is_bucket(place):
        store = open_store(place)
        files = [_object(store, entry.path, entry.size) for entry in sources.list_bucket_objects(store, pattern)]
        return FileDocuments(files, column, chat)
    if "://" in place:
        raise DataError(f"data={source}: expected a path or an s3://, gs:// or hf:// address")
    return FileDocuments(
        [_local(*file) for file in sources.list_local_files(Path(place).expanduser(), pattern)], column, chat
    )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file or object that can be opened.

    Attributes:
        name: Relative name, with slashes.
        size: Bytes as stored.
        open: Returns a seekable stream of the bytes as stored.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class FileDocuments:
    """Documents of several files, in the order of the files."""

    def __init__(self, files: Sequence[SourceFile], column: str, chat: RowReader | None = None) -> None:
        self._files = files
        self._chat = chat
        self._column = column
        pieces = [Piece(file.name, file.size) for file in files]
        self.fingerprint = fingerprint_pieces(pieces)
        self.size: int | None = sum(file.size for file in files)
        self.bytes_read = 0

    def read(self) -> Iterator[TextChunk]:
        before = 0
        for file in self._files:
            try:
                with file.open() as stream:
                    for text in _texts(file.name, stream, self._column, self._chat):
                        yield text
                        self.bytes_read = before + min(file.size, stream.tell())
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{file.name} cannot be read: {error}") from error
            before += file.size
        self.bytes_read = before


def _texts(name: str, stream: IO[bytes], column: str, chat: RowReader | None) -> Iterator[TextChunk]:
    kind = name.lower()
    if chat is not None and not _is_lines(kind.removesuffix(".gz")):
        raise DataError(f"{name}: chat data is read from .jsonl files: choose them with SOURCE:*.jsonl")
    if kind.endswith(".parquet"):
        yield from _rows(name, stream, column)
        return
    if kind.endswith(".gz"):
        kind = kind.removesuffix(".gz")
        with gzip.GzipFile(fileobj=stream) as unpacked:
            yield from _lines(name, unpacked, column, chat) if _is_lines(kind) else split_document(unpacked)
        return
    yield from _lines(name, stream, column, chat) if _is_lines(kind) else split_document(stream)


def _is_lines(kind: str) -> bool:
    return kind.endswith((".jsonl", ".ndjson"))


def split_document(stream: IO[bytes] | gzip.GzipFile) -> Iterator[TextChunk]:
    """Yield one document in chunks; nothing for an empty one."""
    part, held = b"", b""
    while chunk := stream.read(_PART):
        if part:
            yield TextChunk(part, is_last=False)
        held += chunk
        cut = held.rfind(b"\n") + 1 or _find_character_boundary(held)
        part, held = held[:cut], held[cut:]
    if part + held:
        yield TextChunk(part + held, is_last=True)


def _find_character_boundary(data: bytes) -> int:
    """Return the largest cut that divides no UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:  # the first byte of a character
            return len(data) - back or len(data)
    return len(data)  # not UTF-8


def _lines(name: str, stream: IO[bytes] | gzip.GzipFile, column: str, chat: RowReader | None) -> Iterator[TextChunk]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name}, line {number}: not JSON: {error}") from error
        where = f"{name}, line {number}"
        if chat is not None and isinstance(row, dict):
            yield from chat.read_row(cast("dict[str, Any]", row), where)
            continue
        if not isinstance(row, dict) or column not in row:
            is_chat = isinstance(row, dict) and ("messages" in row or "completion" in row)
            advice = "read chat data with chat=auto" if is_chat else "name the key of the text with column=NAME"
            raise DataError(f"{where} has no key {column!r}: {advice}")
        yield from split_value(row[column], where)


def _rows(name: str, stream: IO[bytes], column: str) -> Iterator[TextChunk]:
    try:
        parquet: Any = import_module("pyarrow.parquet")  # optional
    except ImportError:
        raise DataError(f"{name}: Parquet files need the library `pyarrow`: pip install pyarrow") from None
    try:
        table: Any = parquet.ParquetFile(stream)
        if column not in table.schema_arrow.names:
            raise DataError(
                f"{name} has no column {column!r}; choose column=NAME: {', '.join(table.schema_arrow.names)}"
            )
        for batch in table.iter_batches(batch_size=1000, columns=[column]):
            for value in batch.column(0).to_pylist():
                yield from split_value(value, name)
    except ValueError as error:  # pyarrow's own errors derive from it
        raise DataError(f"{name} cannot be read: {error}") from error


def split_value(value: Any, where: str) -> Iterator[TextChunk]:
    """Yield the chunks of a document that is one value of a table; nothing for null and for empty text.

    Raises:
        DataError: The value is not text.
    """
    if value is None:
        return
    if not isinstance(value, str):
        raise DataError(f"{where}: the column holds {type(value).__name__}, not text: name another with column=NAME")
    yield from split_document(io.BytesIO(value.encode(errors="surrogatepass")))


def _local(name: str, path: Path) -> SourceFile:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return SourceFile(name, size, lambda: path.open("rb"))


def _object(store: Store, name: str, size: int) -> SourceFile:
    return SourceFile(name, size, lambda: io.BufferedReader(_Ranged(store, name, size), _BUFFER))


class _Ranged(io.RawIOBase):
    """An object of a bucket as a stream, read by range requests."""

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
        (data,) = self._store.read_ranges(self._name, [self._at], [count])
        if len(data) != count:
            raise DataError(f"{self._store.uri}/{self._name} became shorter while it was read")
        view[:count] = data
        self._at += count
        return count
