"""Text from outside, such as a provider's answer, made fit for one line of a message."""

from __future__ import annotations

import html
import re

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
