"""A small closed schema: what a value may be, what is said when it is something else, and the same as JSON Schema.

A `Section` names every key it knows, served or refused with a reason; there is no "other keys". Values that pass are
still plain; build.py turns them into a Task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.spec.errors import did_you_mean
from orchestrator.spec.yaml_reader import Path, Value

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Issue:
    """Something wrong at a path inside the document."""

    path: Path
    what: str
    why: str = ""
    next_step: str = ""


class Kind(Protocol):
    """What a value may be."""

    @property
    def words(self) -> str:
        """For people, after "must be": "a whole number, 1 or more"."""
        ...

    def takes(self, value: Value) -> bool:
        """Whether the value is of this JSON type at all; `check` says whether it is also right inside."""
        ...

    def check(self, value: Value, path: Path) -> Iterator[Issue]: ...

    def json_schema(self) -> Json: ...


@dataclass(frozen=True, slots=True)
class Text:
    """Text; with `choices` one of these words, with `pattern` a match of the whole. words: what it is to a person."""

    words: str = "text"
    choices: tuple[str, ...] = ()
    pattern: str = ""
    any_case: bool = False
    may_be_empty: bool = False

    def takes(self, value: Value) -> bool:
        return isinstance(value, str)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, str):
            yield _wrong_type(self, value, path)
        elif "\x00" in value:
            yield Issue(path, f"`{name_of(path)}` contains a NUL character")
        elif not value.strip() and not self.may_be_empty:
            yield Issue(path, f"`{name_of(path)}` is empty", f"it must be {self.words}", "remove it, or write a value")
        elif self.choices and (value.lower() if self.any_case else value) not in self._spelled():
            near = did_you_mean(value, self.choices)
            yield Issue(
                path,
                f"`{name_of(path)}` cannot be `{_short(value)}`" + (f", did you mean `{near}`?" if near else ""),
                f"allowed: {', '.join(self.choices)}",
            )
        elif self.pattern and not re.fullmatch(self.pattern, value):
            yield Issue(path, f"`{name_of(path)}` cannot be `{_short(value)}`", f"it must be {self.words}")

    def _spelled(self) -> tuple[str, ...]:
        return tuple(choice.lower() for choice in self.choices) if self.any_case else self.choices

    def json_schema(self) -> Json:
        schema: Json = {"type": "string"}
        if self.choices and not self.any_case:
            schema["enum"] = list(self.choices)
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        elif not self.may_be_empty and "enum" not in schema:
            schema["pattern"] = "\\S"
        return schema


@dataclass(frozen=True, slots=True)
class Whole:
    least: int = 1
    most: int = 2**53

    @property
    def words(self) -> str:
        most = f" to {self.most:,}" if self.most < 2**53 else " or more"
        return f"a whole number, {self.least}{most}"

    def takes(self, value: Value) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, int) or isinstance(value, bool):
            yield _wrong_type(self, value, path)
        elif not self.least <= value <= self.most:
            yield Issue(path, f"`{name_of(path)}` cannot be {value}", f"it must be {self.words}")

    def json_schema(self) -> Json:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number above zero; zero: or zero itself."""

    zero: bool = False

    @property
    def words(self) -> str:
        return "a number, 0 or more" if self.zero else "a number above 0"

    def takes(self, value: Value) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, int | float) or isinstance(value, bool):
            yield _wrong_type(self, value, path)
        elif not (0 < value <= 2**53 and math.isfinite(value)) and not (self.zero and value == 0):
            yield Issue(path, f"`{name_of(path)}` cannot be {value}", f"it must be {self.words}")

    def json_schema(self) -> Json:
        return {"type": "number", "minimum" if self.zero else "exclusiveMinimum": 0, "maximum": 2**53}


