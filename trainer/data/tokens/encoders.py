"""Encoders of text: bytes, or the tokens of the `tokenizers` library, with control tokens in the text as text."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from trainer.data.tokens.control_tokens import ControlTokens, iter_unused_characters, rename_tokens
from trainer.engine import TokenArray
from trainer.errors import DataError

Span: TypeAlias = tuple[int, int]
_NO_CHARACTER = "\ufffd"
_MOST_TOKENS = 16  # of a byte of text, beyond the first ones
_FIRST_TOKENS = 1024


class Encoder(Protocol):
    """Turns text into tokens."""

    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        """Return the tokens of each text, without special tokens.

        Raises:
            DataError: There are absurdly many.
        """
        ...

    def encode_reply(
        self, text: str, spans: Sequence[Span], literal: Sequence[int] = ()
    ) -> tuple[TokenArray, npt.NDArray[np.bool_]]:
        """Return the tokens of a text with replies, and which of them hold a character of a reply.

        Args:
            text: It may contain special tokens.
            spans: First and last character of each reply, the last one excluded.
            literal: Places of characters: a special token that contains one is text.

        Raises:
            DataError: There are absurdly many.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        ...


class ByteEncoder:
    """Encodes each byte as one token; 0 ends a document, and in a text it becomes the replacement character."""

    def __init__(self, control: ControlTokens) -> None:
        """Remember the control tokens; without them a 0 in a text stays."""
        self._control = control

    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        if self._control.texts:
            texts = [text.replace(b"\0", _NO_CHARACTER.encode()) for text in texts]
        return [np.frombuffer(text, np.uint8) for text in texts]

    def encode_reply(
        self, text: str, spans: Sequence[Span], literal: Sequence[int] = ()
    ) -> tuple[TokenArray, npt.NDArray[np.bool_]]:
        characters = list(text)
        for place in literal:
            characters[place] = _NO_CHARACTER
        text = "".join(characters)
        tokens = np.frombuffer(text.encode(), np.uint8)
        trained = np.zeros(len(tokens), np.bool_)
        for first, last in spans:
            trained[len(text[:first].encode()) : len(text[:last].encode())] = True
        return tokens, trained

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


class LibraryEncoder:
    """Encodes with the `tokenizers` library; bytes that are not UTF-8 become the replacement character."""

    def __init__(self, text: str, dtype: str, control: ControlTokens, open_library: Callable[[str], Any]) -> None:
        """Open the tokenizer.

        Args:
            text: Of tokenizer.json.
            dtype: Of the tokens.
            control: The control tokens that are text in a text; none: they stay tokens.
            open_library: Returns the library's tokenizer of a tokenizer.json.

        Raises:
            ValueError: The text is not a valid tokenizer.json.
        """
        self._text = text
        self._dtype = dtype
        self._control = control
        self._open = open_library
        self._tokenizer = open_library(text)
        self._renamed: tuple[Mapping[str, str], Any] | None = None

    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        strings = [text.decode(errors="replace") for text in texts]
        found: list[Any] = self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)
        arrays = [self._check_count(encoding, len(text)) for encoding, text in zip(found, texts, strict=True)]
        for at, (string, ids) in enumerate(zip(strings, arrays, strict=True)):
            if self._count_control(ids) or self._control.occur_in(string):
                arrays[at] = self._encode_renamed(string, (), [])[0]
        return arrays

    def encode_reply(
        self, text: str, spans: Sequence[Span], literal: Sequence[int] = ()
    ) -> tuple[TokenArray, npt.NDArray[np.bool_]]:
        tokens = self._control.find(text, literal)
        if not literal:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            ids = self._check_count(encoding, len(text.encode()))
            if self._has_no_other_control(encoding, ids, tokens):
                return ids, _mark(encoding, spans)
        return self._encode_renamed(text, spans, tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def _encode_renamed(
        self, text: str, spans: Sequence[Span], tokens: Sequence[tuple[int, int, str]]
    ) -> tuple[TokenArray, npt.NDArray[np.bool_]]:
        """Encode a text of which only `tokens` are control tokens."""
        names, tokenizer = self._rename(text)
        pieces: list[str] = []
        shifts: list[tuple[int, int]] = []  # a place in the text, and how much less it is behind the new name
        at = shift = 0
        for first, last, token in tokens:
            pieces += [text[at:first], names[token]]
            shift += last - first - len(names[token])
            shifts.append((last, shift))
            at = last
        changed = "".join([*pieces, text[at:]])
        encoding = tokenizer.encode(changed, add_special_tokens=False)
        ids = self._check_count(encoding, len(changed.encode()))
        if self._count_control(ids) != len(tokens):
            raise DataError("its control tokens cannot be separated from text: use control_tokens=keep")

        def move(place: int) -> int:
            before = bisect_right(shifts, place, key=itemgetter(0))
            return place - (shifts[before - 1][1] if before else 0)

        return ids, _mark(encoding, [(move(first), move(last)) for first, last in spans])

    def _rename(self, text: str) -> tuple[Mapping[str, str], Any]:
        """Return the tokenizer with other names for its control tokens, which the text does not have, and the names."""
        if self._renamed is None or not set(text).isdisjoint(self._renamed[0].values()):
            normalizer: Any = self._tokenizer.normalizer
            names = dict(zip(self._control.texts, iter_unused_characters(text), strict=False))
            if len(names) < len(self._control.texts):
                raise DataError("a text has too many characters of private use to tell its control tokens apart")
            renamed = rename_tokens(
                json.loads(self._text), names, (lambda name: name) if normalizer is None else normalizer.normalize_str
            )
            self._renamed = names, self._open(renamed)
        return self._renamed

    @cached_property
    def _ids(self) -> TokenArray:
        """The numbers of the control tokens; not of the one that stands for what the tokenizer cannot write."""
        model = json.loads(self._text)["model"]
        unknown = model.get("unk_token")
        found = {text: self._tokenizer.token_to_id(text) for text in self._control.texts if text != unknown}
        return np.array([number for number in found.values() if number not in (None, model.get("unk_id"))], np.int64)

    def _has_no_other_control(self, encoding: Any, ids: TokenArray, tokens: Sequence[tuple[int, int, str]]) -> bool:
        """Return whether each control token that the library made is the one of the text at this place.

        It may make one of text that becomes one in its normalizer, or that stands beside other tokens.
        """
        found = np.flatnonzero(np.isin(ids, self._ids)) if self._control.texts else ()
        left = iter(tokens)
        return all(
            any(
                place <= first and last <= end and self._tokenizer.token_to_id(text) == ids[at]
                for first, last, text in left
            )
            for at in found
            for place, end in (encoding.offsets[at],)
        )

    def _count_control(self, ids: TokenArray) -> int:
        return int(np.isin(ids, self._ids).sum()) if self._control.texts else 0

    def _check_count(self, encoding: Any, size: int) -> TokenArray:
        if len(encoding.ids) > _FIRST_TOKENS + _MOST_TOKENS * size:
            raise DataError(f"it makes {len(encoding.ids):,} tokens of {size:,} bytes")
        return np.array(encoding.ids, dtype=self._dtype)


def _mark(encoding: Any, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Return which tokens hold a character of a span; one that holds none counts as if it held the next character."""
    places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    begins, ends = places[:, 0], np.maximum(places[:, 1], places[:, 0] + 1)
    trained = np.zeros(len(begins), np.bool_)
    for first, last in spans:
        trained |= (ends > first) & (begins < last)
    return trained
