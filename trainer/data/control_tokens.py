"""Control tokens that stand in a document or a message: text, and no control.

A control token is one that tokenizer.json calls special, the token that ends a document, and any other added token that
a chat template writes itself, such as `<|START_OF_TURN_TOKEN|>`, which Command R's file does not call special. Not so
a half of a pair of tags, `<think>` and `</think>`: models and people write these, and they stay what transformers makes
of them.

While a template runs, one character of each control token in a message is replaced by a character that occurs nowhere
else, so the template and the tokenizer see no token (`ControlTokens.escape`). Behind the template the place of that
character is known, and it is put back. Where such a token stands, the text is encoded with a copy of the tokenizer
whose control tokens have other names (`rename_tokens`): the tokens that the template wrote are given these names in the
text, and no text of a message can be one. Where none stands, the tokenizer encodes the text as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

_PRIVATE = range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900)
"""Characters that Unicode leaves to private use."""
_NO_TEXT = "\uffff"  # a noncharacter, of which no token is made
_CHANGED_BY_ESCAPES = frozenset("<>&'\"\\/%")


@dataclass(frozen=True)
class ControlTokens:
    """The control tokens of a tokenizer.

    Attributes:
        texts: Of the tokens.
        whole_words: Those that are tokens only where no letter is beside them.
    """

    texts: tuple[str, ...] = ()
    whole_words: frozenset[str] = frozenset()

    def find(self, text: str, literal: Sequence[int] = ()) -> list[tuple[int, int, str]]:
        """Return first and last place of each control token, the last one excluded, and the token.

        Args:
            text: Any text.
            literal: The places of characters that no token may contain.
        """
        if self._pattern is None:
            return []
        if literal:
            characters = list(text)
            for place in literal:
                characters[place] = _NO_TEXT
            text = "".join(characters)
        return [(match.start(), match.end(), match.group()) for match in self._pattern.finditer(text)]

    def occur_in(self, text: str) -> bool:
        """Return whether the text has a control token."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def may_begin_at_end(self, text: str) -> bool:
        """Return whether the text ends with the beginning of a control token, which other text might complete."""
        return any(text[-count:] in self._beginnings for count in range(1, min(len(text), self._longest) + 1))

    def escape(self, text: str, stand_in: Callable[[str], str], *, joined: bool) -> str:
        """Return the text without a control token: a character of each is replaced.

        Args:
            text: A part of a document or a message.
            stand_in: Returns the character that replaces another.
            joined: The text may be joined with other text, which must not complete a token.
        """
        if self._pattern is None:
            return text

        def replace(match: re.Match[str]) -> str:
            at = _choose_character(match.group())
            return f"{match.group()[:at]}{stand_in(match.group()[at])}{match.group()[at + 1 :]}"

        while self._pattern.search(text) is not None:  # a token may overlap another one
            text = self._pattern.sub(replace, text)
        if joined and self.may_begin_at_end(text) and not text[-1].isspace():
            text = text[:-1] + stand_in(text[-1])
        return text

    def locate(self, text: str) -> tuple[int, ...]:
        """Return places of which each control token in the text has at least one."""
        if self._pattern is None or self._pattern.search(text) is None:
            return ()
        private = next(iter_unused_characters(text))
        escaped = self.escape(text, lambda _: private, joined=False)
        return tuple(at for at, character in enumerate(escaped) if character == private)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self.texts, key=len, reverse=True)
        choices = [
            rf"(?<!\w){re.escape(text)}(?!\w)" if text in self.whole_words else re.escape(text)
            for text in longest_first
        ]
        return re.compile("|".join(choices)) if choices else None

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.texts), default=0)

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(text[:count] for text in self.texts for count in range(1, len(text)))


def list_control_tokens(tokenizer: Mapping[str, Any], template: str, end: str) -> ControlTokens:
    """Return the control tokens of a tokenizer.

    Args:
        tokenizer: The content of tokenizer.json.
        template: The text of the chat template; empty for documents.
        end: The text of the token that ends a document.
    """
    entries = [cast("Mapping[str, Any]", one) for one in tokenizer.get("added_tokens") or () if isinstance(one, dict)]
    added = {str(entry.get("content", "")): entry for entry in entries}
    found = [
        text
        for text, entry in added.items()
        if text.strip() and (entry.get("special") or (text in template and not _is_tag(text, added)))
    ]
    if end not in found:
        found.append(end)
    return ControlTokens(
        texts=tuple(found), whole_words=frozenset(text for text in found if added.get(text, {}).get("single_word"))
    )


def iter_unused_characters(*texts: str) -> Iterator[str]:
    """Yield characters of private use that are in none of the texts."""
    used = set[str]().union(*texts)
    return (character for places in _PRIVATE for place in places if (character := chr(place)) not in used)


def rename_tokens(tokenizer: Mapping[str, Any], names: Mapping[str, str], normalize: Callable[[str], str]) -> str:
    """Return tokenizer.json with other names for some tokens, in its vocabulary, too; no text makes the old tokens.

    Args:
        tokenizer: The content of tokenizer.json.
        names: The new name of each token, by the old one.
        normalize: The tokenizer's normalizer. A name that it changes is found before it runs.
    """
    content: dict[str, Any] = dict(tokenizer)
    content["added_tokens"] = [
        {**entry, "content": name, "normalized": entry.get("normalized", False) and name in normalize(name)}
        if (name := names.get(entry["content"])) is not None
        else entry
        for entry in content.get("added_tokens") or ()
    ]
    model: dict[str, Any] = dict(content["model"])
    vocab: Any = model.get("vocab")
    if isinstance(vocab, dict):
        entries = cast("dict[str, int]", vocab)
        model["vocab"] = {names.get(text, text): number for text, number in entries.items()}
    elif isinstance(vocab, list):  # of a Unigram: text and score
        pairs = cast("list[tuple[str, float]]", vocab)
        model["vocab"] = [[names.get(text, text), score] for text, score in pairs]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if model.get("merges"):
        model["merges"] = [merge for merge in model["merges"] if not _makes(merge, names)]
    content["model"] = model
    content["post_processor"] = _without_named_tokens(content.get("post_processor"))
    return json.dumps(content)


def _makes(merge: Any, names: Mapping[str, str]) -> bool:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names


def _without_named_tokens(processor: Any) -> Any:
    """Return a post-processor without what puts tokens around a text: it would name old ones, and is not used."""
    if not isinstance(processor, dict):
        return None
    found = cast("dict[str, Any]", processor)
    if found.get("type") == "Sequence":
        kept = [one for one in map(_without_named_tokens, found.get("processors") or ()) if one is not None]
        return {**found, "processors": kept} if kept else None
    return found if found.get("type") == "ByteLevel" else None


def _is_tag(text: str, added: Iterable[str]) -> bool:
    """Return whether the text is `<name>` or `</name>`, and the other one is a token, too."""
    partner = f"<{text[2:]}" if text.startswith("</") else f"</{text[1:]}"
    return text.startswith("<") and text.endswith(">") and partner in added


def _choose_character(token: str) -> int:
    """Return the place of the character of a token that a template is least likely to look for or to change."""

    def rank(place: int) -> tuple[bool, bool, bool]:
        character = token[place]
        return character.isspace(), character in _CHANGED_BY_ESCAPES, character.isalpha()

    return min(range(len(token)), key=rank)
