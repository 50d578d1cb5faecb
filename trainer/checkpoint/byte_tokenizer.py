"""The tokenizer of text that is read as bytes, as a tokenizer.json of the `tokenizers` library.

Each byte of UTF-8 is the token of its value. Byte 0, which does not occur in text, is a special token: it ends a
document, and a reply of the plain chat template.
"""

from __future__ import annotations

import json
from typing import Any

from trainer.checkpoint.description import TOKENIZER, TOKENIZER_CONFIG, Description
from trainer.config import BYTE_VOCAB

END = "\0"
_LONGEST = 100_000  # characters; others have tens of millions


def make_byte_tokenizer() -> str:
    """Return the tokenizer.json."""
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 0,
                "content": END,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
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
            "vocab": {END if byte == 0 else character: byte for byte, character in enumerate(_printable())},
            "merges": [],
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1)


def describe_bytes() -> Description:
    """Return the description of the tokenizer."""
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "clean_up_tokenization_spaces": False}
    files = {TOKENIZER: make_byte_tokenizer(), TOKENIZER_CONFIG: f"{json.dumps(config, indent=2)}\n"}
    return Description(files=files, end=0)


def is_byte_tokenizer(text: str) -> bool:
    """Return whether a tokenizer.json is that of bytes, also as earlier versions of orch wrote it."""
    if len(text) > _LONGEST:
        return False
    try:
        found: Any = json.loads(text)
        vocabulary, merges = dict[str, int](found["model"]["vocab"]), found["model"]["merges"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    expected = {character: byte for byte, character in enumerate(_printable()) if byte}
    rest = {token: number for token, number in vocabulary.items() if number}
    return len(vocabulary) == BYTE_VOCAB and rest == expected and not merges


def _printable() -> list[str]:
    """Return the character for each byte in byte-level vocabularies.

    It is the byte itself where that can be printed, else the next character from 256 on (GPT-2's encoder.py,
    bytes_to_unicode).
    """
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = iter(range(BYTE_VOCAB, 2 * BYTE_VOCAB))
    return [chr(byte if byte in plain else next(others)) for byte in range(BYTE_VOCAB)]
