"""The rows of Parquet and Arrow, decoded in a process with limits.

A few bytes of such a file can declare any amount of memory: by dictionaries, run lengths, deltas or compressed buffers.
So pyarrow decodes in a separate process (trainer/data/limited_process.py), which asks for the bytes that it needs, and
answers with few rows at a time.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, TypeAlias, cast

from trainer.data.files.json_rows import MOST_ROW, MOST_VALUES, UNCOUNTED, Row
from trainer.data.files.unpacking import import_pyarrow
from trainer.data.limited_process import AskParent, LimitedProcess, LimitedProcessError, Limits, format_memory
from trainer.errors import DataError

_LIMITS = Limits(memory=3 << 30, seconds=120.0)
_MOST_READ = 4 << 20
_ANSWER_BYTES = 1 << 20
_ANSWER_ROWS = 256
_BATCH_BYTES = 16 << 20

Decoded: TypeAlias = tuple[Any, str, int]
"""The value of a row, what is wrong with it, and its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table to open.

    Attributes:
        kind: Its form.
        column: The only column that is read; None for all.
        size: Its bytes; None where it cannot be sought in.
    """

    kind: str
    column: str | None
    size: int | None


class TableReader:
    """Reads tables, one after the other, in one process, which starts with the first."""

    def __init__(self) -> None:
        self._process: LimitedProcess | None = None

    def read(self, name: str, kind: str, stream: IO[bytes], column: str | None) -> Iterator[Row]:
        """Yield the rows of a table.

        Args:
            name: Of the file.
            kind: Its form.
            stream: Of its bytes.
            column: The only column that is read; None for all.

        Raises:
            DataError: The table cannot be decoded, or not within the limits.
        """
        import_pyarrow(name, "Parquet files" if kind == "parquet" else "Arrow files")
        size = None if kind == "arrow-stream" else stream.seek(0, os.SEEK_END)
        columns = self._ask(name, stream, _Table(kind=kind, column=column, size=size))
        if column is not None and column not in columns:
            raise DataError(f"{name} has no column {column!r}; choose column=NAME: {', '.join(columns)}")
        number = 0
        while rows := self._ask(name, stream, None):
            for value, problem, _ in rows:
                number += 1
                where = f"{name}, row {number}"
                yield Row(where=where, value=value if column is None else {column: value}, problem=problem)

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, name: str, stream: IO[bytes], request: _Table | None) -> Any:
        def read(place: tuple[int, int]) -> bytes:
            at, count = place
            if stream.seekable():
                stream.seek(at)
            return stream.read(count)

        if self._process is None:
            self._process = LimitedProcess(_open_tables, AskParent, _LIMITS)
        try:
            return self._process.ask(request, answer=read)
        except LimitedProcessError as error:
            reason = str(error) if error.by_limit else f"the process that decodes it ended ({error})"
            raise DataError(f"{name} cannot be read: {reason}") from error


def _open_tables(parent: AskParent) -> Callable[[_Table | None], list[str] | list[Decoded]]:
    """Return the function that opens a table, or without one returns the next rows, in the process that calls it."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve more address space than they use
    pyarrow: Any = import_module("pyarrow")
    pyarrow.set_cpu_count(1)
    opened: list[Iterator[Decoded]] = []

    def answer(request: _Table | None) -> list[str] | list[Decoded]:
        try:
            if request is None:
                return _take(opened[0])
            file = io.BufferedReader(_Remote(parent, request.size), _ANSWER_BYTES)
            columns, batches = (_open_parquet if request.kind == "parquet" else _open_arrow)(file, request)
            opened[:] = [_iter_rows(batches, request.column)]
        except MemoryError:
            needed = format_memory(_LIMITS.memory)
            raise DataError(
                f"some rows need more than {needed} of memory together: write it with fewer rows in a batch"
            ) from None
        return columns

    return answer


class _Remote(io.RawIOBase):
    """The bytes of a table, which the parent reads."""

    def __init__(self, parent: AskParent, size: int | None) -> None:
        self._parent = parent
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size or 0}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data: bytes = self._parent((self._at, min(len(view), _MOST_READ)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _open_parquet(file: IO[bytes], table: _Table) -> tuple[list[str], Iterator[Any]]:
    """Return the names of the columns, and the batches."""
    opened: Any = import_module("pyarrow.parquet").ParquetFile(file, buffer_size=_ANSWER_BYTES, pre_buffer=False)
    groups = (opened.metadata.row_group(index) for index in range(opened.metadata.num_row_groups))
    average = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return opened.schema_arrow.names, opened.iter_batches(
        batch_size=max(1, min(_ANSWER_ROWS, _BATCH_BYTES // max(1, average))),
        columns=None if table.column is None else [table.column],
        use_threads=False,
    )


def _open_arrow(file: IO[bytes], table: _Table) -> tuple[list[str], Iterator[Any]]:
    """Return the names of the columns, and the batches."""
    library: Any = import_module("pyarrow.ipc")
    if table.kind == "arrow-stream":
        opened: Any = library.open_stream(file, options=library.IpcReadOptions(use_threads=False))
        names = opened.schema.names
        batches: Iterator[Any] = opened if table.column not in names else (one.select([table.column]) for one in opened)
        return names, batches
    names = library.open_file(file).schema.names
    fields = [names.index(table.column)] if table.column in names else []
    opened = library.open_file(file, options=library.IpcReadOptions(use_threads=False, included_fields=fields))
    return names, map(opened.get_batch, range(opened.num_record_batches))


def _iter_rows(batches: Iterator[Any], column: str | None) -> Iterator[Decoded]:
    for batch in batches:
        try:
            batch.validate(full=True)  # a malformed one could end the process
        except ValueError as error:
            if "UTF8" not in str(error):  # which rows those are is seen below
                raise
        for scalar in batch.to_struct_array() if column is None else batch.column(0):
            yield _decode_row(scalar)


def _decode_row(scalar: Any) -> Decoded:
    try:
        value = _leave_out_nulls(scalar.as_py(maps_as_pydicts="strict"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8, by byte {error.start}", 0
    size = len(pickle.dumps(value))
    if size > MOST_ROW:
        return None, f"longer than {MOST_ROW >> 20} MiB", 0
    if size > UNCOUNTED and _count_values(value) > MOST_VALUES:
        return None, f"more than {MOST_VALUES:,} values", 0
    return value, "", size


def _leave_out_nulls(value: Any) -> Any:
    """Return a value without the keys that are null: a table has each key of any row in every row."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _leave_out_nulls(one) for key, one in entries.items() if one is not None}
    return [_leave_out_nulls(one) for one in cast("list[object]", value)] if isinstance(value, list) else value


def _count_values(value: object) -> int:
    below: Iterable[object] = ()
    if isinstance(value, dict):
        below = cast("dict[str, object]", value).values()
    elif isinstance(value, list):
        below = cast("list[object]", value)
    return 1 + sum(_count_values(one) for one in below)


def _take(rows: Iterator[Decoded]) -> list[Decoded]:
    """Return the next rows; none at the end."""
    taken: list[Decoded] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += row[2]
        if size > _ANSWER_BYTES or len(taken) == _ANSWER_ROWS:
            break
    return taken
