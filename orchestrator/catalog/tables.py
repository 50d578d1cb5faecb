"""The data files as typed rows, each with `source` and `as_of`; the error of a wrong one names table, row and key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from orchestrator.errors import OrchError

T = TypeVar("T")
DATA = Path(__file__).with_name("data")


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
        value = self._typed(name, object)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(f"`{name}` that is not a number")
        return float(value)

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(str(item) for item in self._typed_list(name))

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(int(str(item)) for item in self._typed_list(name))

    def amounts(self, name: str) -> Mapping[str, float]:
        return cast("Mapping[str, float]", self._typed(name, dict))

    def expand(self, name: str) -> tuple[Row, ...]:
        """Return a row for each table in the list `name`, with the other cells as defaults; without it, the row."""
        if name not in self.cells:
            return (self,)
        own = [cast("Mapping[str, object]", one) for one in self._typed_list(name)]
        return tuple(replace(self, cells={**self.cells, **cells}) for cells in own)

    def _typed(self, name: str, kind: type[T]) -> T:
        if name not in self.cells:
            raise self._wrong(f"no `{name}`")
        value = self.cells[name]
        if not isinstance(value, kind):
            raise self._wrong(f"`{name}` that is not {kind.__name__}")
        return value

    def _wrong(self, what: str) -> OrchError:
        file, _, table = self.table.partition(".")
        row = ", ".join(f"{key} = {value!r}" for key, value in list(self.cells.items())[:2])
        return OrchError(
            f"a row [[{table}]] of {file}.toml has {what}",
            f"the row with {row} has the keys {', '.join(self.cells)}",
            f"correct it in {DATA / file}.toml, or install orch again",
        )

    def _typed_list(self, name: str) -> list[object]:
        return cast("list[object]", self._typed(name, list))


@cache
def read_rows(file: str, table: str) -> tuple[Row, ...]:
    """Return all `[[table]]` rows of catalog/data/FILE.toml, in file order."""
    parsed = tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
    return tuple(Row(f"{file}.{table}", cells) for cells in cast("list[dict[str, object]]", parsed[table]))
