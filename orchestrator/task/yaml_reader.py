"""A reader of YAML text to plain values, with the line and column of every key and item.

Stricter than YAML: a key written twice, a tag beyond the plain ones, an alias that contains itself, and numbers that
YAML 1.1 reads in base 8 or 60 (0123, 12:30) are unclear. Keys are always text. Built on PyYAML's event stream, so
depth and size are bounded here and no hostile text can exhaust the stack or, through aliases, the memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from orchestrator.computing_limit import check_computing
from orchestrator.task.errors import Path, Problem, TaskError
from orchestrator.task.likely_secrets import is_likely_secret

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

LARGEST_BYTES = 256 << 10  # in UTF-8
MOST_DOCUMENTS = 20  # empty ones included
DEEPEST = 40
LARGEST_NUMBER = 1e300
MOST_VALUES = 50_000  # after aliases are written out


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document.

    Attributes:
        data: The plain values; None for an empty document.
        line: Line of its beginning, from 1.
        lines: Line of the key or item at each path, from 1.
        columns: Column of the same, from 1.
        texts: How unquoted scalars that are not text were written, by path.
        unclear: What is wrong with a value that YAML reads otherwise than people do, or whose tag is not allowed, by
            path; its value is the text.
        refused: What is wrong with keys: not text, or written twice.
    """

    data: Value
    line: int
    columns: dict[Path, int] = field(default_factory=dict[Path, int])
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])
    unclear: dict[Path, Problem] = field(default_factory=dict[Path, Problem])
    refused: list[Problem] = field(default_factory=list[Problem])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the text, whatever its values mean."""
        return (*self.unclear.values(), *self.refused)

    def place_of(self, path: Path) -> tuple[int, int | None]:
        """Return line and column of the longest known beginning of `path`."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]], self.columns[path[:end]]
        return self.line, None

    def line_of(self, path: Path) -> int:
        """Return the line of the longest known beginning of `path`."""
        return self.place_of(path)[0]


def read_documents(text: str, file: str) -> tuple[Document, ...]:
    """Return all documents of `text` that are not empty. Their `problems` are for the caller to report.

    Raises:
        TaskError: The text is not valid, with the place of what is wrong.
    """
    refuse_oversize(text, file)
    try:
        documents = tuple(_Reader(file, text).documents())
    except yaml.MarkedYAMLError as error:
        raise _explain_syntax(error, text, file) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise TaskError(file, None, "is not valid YAML", str(error).splitlines()[0], _LOOK) from error
    return tuple(document for document in documents if document.data is not None or document.problems)


