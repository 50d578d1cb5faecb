"""The rows of JSON lines, JSON arrays, Parquet and Arrow, one after the other; none is held but the current part."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from trainer.data.unpacking import Content, import_pyarrow
from trainer.errors import DataError

_PART = 1 << 20
_MOST_ROW = 128 << 20  # a row is held as a whole, for a moment a few times
_BATCH = 256  # rows of a table that are held together
_UNCERTAIN = 16  # characters at the end of a part that may be the beginning of something valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row, or what is wrong with it.

    Attributes:
        where: File and line, row or element, for messages.
        value: Usually a mapping from keys or columns to values.
        problem: Empty for a good row.
    """

    where: str
    value: Any = None
    problem: str = ""


def read_rows(content: Content, column: str | None) -> Iterator[Row]:
    """Yield the rows of a content that has rows.

    Args:
        content: Of a form with rows.
        column: The only column that is read of a table; None for all.

    Raises:
        DataError: The rest cannot be read.
    """
    name, stream, kind = content.name, content.stream, content.form.kind
    if kind == "lines":
        return _read_lines(name, stream)
    if kind == "array":
        return _Array(name=name, stream=stream).read()
    if kind == "object":
        return _read_object(name, stream)
    return _read_table(name, kind, stream, column)


def _read_lines(name: str, stream: IO[bytes]) -> Iterator[Row]:
    number = 0
    while line := stream.readline(_MOST_ROW):
        number += 1
        where = f"{name}, line {number}"
        if len(line) == _MOST_ROW and not line.endswith(b"\n"):
            while (rest := stream.readline(_PART)) and not rest.endswith(b"\n"):
                pass
            yield Row(where=where, problem=f"longer than {_MOST_ROW >> 20} MiB")
        elif line.strip():
            yield _parse(where, line)


def _read_object(name: str, stream: IO[bytes]) -> Iterator[Row]:
    text = stream.read(_MOST_ROW + 1)
    if len(text) > _MOST_ROW:
        raise DataError(f"{name} is one JSON object of more than {_MOST_ROW >> 20} MiB: write its rows as JSON lines")
    yield _parse(name, text)


def _parse(where: str, text: bytes) -> Row:
    try:
        return Row(where=where, value=json.loads(text.decode()))
    except UnicodeDecodeError as error:
        return Row(where=where, problem=f"not UTF-8, by byte {error.start}")
    except (ValueError, RecursionError) as error:
        return Row(where=where, problem=f"not JSON: {error}")


@dataclass(slots=True, kw_only=True)
class _Array:
    """A JSON array whose elements are parsed as they come."""

    name: str
    stream: IO[bytes]
    held: str = ""
    at: int = 0
    number: int = 0
    decoder: Any = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    def read(self) -> Iterator[Row]:
        self._expect("[")
        while self._next() != "]":
            if self.number:
                self._expect(",")
            self.number += 1
            yield Row(where=f"{self.name}, element {self.number}", value=self._parse())
        self.at += 1
        if self._next():
            raise self._fail("text follows the end of the array")

    def _next(self) -> str:
        """Return the next character that is no space; "" at the end."""
        while True:
            while self.at < len(self.held):
                if not self.held[self.at].isspace():
                    return self.held[self.at]
                self.at += 1
            if not self._fill():
                return ""

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._fail(f"no {character!r} is where one belongs; has the file been cut?")
        self.at += 1

    def _parse(self) -> Any:
        self._next()
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.held, self.at)
            except json.JSONDecodeError as error:
                # What is held may end within the element.
                certain = error.pos < len(self.held) - _UNCERTAIN and not error.msg.startswith("Unterminated")
                if certain or not self._fill():
                    raise self._fail(f"not JSON: {error.msg}") from error
            except RecursionError as error:
                raise self._fail("too deeply nested") from error
            else:
                if end < len(self.held) or not self._fill():  # a number may continue
                    self.at = end
                    return value

    def _fill(self) -> bool:
        """Hold twice as much, so that a long element is parsed a few times only; return False at the end."""
        self.held, self.at = self.held[self.at :], 0
        if len(self.held) > _MOST_ROW:
            raise self._fail(f"longer than {_MOST_ROW >> 20} MiB")
        data = self.stream.read(max(_PART, len(self.held)))
        try:
            self.held += self.decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            raise self._fail("not UTF-8") from error
        return bool(data)

    def _fail(self, why: str) -> DataError:
        return DataError(f"{self.name}, element {self.number}: {why}; what follows cannot be read")


def _read_table(name: str, kind: str, stream: IO[bytes], column: str | None) -> Iterator[Row]:
    columns = None if column is None else [column]
    number = 0
    if kind == "parquet":
        table: Any = import_pyarrow(name, "Parquet files", "pyarrow.parquet").ParquetFile(stream)
        _check_column(name, table.schema_arrow.names, column)
        batches = table.iter_batches(batch_size=_BATCH, columns=columns)
    else:
        library = import_pyarrow(name, "Arrow files", "pyarrow.ipc")
        batches = _read_arrow(name, library, kind, stream, column)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH):
            part = batch.slice(start, _BATCH)
            for value in part.to_pylist() if column is None else part.column(0).to_pylist():
                number += 1
                yield Row(where=f"{name}, row {number}", value=value if column is None else {column: value})


def _read_arrow(name: str, library: Any, kind: str, stream: IO[bytes], column: str | None) -> Iterator[Any]:
    opened: Any = library.open_file(stream) if kind == "arrow-file" else library.open_stream(stream)
    _check_column(name, opened.schema.names, column)
    batches = map(opened.get_batch, range(opened.num_record_batches)) if kind == "arrow-file" else opened
    for batch in batches:
        batch.validate(full=True)  # a malformed one could end the process
        yield batch if column is None else batch.select([column])


def _check_column(name: str, columns: list[str], column: str | None) -> None:
    if column is not None and column not in columns:
        raise DataError(f"{name} has no column {column!r}; choose column=NAME: {', '.join(columns)}")
