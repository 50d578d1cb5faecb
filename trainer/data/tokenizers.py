"""Tokenizers: the bytes themselves, or a tokenizer.json read by the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.config import BYTE_VOCAB
from trainer.data.control_tokens import ControlTokens, list_control_tokens
from trainer.data.encoders import ByteEncoder, Encoder, LibraryEncoder
from trainer.data.marks import choose_marked_dtype
from trainer.data.tokenizer_check import check_tokenizer, read_tokenizer_file
from trainer.errors import ConfigError, DataError

AUTO, BYTES = "auto", "bytes"

_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[SEP]", "<|im_end|>")
"""Names of the end-of-document token in well-known tokenizers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """A tokenizer as a value that can be sent to another process.

    Attributes:
        name: `bytes`, or the SHA-256 of tokenizer.json.
        text: Of tokenizer.json; empty for bytes.
        vocab: Every token is below it.
        eod: The token that ends each document.
        end_text: The text of that token.
        marked: Tokens are stored with marks (trainer/data/marks.py).
        control: The control tokens that are text in a text; none: they stay tokens.
        place: Where the tokenizer is from, for people.
    """

    name: str
    text: bytes
    vocab: int
    eod: int
    end_text: str = "\0"
    marked: bool = False
    control: ControlTokens = field(default_factory=ControlTokens)
    place: str = BYTES

    @property
    def dtype(self) -> str:
        """Name of the narrowest type that holds every token, and its mark where tokens have marks."""
        if self.marked:
            return choose_marked_dtype(self.vocab)
        return "uint8" if self.vocab <= 1 << 8 else "uint16" if self.vocab <= 1 << 16 else "int32"

    def open_encoder(self) -> Encoder:
        if self.name == BYTES:
            return ByteEncoder(self.control)
        return LibraryEncoder(self.text.decode(), self.dtype, self.control, _library)

    def separate_control_tokens(self, template: str = "") -> TokenizerSpec:
        """Return the tokenizer for texts whose control tokens are text.

        Args:
            template: The text of the chat template; empty for documents.
        """
        content: Any = {} if self.name == BYTES else json.loads(self.text)
        return replace(self, control=list_control_tokens(content, template, self.end_text))


def read_tokenizer(word: str, eod: str = "") -> TokenizerSpec:
    """Read a tokenizer.

    Args:
        word: `auto` or `bytes`, or the path of a tokenizer.json.
        eod: The token that ends a document; empty to look for a well-known one.

    Raises:
        ConfigError: The tokenizer has no such token.
        DataError: The file or the library is missing.
    """
    if word in (AUTO, BYTES):
        if eod:
            raise ConfigError(f"eod={eod}: tokenizer=bytes has no named tokens; documents end with byte 0")
        return TokenizerSpec(name=BYTES, text=b"", vocab=BYTE_VOCAB, eod=0)
    text = read_tokenizer_file(word)
    check_tokenizer(word, text)
    try:
        tokenizer = _library(text.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"tokenizer={word}: not a tokenizer.json: {_first_line(error)}") from error
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    end = next((name for name in ([eod] if eod else _END_TOKENS) if name in ids), None)
    if end is None:
        wrong = f"has no token {eod!r}" if eod else "has no well-known token that ends a document"
        raise ConfigError(f"tokenizer={word} {wrong}: name one of its tokens with eod=TOKEN")
    digest, vocab = hashlib.sha256(text).hexdigest(), max(ids.values()) + 1
    return TokenizerSpec(name=digest, text=text, vocab=vocab, eod=ids[end], end_text=end, place=word)


def digest_tokenizer(path: str) -> str:
    """Return the SHA-256 of a tokenizer.json, as an index records it.

    Raises:
        DataError: The file is unreadable.
    """
    return hashlib.sha256(read_tokenizer_file(path)).hexdigest()


def _library(text: str) -> Any:
    """Return the library's tokenizer.

    Raises:
        DataError: The library is not installed.
        ValueError: The text is not a valid tokenizer.json.
    """
    try:
        import tokenizers
    except ImportError:
        raise DataError("tokenizer=PATH needs the library `tokenizers`: pip install tokenizers") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise ValueError(_first_line(error)) from error
    # Many files set these for a model's inputs; a document would be cut, or padded.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
