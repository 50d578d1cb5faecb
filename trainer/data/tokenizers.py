"""Text to tokens: the bytes themselves, or a tokenizer.json through the `tokenizers` library."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainer.config import BYTE_VOCAB
from trainer.engine import TokenArray
from trainer.errors import ConfigError, DataError

AUTO, BYTES = "auto", "bytes"

_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[SEP]", "<|im_end|>")
"""Names under which well-known tokenizers have their end-of-document token."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """How text becomes tokens. Can be sent to another process; `open` makes the thing that does it.

    text: of tokenizer.json; empty for bytes. vocab: every token is below it. eod: put behind each document.
    """

    name: str
    text: bytes
    vocab: int
    eod: int

    @property
    def dtype(self) -> str:
        """The narrowest that holds every token."""
        return "uint8" if self.vocab <= 1 << 8 else "uint16" if self.vocab <= 1 << 16 else "int32"

    def open(self) -> Encoder:
        if self.name == BYTES:
            return ByteEncoder()
        return LibraryEncoder(_library(self.text.decode()), self.dtype)


class Encoder(Protocol):
    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        """Tokens of each text, without any special ones."""
        ...


class ByteEncoder:
    """Each byte is its own token; 0, which no text has, ends a document."""

    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        return [np.frombuffer(text, np.uint8) for text in texts]


class LibraryEncoder:
    """Bytes that are no UTF-8 become the replacement character."""

    def __init__(self, tokenizer: Any, dtype: str) -> None:
        self._tokenizer = tokenizer
        self._dtype = dtype

    def encode(self, texts: Sequence[bytes]) -> list[TokenArray]:
        strings = [text.decode(errors="replace") for text in texts]
        found = self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self._dtype) for encoding in found]


def read_tokenizer(word: str, eod: str = "") -> Tokens:
    """word: auto or bytes, or a path of a tokenizer.json. eod: the token that ends a document; empty: a well-known one.

    Raises ConfigError, and DataError when the file or the library is missing.
    """
    if word in (AUTO, BYTES):
        if eod:
            raise ConfigError(f"eod={eod}: tokenizer=bytes has no named tokens; documents end with the byte 0")
        return Tokens(BYTES, b"", BYTE_VOCAB, 0)
    text = _read(word)
    try:
        tokenizer = _library(text.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"tokenizer={word}: not a tokenizer.json: {_first_line(error)}") from error
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    end = next((ids[name] for name in ([eod] if eod else _ENDS) if name in ids), None)
    if end is None:
        wrong = f"has no token {eod!r}" if eod else "has no well-known token that ends a document"
        raise ConfigError(f"tokenizer={word} {wrong}: name one of its tokens with eod=TOKEN")
    return Tokens(hashlib.sha256(text).hexdigest(), text, max(ids.values()) + 1, end)


def digest_of_file(path: str) -> str:
    """What an index says of this tokenizer.json. Raises DataError."""
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise DataError(f"tokenizer={path}: cannot be read: {error.strerror}") from error


def _library(text: str) -> Any:
    """The library's tokenizer. Raises DataError when it is not installed, ValueError for a wrong text."""
    try:
        import tokenizers
    except ImportError:
        raise DataError("tokenizer=PATH needs the library `tokenizers`: pip install tokenizers") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise ValueError(_first_line(error)) from error
    # Many files have these set for a model's inputs; a document would lose its end, or be filled up.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
