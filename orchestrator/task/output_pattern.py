"""A person's own form of output: the text of a line with {step} and {loss}, found in a time that the line bounds.

It is no regular expression, since those of Python can take exponential time. `{}` stands for any text. The parts
between two `{}` are looked for one after the other, so a line is read once for each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.task.errors import InvalidValueError

LONGEST_PATTERN = 300  # characters
NUMBER = r"(?:[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,4})?|[nN]a[nN]|[-+]?[iI]nf)"
STEP = r"\d(?:[\d,_]{0,19}\d)?"
_PLACES = {"{step}": f"(?P<step>{STEP})", "{loss}": f"(?P<loss>{NUMBER})"}
_PLACE = re.compile(r"(\{[A-Za-z_]{0,40}\})")
_SPACE = re.compile(r"\s+")
_NEXT_STEP = "write the line as the program prints it, such as: iter {step} {} loss={loss}"


@dataclass(frozen=True, slots=True)
class OutputPattern:
    """A pattern that was read.

    Attributes:
        parts: What has to follow in a line, in this order, with any text between.
    """

    parts: tuple[re.Pattern[str], ...]

    def find(self, line: str) -> tuple[str | None, str | None] | None:
        """Return step and loss, each None where the pattern has no place for it; None for a line of another form."""
        found: dict[str, str] = {}
        begin = 0
        for part in self.parts:
            match = part.search(line, begin)
            if match is None:
                return None
            found |= match.groupdict()
            begin = match.end()
        return found.get("step"), found.get("loss")


def parse_pattern(text: str) -> OutputPattern:
    """Read a pattern.

    Raises:
        InvalidValueError: It cannot be used.
    """
    if len(text) > LONGEST_PATTERN:
        raise InvalidValueError("`{path}` is too long", f"it has more than {LONGEST_PATTERN} characters", _NEXT_STEP)
    pieces = _PLACE.split(text)
    places = [piece for piece in pieces[1::2] if piece != "{}"]
    if unknown := [piece for piece in places if piece not in _PLACES]:
        raise InvalidValueError(f"`{{path}}` has {unknown[0]}", "only {step}, {loss} and {} are known", _NEXT_STEP)
    if not places or len(set(places)) < len(places):
        why = "it has the same place twice" if places else "it has neither {step} nor {loss}"
        raise InvalidValueError("`{path}` names no number", why, _NEXT_STEP)
    parts = [""]
    for piece in pieces:
        if piece == "{}":
            parts.append("")
        else:
            parts[-1] += _PLACES.get(piece) or _escape(piece)
    return OutputPattern(tuple(re.compile(part) for part in parts if part))


def check_pattern(text: str) -> str:
    """Return a pattern that can be used, or "" for none.

    Raises:
        InvalidValueError: It cannot be used.
    """
    if text:
        parse_pattern(text)
    return text


def _escape(text: str) -> str:
    return r"\s{1,100}".join(map(re.escape, _SPACE.split(text)))