@dataclass(frozen=True, slots=True)
class Flag:
    @property
    def words(self) -> str:
        return "true or false"

    def takes(self, value: Value) -> bool:
        return isinstance(value, bool)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, bool):
            yield _wrong_type(self, value, path)

    def json_schema(self) -> Json:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text, a number, true or false, or nothing."""

    words: str = "text, a number, true or false, or nothing"

    def takes(self, value: Value) -> bool:
        return not isinstance(value, list | dict)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if isinstance(value, list | dict):
            yield _wrong_type(self, value, path)
        elif isinstance(value, str) and "\x00" in value:
            yield Issue(path, f"`{name_of(path)}` contains a NUL character")

    def json_schema(self) -> Json:
        return {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Kind
    least: int = 0

    @property
    def words(self) -> str:
        return f"a list, each item {self.item.words}"

    def takes(self, value: Value) -> bool:
        return isinstance(value, list)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, list):
            yield _wrong_type(self, value, path)
            return
        if len(value) < self.least:
            yield Issue(path, f"`{name_of(path)}` is empty", f"it must be {self.words}")
        for index, item in enumerate(value):
            yield from self.item.check(item, (*path, index))

    def json_schema(self) -> Json:
        return {"type": "array", "items": self.item.json_schema(), "minItems": self.least}


@dataclass(frozen=True, slots=True)
class MapOf:
    """Keys are the user's own words (matching `key`, if given); every value is of one kind, or nothing with `nulls`."""

    value: Kind
    key: str = ""
    key_words: str = ""
    nulls: bool = False
    least: int = 0

    @property
    def words(self) -> str:
        return f"a map, each value {self.value.words}"

    def takes(self, value: Value) -> bool:
        return isinstance(value, dict)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, dict):
            yield _wrong_type(self, value, path)
            return
        if len(value) < self.least:
            yield Issue(path, f"`{name_of(path)}` is empty", f"it must be {self.words}")
        for name, item in value.items():
            if self.key and not re.fullmatch(self.key, name):
                what = f"`{_short(name)}` cannot be a key of `{name_of(path)}`"
                yield Issue((*path, name), what, f"a key must be {self.key_words}")
            elif item is not None or not self.nulls:
                yield from self.value.check(item, (*path, name))

    def json_schema(self) -> Json:
        inner = self.value.json_schema()
        schema: Json = {"type": "object"}
        schema["additionalProperties"] = {"anyOf": [inner, {"type": "null"}]} if self.nulls else inner
        if self.key:
            schema["propertyNames"] = {"pattern": f"^(?:{self.key})$"}
        if self.least:
            schema["minProperties"] = self.least
        return schema


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first kind that takes the value's type decides."""

    kinds: tuple[Kind, ...]

    @property
    def words(self) -> str:
        return ", or ".join(kind.words for kind in self.kinds if not isinstance(kind, NotServed))

    def takes(self, value: Value) -> bool:
        return any(kind.takes(value) for kind in self.kinds)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        for kind in self.kinds:
            if kind.takes(value):
                yield from kind.check(value, path)
                return
        yield _wrong_type(self, value, path)

    def json_schema(self) -> Json:
        return {"anyOf": [kind.json_schema() for kind in self.kinds if not isinstance(kind, NotServed)]}


@dataclass(frozen=True, slots=True)
class NotServed:
    """A form of a value that the dialect has and we do not serve, e.g. a list where we take a map."""

    form: type
    words: str
    reason: str

    def takes(self, value: Value) -> bool:
        return isinstance(value, self.form)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        del value  # any value of this form is refused
        yield Issue(path, f"`{name_of(path)}` as {self.words} is not served", self.reason)

    def json_schema(self) -> Json:
        return {"not": {}}


@dataclass(frozen=True, slots=True)
class Field:
    """A key that is served. ours: a key of this project, not of the public dialect. nulls: null means something."""

    name: str
    kind: Kind
    meaning: str
    ours: bool = False
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A key of the public dialect that is not served. instead: what to write."""

    name: str
    reason: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A map with known keys. A key whose value is null counts as not written."""

    fields: tuple[Field | Refused, ...]
    words: str = "a map"

    def takes(self, value: Value) -> bool:
        return isinstance(value, dict)

    def check(self, value: Value, path: Path) -> Iterator[Issue]:
        if not isinstance(value, dict):
            yield _wrong_type(self, value, path)
            return
        known = {field.name: field for field in self.fields}
        for name, item in value.items():
            field = known.get(name)
            inside = (*path, name)
            if field is None:
                yield self._unknown(name, inside)
            elif isinstance(field, Refused):
                yield Issue(inside, f"`{name_of(inside)}` is not served by orch", field.reason, field.instead)
            elif item is not None:
                yield from field.kind.check(item, inside)

    def served(self) -> Mapping[str, Field]:
        return {field.name: field for field in self.fields if isinstance(field, Field)}

    def refused(self) -> Mapping[str, Refused]:
        return {field.name: field for field in self.fields if isinstance(field, Refused)}

    def json_schema(self) -> Json:
        properties: Json = {}
        for field in self.served().values():
            schema = field.kind.json_schema()
            properties[field.name] = {"anyOf": [schema, {"type": "null"}], "description": field.meaning}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def _unknown(self, name: str, path: Path) -> Issue:
        near = did_you_mean(name, [field.name for field in self.fields])
        where = f" in `{name_of(path[:-1])}`" if len(path) > 1 else ""
        return Issue(
            path,
            f"unknown key `{_short(name)}`{where}" + (f", did you mean `{near}`?" if near else ""),
            f"allowed here: {', '.join(self.served())}",
        )


def name_of(path: Path) -> str:
    """`resources.any_of[1].infra`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def type_words(value: Value) -> str:
    """What a value is, for people."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text `{_short(value)}`"
    if isinstance(value, list):
        return "a list"
    return "a map" if isinstance(value, dict) else f"the number {value}"


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= 60 else line[:57] + "..."


def _wrong_type(kind: Kind, value: Value, path: Path) -> Issue:
    subject = f"`{name_of(path)}`" if path else "a task"
    return Issue(path, f"{subject} must be {kind.words}; here it is {type_words(value)}")
