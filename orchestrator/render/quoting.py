"""The only two ways for a value to get into a script: as one quoted shell word, or as the user's own program.

The templates' filters `q` and `code` make these types, and the environment of templates.py lets nothing else out.
"""

from __future__ import annotations

import shlex

from orchestrator.errors import UserError


class Word(str):
    """One shell word, quoted."""

    __slots__ = ()


class Code(str):
    """Program text that is meant to be run as it stands."""

    __slots__ = ()


def q(value: object) -> Word:
    """Quote one value for bash. Raises UserError for text that no shell word can hold; TypeError for other types."""
    if isinstance(value, Word | Code | bool) or not isinstance(value, str | int):
        raise TypeError(f"only a plain str or int can be quoted, not {type(value).__name__}")
    return Word(shlex.quote(_sendable(str(value))))


def code(program: object) -> Code:
    """The user's program as it stands, its last line ended. Raises as `q` does."""
    if not isinstance(program, str):
        raise TypeError(f"a program is text, not {type(program).__name__}")
    return Code(_sendable(program if program.endswith("\n") else program + "\n"))


def _sendable(text: str) -> str:
    if "\0" in text:
        raise UserError(
            "a value for the hosts holds a NUL character",
            f"no shell can carry it: {text[:60]!r}",
            "remove the NUL character",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(
            "a value for the hosts is not valid Unicode",
            f"it cannot be written as UTF-8: {text[:60]!r}",
            "remove the stray surrogate character",
        ) from None
    return text
