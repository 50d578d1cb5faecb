"""Special tokens by their role. A name says nothing: `</s>` ends a document of Mistral, and is a tag of HTML in Gemma.

Roles are in the files of a tokenizer's folder: tokenizer_config.json and special_tokens_map.json have them by name,
generation_config.json and config.json by number, and tokenizer.json has what its post-processor adds to a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trainer.checkpoint.description import (
    CONFIG,
    GENERATION,
    SPECIAL_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Description,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens that tokenizer.json names.

    Attributes:
        numbers: Of every token, by its text.
        special: Those that stand for no text.
        after: The special token that the post-processor puts behind a text; "" for none.
    """

    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    special: tuple[str, ...] = ()
    after: str = ""


def parse_tokens(text: str) -> Tokens:
    """Return the tokens of a tokenizer.json; none of a file that is not understood."""
    try:
        content: Any = json.loads(text)
        vocabulary: Any = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # of a Unigram: [text, score]
            pieces = cast("list[list[object]]", vocabulary)
            vocabulary = {piece[0]: number for number, piece in enumerate(pieces)}
        numbers = {str(token): int(number) for token, number in dict[Any, Any](vocabulary).items()}
        added: list[Any] = list(content.get("added_tokens") or ())
        numbers |= {str(token["content"]): int(token["id"]) for token in added}
        special = tuple(str(token["content"]) for token in added if token.get("special"))
        after = _find_last(content.get("post_processor"), special)
    except (ArithmeticError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Tokens()
    return Tokens(numbers=numbers, special=special, after=after)


def find_named(files: Description, role: str) -> str:
    """Return the text of the token of a role such as `eos_token`; "" where the files name none."""
    for name in (TOKENIZER_CONFIG, SPECIAL_TOKENS):
        value = files.read_object(name).get(role)
        text = cast("dict[str, Any]", value).get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            return text
    return ""


def find_numbers(files: Description, role: str) -> tuple[int, ...]:
    """Return the numbers of the tokens of a role such as `eos_token_id`; none where the files give none."""
    for name in (GENERATION, CONFIG):
        value = files.read_object(name).get(role)
        numbers: tuple[Any, ...] = tuple(cast("list[object]", value)) if isinstance(value, list) else (value,)
        if value is not None and all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
            return numbers
    return ()


def find_end(files: Description, tokens: Tokens) -> str:
    """Return the text of the token that ends a document; "" where the files do not say it."""
    return next((text for text in _list_ends(files, tokens) if text in tokens.numbers), "")


def find_number(files: Description, tokens: Tokens, role: str) -> int | None:
    """Return the number of the token of a role such as `pad_token`; None where the files do not say it."""
    known = find_numbers(files, f"{role}_id")
    return known[0] if known else tokens.numbers.get(find_named(files, role))


def _list_ends(files: Description, tokens: Tokens) -> Iterator[str]:
    yield find_named(files, "eos_token")
    texts = {number: text for text, number in tokens.numbers.items()}
    yield from (texts.get(number, "") for number in find_numbers(files, "eos_token_id")[:1])
    yield tokens.after
    if len(tokens.special) == 1:
        yield tokens.special[0]


def _find_last(processor: Any, special: tuple[str, ...]) -> str:
    """Return the special token that a post-processor puts behind a text."""
    if not isinstance(processor, dict):
        return ""
    found = cast("dict[str, Any]", processor)
    if found.get("type") == "Sequence":
        return next((text for one in found["processors"] if (text := _find_last(one, special))), "")
    if "sep" in found:  # BertProcessing and RobertaProcessing
        return str(found["sep"][0])
    pieces: list[Any] = list(found.get("single") or ())
    last = str(cast("dict[str, Any]", pieces[-1]).get("SpecialToken", {}).get("id", "")) if pieces else ""
    return last if last in special else ""


def read_tokens(files: Description) -> Tokens:
    """Return the tokens that the tokenizer of a description names."""
    return parse_tokens(files.files.get(TOKENIZER, ""))
