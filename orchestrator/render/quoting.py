"""The two forms of a value in a script: one quoted shell word, or the user's own program.

The templates' filters `q`, `place` and `code` make these types, and templates.py refuses any other value.
"""

from __future__ import annotations

import shlex

from orchestrator.errors import UserError
from orchestrator.remote.host_folder import WORKDIR


class Word(str):
    """One shell word, quoted."""

    __slots__ = ()


class Code(str):
    """Program text that is run unchanged."""

    __slots__ = ()


def quote_word(value: object) -> Word:
    """Quote one value for bash. Raises UserError for text that no shell word can hold; TypeError for other types."""
    if isinstance(value, Word | Code | bool) or not isinstance(value, str | int):
        raise TypeError(f"only a plain str or int can be quoted, not {type(value).__name__}")
    return Word(shlex.quote(_sendable(str(value))))


def quote_place(path: str) -> Word:
    """Quote a path on a host: absolute, in the rank's working directory, or else below the home directory.

    templates/remote/path.sh does the same for the paths that are sent as arguments.
    """
    if path.startswith("/"):
        return quote_word(path)
    head, _, rest = path.removeprefix("~/").partition("/")
    if head == WORKDIR:
        folder = '"$ORCH_HOST_DIR/workdir"'
        return Word(f"{folder}/{quote_word(rest)}" if rest else folder)
    return Word(f'"$HOME"/{quote_word(path.removeprefix("~/"))}')


def mark_as_code(program: object) -> Code:
    """Return the user's program unchanged but for a line end at its end. Raises as `quote_word` does."""
    if not isinstance(program, str):
        raise TypeError(f"a program is text, not {type(program).__name__}")
    return Code(_sendable(program if program.endswith("\n") else program + "\n"))


def _sendable(text: str) -> str:
    if "\0" in text:
        raise UserError(
            "a value for the hosts contains a NUL character",
            f"no shell can pass it on: {text[:60]!r}",
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
