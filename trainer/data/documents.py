"""The texts that `prepare` reads, document by document, from files and buckets.

The first bytes of a file decide what it is (trainer/data/files/forms.py). JSON lines, JSON arrays, Parquet and Arrow
have a document in each row, in the named column; any other text is one document. All may be compressed. A long document
comes in chunks of about 1 MiB, cut after a line's end. A bad row has no part in what is read: neither has a text with
bytes that are not UTF-8.
"""

from __future__ import annotations

import codecs
import io
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

from trainer.checkpoint.store import open_store
from trainer.data import sources
from trainer.data.chat.conversations import find_form
from trainer.data.extents import Piece
from trainer.data.files.bad_rows import EXAMPLES, BadRows
from trainer.data.files.forms import JSON_KINDS
from trainer.data.files.inspection import inspect_files
from trainer.data.files.json_rows import Row, describe_surrogate
from trainer.data.files.rows import read_rows
from trainer.data.files.source_files import SourceFile, make_local_file, make_object_file
from trainer.data.files.tables import TableReader
from trainer.data.files.unpacking import UNPACKING_ERRORS, Allowance, Content, list_contents
from trainer.data.fingerprints import fingerprint_files, fingerprint_objects
from trainer.errors import DataError

_PART = 1 << 20
_LOOK_BEYOND = 10_000
_KEYS = 8
_HELD_TEXT = 64 << 20


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
        return FileDocuments([make_object_file(store, entry) for entry in entries], fingerprint, column, chat, bad)
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
    opened = [make_local_file(*file) for file in files]
    sources.check_filled(source, {file.name: file.size for file in opened})
    known = inspect_files(files, report, trusted=trusted)
    pieces = [Piece(file.name, file.size) for file in opened]
    fingerprint = fingerprint_files(pieces, [one.sha256 for one in known])
    return FileDocuments(opened, fingerprint, column, chat, bad, trusted=trusted)


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
        self.bad.others = len(self._files) > 1
        self.bad.examples.clear()
        tables = TableReader()
        try:
            for file in self._files:
                with file.open() as stream:
                    for text in self._read_file(file, stream, tables):
                        yield text
                        self.bytes_read = before + min(file.size, stream.tell())
                file.check()
                before += file.size
        finally:
            tables.end()
        self.bytes_read = before

    def list_notes(self) -> list[str]:
        return [*self.bad.list_notes(), *([] if self._chat is None else self._chat.list_notes())]

    def _read_file(self, file: SourceFile, stream: IO[bytes], tables: TableReader) -> Iterator[TextChunk]:
        try:
            if self._trusted:
                yield from split_document(stream)
                return
            allowance = Allowance(file.name, file.size)
            for content in list_contents(file.name, stream, allowance):
                kind = content.form.kind
                if kind == "text" or (kind in JSON_KINDS and not self._column and self._chat is None):
                    yield from self._read_text(content)
                else:
                    yield from self._read_rows(content, allowance, tables)
        except UNPACKING_ERRORS as error:
            file.check()  # a change is the likelier reason
            raise DataError(f"{file.name} cannot be read: {error}") from error

    def _read_text(self, content: Content) -> Iterator[TextChunk]:
        """Yield a document. One that is not UTF-8 is a bad row, of which nothing may be in a shard."""
        if self._chat is not None:
            raise DataError(
                f"{content.name} is plain text, and chat= needs rows: JSON lines, JSON arrays, Parquet or Arrow; "
                "name the files that have them, as FOLDER:*.jsonl, and unpack an archive that has others"
            )
        try:
            with _check_text(content) as checked:
                yield from split_document(checked)
        except UnicodeDecodeError as error:
            problem = f"not {content.form.encoding.upper()}, as its byte-order mark says"
            if content.form.encoding == "utf-8":
                advice = "convert it, as with iconv -f WINDOWS-1252 -t UTF-8 FILE"
                problem = f"text in another encoding than UTF-8, by byte {error.start:,}: {advice}"
            self.bad.add(content.name, f": {problem}")
            if self.bad.is_exceeded:
                raise self.bad.fail() from None

    def _read_rows(self, content: Content, allowance: Allowance, tables: TableReader) -> Iterator[TextChunk]:
        column = self._column if self._chat is None else None
        beyond = 0
        for row in read_rows(content, column, tables):
            try:
                texts = [] if row.problem else list(self._convert(row))
            except DataError as error:
                self.bad.add(row.where, str(error))
            else:
                if row.problem:
                    self.bad.add(row.where, f": {row.problem}")
                else:
                    self.bad.others = True
                    if content.form.kind not in JSON_KINDS:  # a table's pages are compressed, too
                        allowance.use(1 + sum(len(text.data) for text in texts))
                    if not beyond:
                        yield from texts
            if self.bad.is_exceeded:  # look a little further: three examples say more than one
                beyond += 1
                if beyond > _LOOK_BEYOND or len(self.bad.examples) == EXAMPLES:
                    break
        if beyond:
            raise self.bad.fail()

    def _convert(self, row: Row) -> Iterator[TextChunk]:
        value = row.value
        if self._chat is not None:
            if not isinstance(value, dict):
                raise DataError(f"{row.where} is {_name_kind(value)}, no object with keys, as chat= needs")
            try:
                yield from self._chat.read_row(cast("dict[str, Any]", value), row.where)
            except DataError as error:
                raise DataError(f"{error}{_explain_wrapped(cast('dict[str, Any]', value))}") from error
            return
        if isinstance(value, dict):
            yield from split_value(_find_text(cast("dict[str, Any]", value), self._column, row.where), row.where)
        elif value is None or isinstance(value, str):
            yield from split_value(value, row.where)
        else:
            raise DataError(f"{row.where} is {_name_kind(value)}: neither text nor an object with keys")


