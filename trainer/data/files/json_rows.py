"""Rows of JSON: lines, the elements of an array, and objects one after the other.

A text is cut into rows by its brackets and strings alone, so a row that is no JSON spoils no other. None is held but
the current one. Its length and its number of values are bounded: a small value needs up to 100 times its text.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

from trainer.errors import DataError

MOST_ROW = 128 << 20
"""Bytes of a row, which is held as a whole, for a moment a few times."""
MOST_VALUES = 1_000_000
UNCOUNTED = 4 << 20
"""Bytes of a row that cannot have too many values."""
UNWRAP = "if it wraps the rows of a file, write one in each line: jq -c '.KEY[]' FILE > ROWS.jsonl"

_PART = 1 << 20
_TOO_MANY = f"more than {MOST_VALUES:,} values: {UNWRAP}"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|%s)*+[\[\]{}]' % _STRING, re.DOTALL)
_TO_COMMA = re.compile(rb'(?:[^"\[\]{},]++|%s)*+[\[\]{},]' % _STRING, re.DOTALL)
_VALUE = re.compile(rb"%s?|[\[{,]" % _STRING, re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


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


def read_lines(name: str, stream: IO[bytes], column: str | None) -> Iterator[Row]:
    """Yield the rows of JSON lines; `column` is the only key that is read, None for all."""
    parser = _Parser(column)
    number = 0
    while line := stream.readline(MOST_ROW):
        number += 1
        where = f"{name}, line {number}"
        if len(line) == MOST_ROW and not line.endswith(b"\n"):
            while (rest := stream.readline(_PART)) and not rest.endswith(b"\n"):
                pass
            yield Row(where=where, problem=f"longer than {MOST_ROW >> 20} MiB: {UNWRAP}")
        elif line.strip():
            yield parser.parse(where, line)


def read_values(name: str, stream: IO[bytes], column: str | None, *, is_array: bool) -> Iterator[Row]:
    """Yield the elements of an array, or values that follow each other, with space between them or without.

    Args:
        name: Of the file.
        stream: From which the text comes.
        column: The only key that is read of each; None for all.
        is_array: The text is one array.

    Raises:
        DataError: A value is too long, the file is cut within the array, or text follows it.
    """
    return _Splitter(name=name, stream=stream, parser=_Parser(column), is_array=is_array).read()


@dataclass(slots=True, kw_only=True)
class _Splitter:
    """Cuts a text into rows.

    Attributes:
        held: The current row, as far as it has been read, and what follows it.
        start: Where the row begins in it.
        at: Up to where it has been looked at.
        depth: Brackets that are open there.
        brackets: Of the row, up to there.
        number: Of the rows that ended.
    """

    name: str
    stream: IO[bytes]
    parser: _Parser
    is_array: bool
    held: bytearray = field(default_factory=bytearray)
    start: int = 0
    at: int = 0
    depth: int = 0
    brackets: int = 0
    number: int = 0

    def read(self) -> Iterator[Row]:
        for mark in self._marks():
            if mark in _OPENING:
                self.depth += 1
                self.brackets += 1
                if self.brackets > MOST_VALUES:
                    raise self._fail(_TOO_MANY)
                if self.is_array and self.depth == 1:  # the array's own
                    self.start = self.at
                continue
            if mark in _CLOSING:
                self.depth = max(0, self.depth - 1)
                if self.depth:
                    continue
            text = bytes(self.held[self.start : self.at - self.is_array])
            self.start = self.at
            if not (self.is_array and self.number == self.depth == 0) or text.strip():  # an empty array has no row
                yield self._parse(text)
            if self.is_array and not self.depth:
                return self._expect_end()
        if self.is_array:
            raise self._fail("the file ends within the array; has it been cut?")
        if self.held.strip():
            yield self._parse(bytes(self.held))

    def _marks(self) -> Iterator[int]:
        """Yield the brackets outside of strings, and the commas between the elements of an array."""
        while self._fill():
            while True:
                between = self.is_array and self.depth == 1
                found = (_TO_COMMA if between else _TO_BRACKET).match(self.held, self.at)
                if found is None:
                    break
                self.at = found.end()
                yield self.held[self.at - 1]

    def _fill(self) -> bool:
        """Hold twice as much, so that a long row is looked at a few times only; return False at the end."""
        del self.held[: self.start]
        self.at -= self.start
        self.start = 0
        if self.held.isspace():
            self.held.clear()
            self.at = 0
        if len(self.held) > MOST_ROW:
            raise self._fail(f"longer than {MOST_ROW >> 20} MiB: {UNWRAP}")
        data = self.stream.read(min(max(_PART, len(self.held)), MOST_ROW + 1))
        self.held += data
        return bool(data)

    def _parse(self, text: bytes) -> Row:
        self.number += 1
        self.brackets = 0
        return self.parser.parse(f"{self.name}, {self._noun} {self.number}", text)

    def _expect_end(self) -> None:
        rest: bytes | bytearray = self.held[self.start :]
        while not rest.strip():
            rest = self.stream.read(_PART)
            if not rest:
                return
        raise DataError(f"{self.name}: text follows the end of the array, after element {self.number}")

    @property
    def _noun(self) -> str:
        return "element" if self.is_array else "object"

    def _fail(self, why: str) -> DataError:
        return DataError(f"{self.name}, {self._noun} {self.number + 1}: {why}")


class _Parser:
    """Parses rows. Of a key that occurs twice one value would be lost: where it is read, the row is bad."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._decoder = json.JSONDecoder(object_pairs_hook=self._make_object)
        self._outer: Collection[str] = ()
        self._all: Collection[str] = ()

    def parse(self, where: str, text: bytes) -> Row:
        if len(text) > UNCOUNTED and next(islice(_VALUE.finditer(text), MOST_VALUES, None), None) is not None:
            return Row(where=where, problem=_TOO_MANY)
        self._outer = self._all = ()
        try:
            value: Any = self._decoder.decode(text.decode())
            if self._column is None and _SURROGATE.search(text):
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeDecodeError as error:
            return Row(where=where, problem=f"not UTF-8, by byte {error.start}")
        except UnicodeEncodeError as error:
            return Row(where=where, problem=describe_surrogate(error))
        except json.JSONDecodeError as error:
            what = "more follows the end of the value" if error.msg == "Extra data" else error.msg
            return Row(where=where, problem=f"not JSON: {what}, at character {error.pos + 1:,}")
        except RecursionError:
            return Row(where=where, problem="nested too deeply")
        except ValueError:  # of int()
            return Row(where=where, problem=f"a number of more than {sys.get_int_max_str_digits():,} digits")
        read = self._all if self._column is None else {self._column}.intersection(self._outer)
        twice = next(iter(read), None) if isinstance(value, dict) else None
        return Row(where=where, value=value, problem="" if twice is None else f"the key {twice!r} occurs twice")

    def _make_object(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Return an object; that of the row is the last of its objects."""
        made = dict(pairs)
        repeated = len(made) < len(pairs)
        self._outer = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1] if repeated else ()
        self._all = self._all or self._outer
        return made


def describe_surrogate(error: UnicodeEncodeError) -> str:
    """Return what is wrong with text that cannot be written as UTF-8."""
    return f"has \\u{ord(error.object[error.start]):04x}, which is half of a character"
