"""Tokenizers: the bytes themselves, or a tokenizer.json read by the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainer.checkpoint.description import (
    CONFIG,
    GENERATION,
    SPECIAL_TOKENS,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Description,
    read_described_files,
)
from trainer.config import BYTE_VOCAB
from trainer.data.tokens.control_tokens import ControlTokens, list_control_tokens
from trainer.data.tokens.encoders import ByteEncoder, Encoder, LibraryEncoder
from trainer.data.tokens.marks import choose_marked_dtype
from trainer.data.tokens.roles import find_end, find_named, parse_tokens
from trainer.data.tokens.tokenizer_check import check_tokenizer, read_tokenizer_file
from trainer.errors import ConfigError, DataError

AUTO, BYTES, NONE = "auto", "bytes", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """A tokenizer as a value that can be sent to another process.

    Attributes:
        name: `bytes`, or the SHA-256 of tokenizer.json.
        text: Of tokenizer.json; empty for bytes.
        vocab: Every token is below it.
        eod: The token that ends each document.
        end_text: The text of that token.
        marked: Tokens are stored with marks (trainer/data/tokens/marks.py).
        control: The control tokens that are text in a text; none: they stay tokens.
        place: Where the tokenizer is from, for people.
        begin: The tokens that begin each document of text.
        beside: Text of the files beside tokenizer.json that describe it, by name.
    """

    name: str
    text: bytes
    vocab: int
    eod: int
    end_text: str = "\0"
    marked: bool = False
    control: ControlTokens = field(default_factory=ControlTokens)
    place: str = BYTES
    begin: tuple[int, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict[str, str])

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


def read_tokenizer(word: str, eod: str = "", bos: str = AUTO) -> TokenizerSpec:
    """Read a tokenizer.

    Args:
        word: `auto` or `bytes`, or the path of a tokenizer.json. The files beside it give the roles of its tokens.
        eod: The token that ends a document; empty for the one that has this role.
        bos: The token that begins a document of text, `none`, or `auto`: what the tokenizer puts before a text itself.

    Raises:
        ConfigError: The tokenizer has no such token, or a file beside it is unusable.
        DataError: The file or the library is missing.
    """
    if word in (AUTO, BYTES):
        if eod or bos not in (AUTO, NONE):
            named = f"eod={eod}" if eod else f"bos={bos}"
            raise ConfigError(f"{named}: tokenizer=bytes has no named tokens; documents end with byte 0")
        return TokenizerSpec(name=BYTES, text=b"", vocab=BYTE_VOCAB, eod=0)
    text = read_tokenizer_file(word)
    check_tokenizer(word, text)
    try:
        tokenizer = _library(text.decode())
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"tokenizer={word}: not a tokenizer.json: {_first_line(error)}") from error
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    files = read_described_files(
        Path(word).expanduser().parent, (CONFIG, GENERATION, TOKENIZER_CONFIG, SPECIAL_TOKENS, TEMPLATE)
    )
    described = Description(files={**files, TOKENIZER: text.decode()})
    end = eod or find_end(described, parse_tokens(text.decode()))
    if end not in ids:
        wrong = f"has no token {eod!r}" if eod else "and the files beside it do not say which token ends a document"
        raise ConfigError(f"tokenizer={word} {wrong}: name one of its tokens with eod=TOKEN")
    digest, vocab = hashlib.sha256(text).hexdigest(), max(ids.values()) + 1
    return TokenizerSpec(
        name=digest,
        text=text,
        vocab=vocab,
        eod=ids[end],
        end_text=end,
        place=word,
        begin=_find_begin(tokenizer, described, ids, bos),
        beside={name: file for name, file in files.items() if name not in (CONFIG, GENERATION)},
    )


def _find_begin(tokenizer: Any, files: Description, ids: Mapping[str, int], bos: str) -> tuple[int, ...]:
    """Return the tokens that begin a document of text.

    Raises:
        ConfigError: There is no such token.
    """
    if bos == NONE:
        return ()
    if bos != AUTO:
        if bos not in ids:
            raise ConfigError(f"bos={bos}: the tokenizer has no such token: name one of its tokens, none or auto")
        return (ids[bos],)
    # transformers lets this key decide over the file's post-processor (5.24, tokenization_utils_tokenizers.py).
    chosen = files.read_object(TOKENIZER_CONFIG).get("add_bos_token")
    if chosen is not None:
        named = ids.get(find_named(files, "bos_token"))
        return (named,) if chosen and named is not None else ()
    plain, whole = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    places = [at for at in range(len(whole)) if plain and whole[at : at + len(plain)] == plain]
    return tuple(whole[: places[0]]) if places else ()


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
