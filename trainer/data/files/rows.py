"""The rows of JSON lines, JSON arrays, Parquet and Arrow, one after the other; none is held but the current part."""

from __future__ import annotations

from collections.abc import Iterator

from trainer.data.files.json_rows import Row, read_lines, read_values
from trainer.data.files.tables import TableReader
from trainer.data.files.unpacking import Content


def read_rows(content: Content, column: str | None, tables: TableReader) -> Iterator[Row]:
    """Yield the rows of a content that has rows.

    Args:
        content: Of a form with rows.
        column: The only key or column that is read; None for all.
        tables: Reads tables.

    Raises:
        DataError: The rest cannot be read.
    """
    name, stream, kind = content.name, content.stream, content.form.kind
    if kind == "lines":
        return read_lines(name, stream, column)
    if kind in ("array", "objects"):
        return read_values(name, stream, column, is_array=kind == "array")
    return tables.read(name, kind, stream, column)
