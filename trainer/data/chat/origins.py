"""Origins of the characters of a rendered conversation: its messages, or the template.

A template may trim, lower, quote, cut or join what a message has, so no rule about messages says what it makes of them.
It is therefore run once more on the same conversation with other characters: each of a message is replaced by a rare
one. Where the second text has such a character, the first one has a character of a message; all others are the
template's.

That is not needed where no message has a character that each control token has, such as `|`, and that the template
writes in whole tokens only.

Both texts must have the same form for that. A template may look into messages, such as for `</think>`; then the strings
that it names are left as they are. Where the forms still differ, the control tokens of both texts must be the same:
then no message has made one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np

from trainer.data.chat.templates import REASONING, Conversation, TemplateStrings
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import DataError

Change: TypeAlias = Callable[[str], str]

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_STRUCTURE = _ROLES | {"role", "content", "tool_calls", *REASONING}
"""Texts that every conversation has, and by which templates decide."""
_KEPT = frozenset("\"'\\ ")
"""Characters that templates trim, and that JSON or Python writes otherwise between quotation marks."""
_RARE = range(0x20000, 0x2A6D7)
"""Rare ideographs: letters without case, which Python writes as they are."""
_QUOTED = "\"'{}[]():,.+-\\ \n"
_COMMON = frozenset("<>[]()/_-.,:")  # in many messages
_MOST_COMPARED = 1000  # control tokens, each with each


@dataclass(frozen=True, kw_only=True)
class OriginFinder:
    """Finds the characters that come from messages.

    Attributes:
        render: Returns the text of a conversation; None where the template refuses it.
        control: The control tokens.
        strings: Of the template.
    """

    render: Callable[[Conversation], str | None]
    control: ControlTokens
    strings: TemplateStrings

    def find(self, conversation: Conversation, text: str) -> bytearray:
        """Return 1 for each character of the text that comes from a message, else 0.

        All are 0 where the places are unknown, but no control token comes from a message.

        Args:
            conversation: Any.
            text: What the template makes of it.

        Raises:
            DataError: It is unknown whether a control token comes from a message.
        """
        written = "".join(list_texts(conversation))
        if self._needed and self._needed.isdisjoint(written):
            return bytearray(len(text))
        stand_ins = choose_stand_ins(written, text, always=self._always)
        changes: Sequence[Change] = (
            lambda part: part if part in _STRUCTURE else part.translate(stand_ins),
            lambda part: part if part in self._names else part.translate(stand_ins),
            lambda part: part if part in self._names else self._translate_all_but_words(part, stand_ins),
        )
        others: list[str] = []
        for change in changes:
            other = self.render(map_texts(conversation, change))
            if other is None:
                continue
            found = _compare(text, other, stand_ins.values())
            if found is not None and self._are_known(text, found):
                return found
            others.append(other)
        tokens = self._name_tokens(text)
        same = any(self._name_tokens(other) == tokens for other in others) and self._are_known(
            text, bytearray(len(text))
        )
        if not tokens or (same and not self.control.occur_in(written)):
            return bytearray(len(text))
        raise DataError("it changes messages so that their control tokens look like its own: use control_tokens=keep")

    def _are_known(self, text: str, found: bytearray) -> bool:
        """Return whether each control token has a character of a message, or is one that the template writes."""
        return all(
            any(found[first:last])
            or any(token in string for string in self.strings.written)
            or any(role in token for role in _ROLES)
            for first, last, token in self.control.find(text)
        )

    def _name_tokens(self, text: str) -> list[str]:
        return [token for *_, token in self.control.find(text)]

    def _translate_all_but_words(self, text: str, stand_ins: Mapping[int, str]) -> str:
        """Replace the characters of a text, but not in what the template may look for, unless it is a control token."""
        if self._sought is None:
            return text.translate(stand_ins)
        kept = {at for match in self._sought.finditer(text) for at in range(*match.span())}
        kept.difference_update(at for first, last, _ in self.control.find(text) for at in range(first, last))
        return "".join(
            character if at in kept else stand_ins.get(ord(character), character) for at, character in enumerate(text)
        )

    @cached_property
    def _always(self) -> frozenset[str]:
        """The characters of control tokens that have no other ones."""
        return frozenset("".join(text for text in self.control.texts if not any(map(_has_stand_in, text))))

    @cached_property
    def _needed(self) -> frozenset[str]:
        """Characters of which a message must have one, so that a control token can have a character of it.

        Each token has one of them, and the template writes none but in whole tokens. No letters, which may be changed
        to others. Empty where there are no such characters, or where a token is a part of another one.
        """
        texts = self.control.texts
        overlap = len(texts) > _MOST_COMPARED or any(one != other and one in other for one in texts for other in texts)
        if overlap or not self.strings.is_simple:
            return frozenset()
        rest = set(_QUOTED)  # of values that are no text
        for string in self.strings.written:
            at = 0
            for first, last, _ in [*self.control.find(string), (len(string), len(string), "")]:
                rest.update(string[at:first])
                at = last
        possible = {character for text in texts for character in text if not character.isalnum()} - rest
        found: set[str] = set()
        left = list(texts)
        while left and possible:
            best = max(sorted(possible), key=lambda one: (sum(one in text for text in left), one not in _COMMON))
            found.add(best)
            possible.discard(best)
            left = [text for text in left if best not in text]
        return frozenset() if left else frozenset(found)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Texts that are left as they are: the template may decide by a role, a key or a type."""
        return _STRUCTURE | {word for word in self.strings.sought if word.isidentifier()}

    @cached_property
    def _sought(self) -> re.Pattern[str] | None:
        words = [word for word in self.strings.sought if len(word) > 1 and not word.isidentifier()]
        longest_first = sorted((word for word in words if not self.control.find(word)), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def choose_stand_ins(text: str, *others: str, always: frozenset[str] = frozenset()) -> Mapping[int, str]:
    """Return a rare character for each character of a text, in the same order; the texts have none of them.

    White space has none, and what JSON, Python or another case may write as several characters only if in `always`.

    Raises:
        DataError: There are not enough.
    """
    present = set(text)
    characters = sorted(one for one in present if _has_stand_in(one) or one in always)
    used = present.union(*others)
    unused = islice((rare for rare in map(chr, _RARE) if rare not in used), len(characters))
    stand_ins = dict(zip(map(ord, characters), unused, strict=False))
    if len(stand_ins) < len(characters):
        raise DataError("a conversation has too many rare characters to tell its control tokens apart")
    return stand_ins


def _has_stand_in(character: str) -> bool:
    return character not in _KEPT and character.isprintable() and len(character.upper()) == len(character.lower()) == 1


def map_texts(conversation: Conversation, change: Change) -> Conversation:
    """Return a conversation with other texts, those of keys included.

    Raises:
        DataError: A value is none of JSON.
    """

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, dict):
            return {change(key): walk(entry) for key, entry in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [walk(entry) for entry in cast("list[object]", value)]
        if value is not None and not isinstance(value, (int, float)):
            raise DataError(f"it has a value of the type {type(value).__name__}, which is none of JSON")
        return value

    return replace(
        conversation,
        messages=[walk(dict(message)) for message in conversation.messages],
        tools=walk(conversation.tools),
        documents=walk(conversation.documents),
        variables={name: walk(value) for name, value in conversation.variables.items()},
    )


def list_texts(conversation: Conversation) -> Sequence[str]:
    """Return the texts of a conversation."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    map_texts(conversation, note)
    return found


def _compare(text: str, other: str, rare: Collection[str]) -> bytearray | None:
    """Return 1 for each place where the other text has a rare character; None where the texts differ elsewhere."""
    if len(text) != len(other):
        return None
    one, two = (np.frombuffer(string.encode("utf-32-le"), np.uint32) for string in (text, other))
    marked = np.isin(two, [ord(character) for character in rare])
    return bytearray(marked.tobytes()) if bool(np.all((one == two) | marked)) else None
