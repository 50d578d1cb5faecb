"""The data files as typed rows. Every row has `source` and `as_of`; a missing field is a programming error."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, read with the type that the caller expects."""

    table: str
    cells: Mapping[str, object]

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def whole(self, name: str, default: int | None = None) -> int:
        if default is not None and name not in self.cells:
            return default
        return self._typed(name, int)

    def number(self, name: str) -> float:
        value = self.cells[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{self.table}: {name} is not a number")
        return float(value)

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(str(item) for item in self._typed_list(name))

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(int(str(item)) for item in self._typed_list(name))

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.cells[name]
        if not isinstance(value, kind):
            raise TypeError(f"{self.table}: {name} is not {kind.__name__}")
        return value

    def _typed_list(self, name: str) -> list[object]:
        return cast("list[object]", self._typed(name, list))


@cache
def read_rows(file: str, table: str) -> tuple[Row, ...]:
    """Return all `[[table]]` rows of catalog/data/FILE.toml, in file order."""
    parsed = tomllib.loads(Path(__file__).with_name("data").joinpath(f"{file}.toml").read_text(encoding="utf-8"))
    return tuple(Row(f"{file}.{table}", cells) for cells in cast("list[dict[str, object]]", parsed[table]))
