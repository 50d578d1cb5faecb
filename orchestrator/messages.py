"""The wording of messages: text from outside made fit for one line, and counts with their noun."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

LONGEST_MESSAGE = 400  # characters; a vendor's longest useful message fits, a page does not

_PAGE = re.compile(r"<(?:!doctype html|html|head|body|title)\b", re.IGNORECASE)
_INVISIBLE = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[a-z/!][^>]*>", re.IGNORECASE)


def to_one_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return the text on one line of at most `longest` characters, an HTML page without its markup."""
    if _PAGE.search(text):
        text = html.unescape(_TAG.sub(" ", _INVISIBLE.sub(" ", text)))
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def join_some(names: Sequence[str], most: int = 4) -> str:
    """Return the first names and the number of the others, such as `a, b, c, d and 2 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def count_noun(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural, such as `3 hosts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Return the words as a sentence has them, such as `a, b and c`."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


# Colours only: all other sequences can move the cursor, set the title, or write to the clipboard (OSC 52).
# Source: ECMA-48, 5th edition, 8.3.117 "SGR"; xterm, "Control Sequences" (2026-11).
_COLOUR = r"\x1b\[[0-9;]{0,20}m"
_CONTROL = re.compile(rf"{_COLOUR}|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Return the text with control characters written out (`\\x1b`), but for colours, tabs and line ends.

    Characters that change the direction of writing are written out too: they can make a line read as another.
    """
    return _CONTROL.sub(lambda found: found[0] if len(found[0]) > 1 else _write_out(found[0]), text)


def _write_out(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
