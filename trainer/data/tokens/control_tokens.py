"""Control tokens that stand in a document or a message: text, and no control.

A control token is one that tokenizer.json calls special, the token that ends a document, and any other added token that
a chat template writes itself, such as `<|START_OF_TURN_TOKEN|>`, which Command R's file does not call special. Not so
a half of a pair of tags, `<think>` and `</think>`: models and people write these, and they stay what transformers makes
of them.

Where the characters of a text come from is found by another module (trainer/data/chat/origins.py). Where a control
token has one of a message, the text is encoded with a copy of the tokenizer whose control tokens have other names
(`rename_tokens`): the tokens that the template wrote are given these names in the text, and no text of a message can be
one. Where none has, the tokenizer encodes the text as it is.
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
        if literal:
            characters = list(text)
            for place in literal:
                characters[place] = _NO_TEXT
            text = "".join(characters)
        return list(self._iter(text))

    def occur_in(self, text: str) -> bool:
        """Return whether the text has a control token."""
        return next(self._iter(text), None) is not None

    def list_literal(self, text: str, foreign: bytes | bytearray) -> tuple[int, ...]:
        """Return places of characters that are not the template's: each control token that has one has such a place.

        Args:
            text: Any text.
            foreign: 1 for each of its characters that is not the template's, else 0.
        """
        places: set[int] = set()
        while found := {
            at
            for first, last, _ in self.find(text, sorted(places))
            for at in range(first, last)
            if foreign[at] and at not in places
        }:
            places |= found  # behind a token there may be a shorter one, or one that overlaps it
        return tuple(sorted(places))

    def _iter(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the tokens from left to right, of those at one place the longest."""
        last = 0
        for match in self._first.finditer(text) if self._first else ():
            first = match.start()
            if first < last:
                continue
            for length in self._lengths.get(text[first : first + 2], self._lengths.get(text[first], ())):
                token = text[first : first + length]  # shorter at the end of the text
                if token in self._known and (token not in self.whole_words or _is_alone(text, first, token)):
                    last = first + len(token)
                    yield first, last, token
                    break

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.texts)

    @cached_property
    def _first(self) -> re.Pattern[str] | None:
        """The characters that tokens begin with."""
        characters = {text[0] for text in self.texts}
        return re.compile(f"[{re.escape(''.join(sorted(characters)))}]") if characters else None

    @cached_property
    def _lengths(self) -> Mapping[str, Sequence[int]]:
        """The lengths of tokens by their first two characters, longest first; of those of one character by that."""
        found: dict[str, set[int]] = {}
        for text in self.texts:
            found.setdefault(text[:2], set()).add(len(text))
        for beginning, lengths in found.items():
            if beginning[0] in found:
                lengths.add(1)
        return {beginning: sorted(lengths, reverse=True) for beginning, lengths in found.items()}


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


def _is_alone(text: str, first: int, token: str) -> bool:
    """Return whether no letter, digit or underscore is beside a token."""
    last = first + len(token)
    beside = text[max(first - 1, 0) : first] + text[last : last + 1]
    return not any(character.isalnum() or character == "_" for character in beside)
