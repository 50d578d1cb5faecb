"""The tokenizer.json that belongs to a checkpoint: the one of its data, or one that maps bytes to themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.checkpoint.store import Store, open_store
from trainer.config import BYTE_VOCAB, ModelConfig, Scalar
from trainer.data.index import INDEX_NAME, TOKENIZER_NAME, Index
from trainer.data.tokenizers import AUTO, BYTES
from trainer.errors import ConfigError, TrainerError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFile:
    """A tokenizer.json with what is known of it.

    Attributes:
        text: Of the file; empty when there is none.
        end: The token that ends a document, if known.
        special: The special tokens for tokenizer_config.json.
        notes: For the user.
    """

    text: bytes = b""
    end: int | None = None
    special: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()


def find_tokenizer_file(config: Mapping[str, Scalar], model: ModelConfig, given: str) -> TokenizerFile:
    """Find the tokenizer of a checkpoint.

    Args:
        config: Of the manifest.
        model: Of the checkpoint.
        given: The path that the user named, or "".

    Raises:
        ConfigError: The named file cannot be read.
    """
    if given:
        try:
            return _with_end(Path(given).expanduser().read_bytes(), None)
        except OSError as error:
            raise ConfigError(f"tokenizer={given}: cannot be read: {error.strerror}") from error
    setting, source = str(config.get("data.tokenizer", AUTO)), str(config.get("data.source", ""))
    index, text = _beside_data(source)
    if text:
        return _with_end(text, index.eod if index is not None else None)
    if setting not in (AUTO, BYTES) and Path(setting).expanduser().is_file():
        return _with_end(Path(setting).expanduser().read_bytes(), None)
    if model.tokens == BYTE_VOCAB and setting in (AUTO, BYTES):
        return TokenizerFile(
            text=make_byte_tokenizer(), end=0, special={"eos_token": _printable()[0], "bos_token": _printable()[0]}
        )
    return TokenizerFile(notes=("note: no tokenizer.json is written: none was found; name it with tokenizer=PATH",))


def make_byte_tokenizer() -> bytes:
    """Return a tokenizer.json of the `tokenizers` library in which each byte of UTF-8 is the token of its value."""
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(_printable())},
            "merges": [],
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode()


def _printable() -> list[str]:
    """Return the character for each byte in byte-level vocabularies.

    It is the byte itself where that can be printed, else the next character from 256 on (GPT-2's encoder.py,
    bytes_to_unicode).
    """
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(BYTE_VOCAB, 2 * BYTE_VOCAB))
    return [chr(byte if byte in plain else next(others)) for byte in range(BYTE_VOCAB)]


def _beside_data(source: str) -> tuple[Index | None, bytes]:
    """Return index and tokenizer of a folder that `prepare` made, if it can be read from here."""
    if not source:
        return None, b""
    try:
        store: Store = open_store(source)
        index, text = store.find(INDEX_NAME), store.find(TOKENIZER_NAME)
        if index is None or text is None:
            return None, b""
        return Index.from_json(index.data, source), text.data
    except TrainerError:
        return None, b""  # text that was read as bytes, a set of hf://, a place of another machine


def _with_end(text: bytes, end: int | None) -> TokenizerFile:
    """Return the file with the name of its end token, if `end` is known."""
    try:
        content: Any = json.loads(text)
        added = {str(token["content"]): int(token["id"]) for token in content.get("added_tokens", [])}
        vocabulary: dict[str, int] = {**content["model"]["vocab"], **added}
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return TokenizerFile(text=text, end=end)  # another kind of model than BPE; its own library reads it
    name = next((token for token, number in vocabulary.items() if number == end), "")
    return TokenizerFile(text=text, end=end, special={"eos_token": name, "bos_token": name} if name else {})
