"""The next step of a result: a command that can be pasted, and words, apart from each other.

Errors carry both in one text. A line of it that begins with `orch ` is a command, up to three spaces or the end of the
line; everything else is words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_GAP = "   "  # between a command and the words about it, in one line of text
_COMMAND = re.compile(r"^(orch [^\n]*?)(?: {3}([^\n]*))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a user can do now; false when nothing is known.

    Attributes:
        command: A command of orch, without words; "" where none helps.
        words: Words about it, or the whole step; may be empty and may have several lines.
    """

    command: str = ""
    words: str = ""

    def __bool__(self) -> bool:
        return bool(self.command or self.words)

    def __str__(self) -> str:
        """Return both in one text, as errors and terminals have them; `parse` reads it."""
        return _GAP.join(part for part in (self.command, self.words) if part)

    @classmethod
    def parse(cls, text: str) -> NextStep:
        """Return the first command of a text, and the rest as its words."""
        found = _COMMAND.search(text)
        if found is None:
            return cls(words=text)
        rest = (found[2] or "", text[: found.start()], text[found.end() :])
        return cls(found[1].rstrip(), "\n".join(part.strip() for part in rest if part.strip()))

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> NextStep:
        """Return the step in a document that `as_json` is part of."""
        return cls(str(document.get("next_command") or ""), str(document.get("next_words") or ""))

    def as_json(self) -> dict[str, str | None]:
        """Return its two fields of a JSON document."""
        return {"next_command": self.command or None, "next_words": self.words or None}


NO_STEP = NextStep()
