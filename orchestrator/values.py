"""Text with parts that are known only later, and parts that must never be shown.

A preview and the real run use the same value: `Text.preview()` shows an unknown as `(known after create)` and a secret
as `****`; `Text.reveal()` returns the real string and refuses while a part is unknown. So an unknown can never reach a
host, and a secret can never reach a log.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

MASK = "****"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that becomes known only during the run.

    Attributes:
        what: Description for people.
        after_create: It is known only once the machines exist.
        host: Rank of the host whose address it is, if it is one.
        secret: Name of the secret that it becomes; "" for none.
    """

    what: str
    after_create: bool = False
    host: int | None = None
    secret: str = ""

    def __str__(self) -> str:
        return f"({self.what})"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is sent by file or standard input only. Its repr does not show it."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __str__(self) -> str:
        return MASK


Part: TypeAlias = str | Unknown | Secret


@dataclass(frozen=True, slots=True)
class Text:
    """A string in parts. Compare two with `==`; a plan and a run with `matches`."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, *parts: Part | Text) -> Text:
        """Join parts into one Text; consecutive plain strings are merged so that equal texts compare equal."""
        flat: list[Part] = []
        for part in parts:
            for piece in part.parts if isinstance(part, Text) else (part,):
                if isinstance(piece, str) and flat and isinstance(flat[-1], str):
                    flat[-1] = flat[-1] + piece
                elif piece != "":
                    flat.append(piece)
        return cls(tuple(flat))

    @classmethod
    def join(cls, separator: str, items: list[Text]) -> Text:
        """Join texts with a separator."""
        parts: list[Part | Text] = []
        for index, item in enumerate(items):
            if index:
                parts.append(separator)
            parts.append(item)
        return cls.of(*parts)

    @property
    def is_known(self) -> bool:
        """Whether no part is unknown."""
        return not any(isinstance(part, Unknown) for part in self.parts)

    @property
    def is_secret(self) -> bool:
        """Whether a part is secret."""
        return any(isinstance(part, Secret) for part in self.parts)

    def preview(self) -> str:
        """Return the text for people: secrets masked, unknowns named."""
        return "".join(str(part) for part in self.parts)

    def preview_quoted(self) -> str:
        """Return the preview as one shell word."""
        return shlex.quote(self.preview())

    def reveal(self) -> str:
        """Return the real string.

        Raises:
            ValueError: A part is still unknown: nothing unknown may be sent.
        """
        return self._render(_refuse)

    def _render(self, on_unknown: Callable[[Unknown], str]) -> str:
        out: list[str] = []
        for part in self.parts:
            if isinstance(part, Unknown):
                out.append(on_unknown(part))
            else:
                out.append(part.value if isinstance(part, Secret) else part)
        return "".join(out)

    def fill(self, known: Mapping[Unknown, str | Secret]) -> Text:
        """Return the text with these unknowns replaced."""
        return Text.of(*(known.get(part, part) if isinstance(part, Unknown) else part for part in self.parts))

    def matches(self, real: Text) -> bool:
        """Return whether `real` is this text with each unknown replaced and every other part equal."""
        known = [""]  # the texts between unknowns
        for part in self.parts:
            if isinstance(part, Unknown):
                known.append("")
            else:
                known[-1] += part.value if isinstance(part, Secret) else part
        text = real.reveal()
        if len(known) == 1:
            return text == known[0]
        first, *middle, last = known
        if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for one in middle:  # each at its first place: a regular expression would try exponentially many
            found = text.find(one, at, end)
            if found < 0:
                return False
            at = found + len(one)
        return True

    def __repr__(self) -> str:
        return f"Text({self.preview()!r})"


_Value = TypeVar("_Value")


def fill_unknowns(value: _Value, known: Mapping[Unknown, str | Secret]) -> _Value:
    """Return a frozen dataclass with these unknowns replaced in every Text in it, at any depth."""
    return cast(_Value, _fill(value, known))


def _fill(value: Any, known: Mapping[Unknown, str | Secret]) -> Any:
    if isinstance(value, Text):
        return value.fill(known)
    if isinstance(value, tuple):
        return tuple(_fill(item, known) for item in cast(tuple[object, ...], value))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: _fill(getattr(value, field.name), known) for field in fields(value)}
        return replace(value, **changed)
    return value


def _refuse(unknown: Unknown) -> str:
    raise ValueError(f"still unknown: {unknown.what}")


def to_text(value: str | Text | Unknown | Secret) -> Text:
    """Return any one value as a Text."""
    return value if isinstance(value, Text) else Text.of(value)
