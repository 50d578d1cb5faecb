"""The texts that `prepare` reads, document by document, from files and buckets.

The first bytes of a file decide what it is (trainer/data/forms.py). JSON lines, JSON arrays, Parquet and Arrow have a
document in each row, in the named column; any other text is one document. All may be compressed. A long document comes
in chunks of about 1 MiB, cut after a line's end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol, cast

from trainer.checkpoint.store import ObjectEntry, Store, open_store
from trainer.data import sources
from trainer.data.extents import Piece
from trainer.data.fingerprints import fingerprint_files, fingerprint_objects
from trainer.data.forms import HEAD_BYTES, JSON_KINDS
from trainer.data.inspection import inspect_files
from trainer.data.rows import Row, read_rows
from trainer.data.unpacking import UNPACKING_ERRORS, Allowance, Content, list_contents
from trainer.errors import DataError

_PART = 1 << 20
_BUFFER = 8 << 20
_EXAMPLES = 3
_LOOK_BEYOND = 10_000
_KEYS = 8


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A document, or a part of a long one.

    Attributes:
        data: The text in UTF-8.
        is_last: Whether the document ends with this chunk.
        replies: In chat data, first and last character of each part that is trained on, the last one excluded.
        trains_end: In chat data, whether the token that is added at the end is trained on.
        literal: In chat data, places of characters: a control token that contains one is text.
        is_first: Whether the document begins with this chunk.
    """

    data: bytes
    is_last: bool
    replies: tuple[tuple[int, int], ...] = ()
    trains_end: bool = False
    literal: tuple[int, ...] = ()
    is_first: bool = True