@contextmanager
def _check_text(content: Content) -> Generator[IO[bytes], None, None]:
    """Yield a text after all of it has been checked: a local file is read twice, another one is copied.

    Raises:
        UnicodeDecodeError: It is not UTF-8.
    """
    text = _CheckedText(content)
    if isinstance(getattr(content.stream, "raw", None), io.FileIO):
        while text.read(_PART):
            pass
        content.stream.seek(content.form.mark)
        yield content.stream
        return
    with tempfile.SpooledTemporaryFile(_HELD_TEXT) as copied:
        shutil.copyfileobj(text, copied, _PART)
        copied.seek(0)
        yield copied


class _CheckedText(io.RawIOBase):
    """The bytes of a text; reading raises UnicodeDecodeError, with the place in the file, where they are not UTF-8."""

    def __init__(self, content: Content) -> None:
        self._stream = content.stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._at = content.form.mark

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        held = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            error.start += self._at - held
            raise
        self._at += len(data)
        return data


def _find_text(row: Mapping[str, Any], column: str, where: str) -> Any:
    found = row.get(column)
    if column in row and (found is None or isinstance(found, str)):
        return found
    if column not in row and find_form(row):
        raise DataError(f"{where} has no key {column!r}: read chat data with chat=auto")
    wrapped = _explain_wrapped(row)
    if column in row:
        advice = wrapped or ": name another with column=NAME"
        raise DataError(f"{where}: the column holds {type(found).__name__}, not text{advice}")
    keys = ", ".join(list(row)[:_KEYS]) or "none"
    advice = "name the key of the text with column=NAME, data.column in a run (empty: the JSON itself is the text)"
    raise DataError(f"{where} has no key {column!r}, its keys are {keys}{wrapped or f': {advice}'}")


def _explain_wrapped(row: Mapping[str, Any]) -> str:
    """Return how the rows of a file are written out that stand in lists of an object; "" where there are none."""
    if find_form(row):
        return ""
    lists = [
        key for key, value in row.items() if isinstance(value, list) and value and isinstance(value[0], (dict, str))
    ]
    if not lists:
        return ""
    named = " and ".join(map(repr, lists[:EXAMPLES]))
    command = f"jq -c {shlex.quote(f'.[{json.dumps(lists[0])}][]')} FILE > ROWS.jsonl"
    return f"; if the rows are in the list of its key {named}, write one in each line: {command}"


def _name_kind(value: Any) -> str:
    """Return what a value of JSON is, for people."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return "a number" if isinstance(value, (int, float)) else "text" if isinstance(value, str) else "a list"


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
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: {describe_surrogate(error)}") from error
    yield from split_document(io.BytesIO(data))