def refuse_oversize(text: str, file: str) -> None:
    """Refuse a text with too many bytes, documents or levels, by the parser's events, before anything is made of them.

    A text that is no YAML is refused by who reads it.

    Raises:
        TaskError: It has too many.
    """
    if len(text) > LARGEST_BYTES or len(text.encode("utf-8", "surrogatepass")) > LARGEST_BYTES:
        what, why = f"is larger than {LARGEST_BYTES >> 10} KiB", "a task file is a page or two"
        raise TaskError(file, None, what, why, "give the path of a task file")
    documents = depth = 0
    try:
        for event in _parse_events(text):
            documents += isinstance(event, DocumentStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > DEEPEST and isinstance(event, NodeEvent):
                line, column = _place(event)
                what = f"is nested more than {DEEPEST} levels deep"
                raise TaskError(file, line, what, "", "write fewer levels", column=column)
            depth += isinstance(event, CollectionStartEvent)
            if documents > MOST_DOCUMENTS:
                what = f"has more than {MOST_DOCUMENTS} documents"
                why = "each document, which begins with `---`, is a task of a pipeline"
                raise TaskError(file, _place(event)[0], what, why, "split the file")
    except (yaml.YAMLError, UnicodeError):
        return


def _parse_events(text: str) -> Iterator[Event]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without libyaml
    return iter(yaml.parse(text, Loader=loader))


@dataclass(slots=True, kw_only=True)
class _Node:
    """A value as written: text with its tag, or children. Aliases share nodes."""

    line: int
    column: int
    scalar: str | None = None
    tag: str = ""
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None
    problem: Problem | None = None  # its tag


_PREFIX = "tag:yaml.org,2002:"
_MAP_TAGS = {None, "!", _PREFIX + "map", _PREFIX + "set"}
_SEQUENCE_TAGS = {None, "!", _PREFIX + "seq"}
_AS_TEXT = {_PREFIX + "str", _PREFIX + "timestamp", _PREFIX + "value", _PREFIX + "merge"}
_SCALAR_TAGS = _AS_TEXT | {_PREFIX + kind for kind in ("bool", "int", "float", "null")}
_WORDS = {"bool": "true or false", "int": "a number", "float": "a number"}
_MISREAD = re.compile(r"[-+]?0[0-7_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")


_LOOK = "compare that line with an example: docs/task-files.md"
_SYNTAX_STEPS = {  # by a part of the message of PyYAML 6.0.2 or libyaml 0.2.5
    "quoted scalar": "close the quote",
    "mapping values are not allowed": "indent the keys of one map alike, or quote a text with a colon",
    "expected <block end>": "indent the keys of one map alike",
    "did not find expected key": "indent the keys of one map alike, and quote a whole text or none of it",
    "did not find expected '-'": "write `- ` before each item of the list, or indent the line",
    "could not find expected ':'": "write `key: value`, with a space after the colon",
    "flow mapping": "close the { with }",
    "flow sequence": "close the [ with ]",
    "scanning a tag": "write a value that begins with ! in quotes",
    "scanning an alias": "write a value that begins with * in quotes",
    "cannot start any token": "write a value that begins with this character in quotes",
}


class _Reader:
    """Composes nodes from events, then values with their lines."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.events = _parse_events(text)
        # types-PyYAML leaves this method without types.
        self.tag_of: Callable[[object, str, object], str] = cast("Any", Resolver()).resolve
        self.anchors: dict[str, _Node] = {}
        self.values = 0
        self.hidden = False  # inside `secrets`, of which nothing is shown

    def documents(self) -> Iterator[Document]:
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                self.anchors = {}
                node = self._node(next(self.events), 0)
                document = Document(data=None, line=node.line)
                data = self._value(node, (), document)
                yield replace(document, data=data)
            elif not isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                what = "is not valid YAML: a document was expected"
                raise TaskError(self.file, _place(event)[0], what, "", "remove what stands before the first key")

    def _node(self, event: Event, depth: int) -> _Node:
        check_computing()
        line, column = _place(event)
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                alias = "a word that begins with *" if self.hidden else f"the alias `*{event.anchor}`"
                raise TaskError(
                    self.file, line, f"{alias} has no complete anchor before it",
                    "YAML takes it for an alias; an anchor comes before its alias and must not contain it",
                    "write it in quotes for text", column=column,
                )  # fmt: skip
            return self.anchors[event.anchor]
        node = _Node(line=line, column=column)
        if isinstance(event, ScalarEvent):
            self._scalar(event, node)
        elif isinstance(event, CollectionStartEvent):
            self._collection(event, node, depth)
        anchor = getattr(event, "anchor", None)
        if isinstance(anchor, str):
            self.anchors[anchor] = node
        return node

    def _scalar(self, event: ScalarEvent, node: _Node) -> None:
        node.scalar = event.value
        tag = event.tag
        if tag == "!":
            tag = _PREFIX + "str"
        if tag is None:
            tag = self.tag_of(ScalarNode, event.value, event.implicit)
        if tag not in _SCALAR_TAGS:
            self._refuse_tag(node, tag)
            tag = _PREFIX + "str"
        node.tag = tag

    def _collection(self, event: CollectionStartEvent, node: _Node, depth: int) -> None:
        mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (_MAP_TAGS if mapping else _SEQUENCE_TAGS):
            self._refuse_tag(node, event.tag)
        if isinstance(event, SequenceStartEvent):
            node.items = [self._node(child, depth + 1) for child in self._until(SequenceEndEvent)]
            return
        node.pairs = []
        for child in self._until(MappingEndEvent):
            key = self._node(child, depth + 1)
            if depth == 0:
                self.hidden = key.scalar == "secrets"
            node.pairs.append((key, self._node(next(self.events), depth + 1)))

    def _refuse_tag(self, node: _Node, tag: str | None) -> None:
        shown = "a word that begins with ! is a tag, which" if self.hidden else f"the tag `{tag}`"
        step = "remove the tag, or quote the value"
        node.problem = self._located(node, f"{shown} is not allowed", "only plain values are", step)

    def _until(self, end: type[Event]) -> Iterator[Event]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _count(self, node: _Node, values: int = 1) -> None:
        check_computing()
        self.values += values
        if self.values > MOST_VALUES:
            what = f"has more than {MOST_VALUES:,} values once aliases are expanded"
            raise TaskError(self.file, node.line, what, "a task file is a page or two", "write fewer values")

    def _value(self, node: _Node, path: Path, document: Document) -> Value:
        self._count(node)
        if node.problem is not None:
            document.unclear[path] = node.problem
        if node.items is not None:
            return [self._child(item, (*path, i), item, document) for i, item in enumerate(node.items)]
        if node.pairs is not None:
            return self._mapping(node, path, document)
        return self._plain(node, path, document)

    def _child(self, node: _Node, path: Path, at: _Node, document: Document) -> Value:
        document.lines[path], document.columns[path] = at.line, at.column
        return self._value(node, path, document)

    def _mapping(self, node: _Node, path: Path, document: Document) -> Value:
        own: dict[str, tuple[_Node, _Node]] = {}
        merged: dict[str, tuple[_Node, _Node]] = {}
        for key, value in node.pairs or ():
            if key.scalar is None:
                step = "write a plain word"
                document.refused.append(self._located(key, "a key must be text", "here it is a list or a map", step))
            elif key.tag == _PREFIX + "merge":
                merged = self._merge(value, document) | merged
            elif key.scalar in own:
                what, first = f"`{key.scalar}` is written twice", own[key.scalar][0].line
                why, step = f"first in line {first}", "remove one of them"
                document.refused.append(self._located(key, what, why, step))
            else:
                own[key.scalar] = (key, value)
            if key.problem is not None:
                document.refused.append(key.problem)
        every = merged | own
        return {name: self._child(value, (*path, name), key, document) for name, (key, value) in every.items()}

    def _merge(self, value: _Node, document: Document) -> dict[str, tuple[_Node, _Node]]:
        """Return what `<<: *other` adds; of several the first wins, as YAML says."""
        sources = value.items if value.items is not None else [value]
        found: dict[str, tuple[_Node, _Node]] = {}
        for source in sources:
            if source.pairs is None:
                what, step = "`<<` takes a map or a list of maps", "write `<<: *name` of a map"
                document.refused.append(self._located(value, what, "", step))
                return {}
            self._count(source, len(source.pairs) + len(found))  # `pairs | found` copies both
            pairs = {key.scalar: (key, item) for key, item in source.pairs if key.scalar is not None}
            found = pairs | found
        return found

    def _plain(self, node: _Node, path: Path, document: Document) -> Value:
        text = node.scalar or ""
        kind = node.tag.removeprefix(_PREFIX)
        if node.tag in _AS_TEXT:
            return text
        document.texts[path] = text
        if kind == "null":
            return None
        secret = path[:1] == ("secrets",) or (path[:1] == ("envs",) and is_likely_secret(str(path[-1]), text))
        shown = "this value" if secret else f"`{text[:40]}`"
        try:
            if kind == "bool":
                return _flag(text)
            if _MISREAD.fullmatch(text):
                document.unclear[path] = self._located(
                    node,
                    "YAML reads this value as another number; quote it"
                    if secret
                    else f"YAML reads {text[:40]} as the number {_read_misread(text)}; quote it",
                    "YAML 1.1 takes it for a number in base 8 or 60",
                    "write it in quotes for text, or as a plain decimal number",
                )
                return text
            number = _whole(text) if kind == "int" else _number(text)
            if not abs(number) > LARGEST_NUMBER or "inf" in text.lower():  # nan is no larger
                return number
            document.unclear[path] = self._located(
                node, f"{shown} is too large for a number", "", "write it in quotes for text, or a smaller number"
            )
        except ValueError:
            document.unclear[path] = self._located(
                node, f"{shown} is not {_WORDS[kind]}", "", "write it in quotes for text"
            )
        return text

    def _located(self, node: _Node, what: str, why: str, next_step: str) -> Problem:
        return Problem(file=self.file, line=node.line, column=node.column, what=what, why=why, next_step=next_step)


def _place(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _explain_syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> TaskError:
    """Return the error for text that is no YAML. A tab in the indentation is the usual cause, so it is named."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return TaskError(file, None, f"is not valid YAML: {error.problem}", error.context or "", _LOOK)
    line, column = mark.line + 1, mark.column + 1
    rows = text.split("\n")
    row = rows[mark.line] if mark.line < len(rows) else ""
    indentation = row[: len(row) - len(row.lstrip())]
    if "\t" in (*indentation, row[mark.column : mark.column + 1]):
        column = row.index("\t") + 1
        what, why = "a tab is used where YAML allows only spaces", "YAML indents with spaces"
        return TaskError(file, line, what, why, "replace the tab by spaces", column=column)
    step = next((step for part, step in _SYNTAX_STEPS.items() if part in f"{error.problem} {error.context}"), _LOOK)
    return TaskError(file, line, f"is not valid YAML: {error.problem}", error.context or "", step, column=column)


def _read_misread(text: str) -> str:
    """Return the number that YAML 1.1 makes of `12:30` (base 60) or `0123` (base 8)."""
    plain = text.replace("_", "").lstrip("+-")
    sign = "-" if text.startswith("-") else ""
    if ":" not in plain:
        return f"{sign}{int(plain, 8)}"
    number = 0.0
    for part in plain.split(":"):
        number = number * 60 + float(part)
    return f"{sign}{number:.12g}"


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "yes", "on", "false", "no", "off"):
        raise ValueError(text)
    return text.lower() in ("true", "yes", "on")


def _whole(text: str) -> int:
    return int(text.replace("_", ""), 0)


def _number(text: str) -> float:
    plain = text.replace("_", "").lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