@dataclass(slots=True, kw_only=True)
class BadRows:
    """Rows that cannot be read: they are skipped, up to a number.

    Attributes:
        most: How many may be skipped.
        count: How many were.
        examples: Of the first three, the place and what is wrong.
    """

    most: int = 0
    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, where: str, message: str) -> None:
        """Count a row, of which the message may begin with its place; see `is_exceeded`."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append((where, message.removeprefix(where)))

    @property
    def is_exceeded(self) -> bool:
        return self.count > self.most

    def describe(self) -> str:
        """Return how many rows are bad, and the first of them, for people."""
        shown, before = list[str](), ""
        for where, problem in self.examples:
            shown.append(f"likewise {where}" if problem == before else f"{where}{problem}")
            before = problem
        more = f"; and {self.count - len(self.examples):,} more" if self.count > len(self.examples) else ""
        return f"{self.count:,} bad row{'s' if self.count > 1 else ''}: {'; '.join(shown)}{more}"

    def note(self) -> str:
        """Return the description for the end of a message; nothing without bad rows."""
        return f" ({self.describe()})" if self.count else ""

    def list_notes(self) -> list[str]:
        """Return the description as a line; none without bad rows."""
        return [f"skipped {self.describe()}"] if self.count else []

    def fail(self) -> DataError:
        """Return the error for too many."""
        if self.count == 1:
            return DataError(f"{''.join(self.examples[0])}; max_bad=1 (data.max_bad in a run) skips such a row")
        return DataError(
            f"{self.describe()}; max_bad={self.most} allows fewer: correct the rows, or skip them with a larger "
            "max_bad (data.max_bad in a run)"
        )


class Documents(Protocol):
    """A source of documents in a fixed order."""

    @property
    def fingerprint(self) -> str:
        """Short hash of what is read (trainer/data/fingerprints.py)."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes to read, as stored (compressed); None when unknown."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, counted as in `size`."""
        ...

    @property
    def bad(self) -> BadRows:
        """Rows that were skipped."""
        ...

    def read(self) -> Iterator[TextChunk]:
        """Yield all documents, always in the same order.

        Raises:
            DataError: A file is unreadable or malformed.
            StorageError: The bucket cannot be read.
        """
        ...

    def list_notes(self) -> list[str]:
        """Return what was unusual in what was read, for people: a line each."""
        ...


class RowReader(Protocol):
    """Turns rows into documents."""

    def read_row(self, row: Mapping[str, Any], where: str) -> Iterator[TextChunk]:
        """Yield the documents of a row.

        Raises:
            DataError: The row has another form; `where` names its place.
        """
        ...

    def list_notes(self) -> list[str]:
        """Return what was unusual in the rows that were read."""
        ...


def open_documents(
    source: str,
    column: str,
    chat: RowReader | None = None,
    max_bad: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> Documents:
    """Open the documents of a source.

    Args:
        source: As for the setting `data` (trainer/data/corpus.py).
        column: The column or JSON key that holds the text; empty to read JSON as the text that it is.
        chat: Reads the rows of chat data; None for text.
        max_bad: How many bad rows may be skipped.
        report: Prints one line for the user.

    Raises:
        DataError: There is nothing to read.
        StorageError: The bucket cannot be read.
    """
    if chat is not None and source.startswith(sources.HUB_SCHEME):
        raise DataError(f"{source}: chat data is read from files: save the data set with to_json(FILE)")
    bad = BadRows(most=max_bad)
    if source.startswith(sources.HUB_SCHEME):
        from trainer.data.hub import HubDocuments, parse_hub_name

        return HubDocuments(parse_hub_name(source), column, bad)
    if source == sources.PYTHON_STDLIB:
        return _open_files(source, sources.list_stdlib_files(), column, chat, bad, report, trusted=True)
    place, pattern = sources.split_pattern(source)
    if sources.is_bucket(place):
        store = open_store(place)
        entries = sources.list_bucket_objects(store, pattern)
        sources.check_filled(source, {entry.path: entry.size for entry in entries})
        fingerprint = fingerprint_objects(store.uri, entries)
        return FileDocuments([_object(store, entry) for entry in entries], fingerprint, column, chat, bad)
    if "://" in place:
        raise DataError(f"data={source}: expected a path or an s3://, gs:// or hf:// address")
    files = sources.list_local_files(Path(place).expanduser(), pattern)
    return _open_files(source, files, column, chat, bad, report)


def _open_files(
    source: str,
    files: Sequence[tuple[str, Path]],
    column: str,
    chat: RowReader | None,
    bad: BadRows,
    report: Callable[[str], None],
    *,
    trusted: bool = False,
) -> FileDocuments:
    opened = [_local(*file) for file in files]
    sources.check_filled(source, {file.name: file.size for file in opened})
    known = inspect_files(files, report, trusted=trusted)
    pieces = [Piece(file.name, file.size) for file in opened]
    fingerprint = fingerprint_files(pieces, [one.sha256 for one in known])
    return FileDocuments(opened, fingerprint, column, chat, bad, trusted=trusted)


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

    def __init__(
        self,
        files: Sequence[SourceFile],
        fingerprint: str,
        column: str,
        chat: RowReader | None,
        bad: BadRows,
        *,
        trusted: bool = False,
    ) -> None:
        """Remember what to read; `trusted` files are text, whatever their first bytes are."""
        self._files = files
        self._chat = chat
        self._column = column
        self._trusted = trusted
        self.bad = bad
        self.fingerprint = fingerprint
        self.size: int | None = sum(file.size for file in files)
        self.bytes_read = 0

    def read(self) -> Iterator[TextChunk]:
        self.bad.count, before = 0, 0
        self.bad.examples.clear()
        for file in self._files:
            try:
                with file.open() as stream:
                    for text in self._read_file(file, stream):
                        yield text
                        self.bytes_read = before + min(file.size, stream.tell())
            except UNPACKING_ERRORS as error:
                raise DataError(f"{file.name} cannot be read: {error}") from error
            before += file.size
        self.bytes_read = before

    def list_notes(self) -> list[str]:
        return [*self.bad.list_notes(), *([] if self._chat is None else self._chat.list_notes())]

    def _read_file(self, file: SourceFile, stream: IO[bytes]) -> Iterator[TextChunk]:
        if self._trusted:
            yield from split_document(stream)
            return
        allowance = Allowance(file.name, file.size)
        for content in list_contents(file.name, stream, allowance):
            kind = content.form.kind
            if kind == "text" or (kind in JSON_KINDS and not self._column and self._chat is None):
                if self._chat is not None:
                    raise DataError(
                        f"{content.name} is plain text, and chat= needs rows: JSON lines, JSON arrays, Parquet or Arrow"
                    )
                yield from self._read_text(content)
            else:
                yield from self._read_rows(content, allowance)

    def _read_text(self, content: Content) -> Iterator[TextChunk]:
        """Yield a document. What is no UTF-8 in it counts as a bad row, and is replaced."""
        at = content.form.mark
        for chunk in split_document(content.stream):
            try:
                chunk.data.decode()
                yield chunk
            except UnicodeDecodeError as error:
                advice = "convert it, as with iconv -f WINDOWS-1252 -t UTF-8 FILE"
                self.bad.add(f"{content.name}, byte {at + error.start:,}", f": not UTF-8: {advice}")
                if self.bad.is_exceeded:
                    raise self.bad.fail() from None
                yield replace(chunk, data=chunk.data.decode(errors="replace").encode())
            at += len(chunk.data)

    def _read_rows(self, content: Content, allowance: Allowance) -> Iterator[TextChunk]:
        column = self._column if self._chat is None else None
        beyond = 0
        for row in read_rows(content, column):
            try:
                texts = [] if row.problem else list(self._convert(row))
            except DataError as error:
                self.bad.add(row.where, str(error))
            else:
                if row.problem:
                    self.bad.add(row.where, f": {row.problem}")
                elif not beyond:
                    for text in texts:
                        if content.form.kind not in JSON_KINDS:  # a table's pages are compressed, too
                            allowance.use(len(text.data))
                        yield text
            if self.bad.is_exceeded:  # look a little further: three examples say more than one
                beyond += 1
                if beyond > _LOOK_BEYOND or len(self.bad.examples) == _EXAMPLES:
                    break
        if beyond:
            raise self.bad.fail()

    def _convert(self, row: Row) -> Iterator[TextChunk]:
        value = row.value
        if self._chat is not None:
            if not isinstance(value, dict):
                raise DataError(f"{row.where} is no object with keys, as chat= needs")
            yield from self._chat.read_row(cast("dict[str, Any]", value), row.where)
            return
        if isinstance(value, dict):
            value = _find_text(cast("dict[str, Any]", value), self._column, row.where)
        yield from split_value(value, row.where)


def _find_text(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column in row:
        return row[column]
    if "messages" in row or "completion" in row:
        raise DataError(f"{where} has no key {column!r}: read chat data with chat=auto")
    keys = ", ".join(list(row)[:_KEYS]) or "none"
    advice = "name the key of the text with column=NAME, data.column in a run (empty: the JSON itself is the text)"
    raise DataError(f"{where} has no key {column!r}, its keys are {keys}: {advice}")


def split_document(stream: IO[bytes]) -> Iterator[TextChunk]:
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
    return SourceFile(name, size, lambda: path.open("rb", buffering=HEAD_BYTES))


def _object(store: Store, entry: ObjectEntry) -> SourceFile:
    def opened() -> IO[bytes]:
        return io.BufferedReader(_Ranged(store, entry.path, entry.size), max(_BUFFER, HEAD_BYTES))

    return SourceFile(entry.path, entry.size, opened)


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
