"""The first use of a tokenizer.json, which may come from anyone, within limits of size, memory and time."""

from __future__ import annotations

import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.data.files.local_files import open_regular_file
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.errors import DataError

_MOST_BYTES = 64 << 20  # Gemma's, one of the largest, has 33 MB
_LIMITS = Limits(memory=3 << 30, seconds=60.0)
_TEXT = string.printable
_MOST_VOCABULARY = 1 << 29  # beside a token, int32 holds its mark and the start of a document
_MOST_TOKENS = 64  # of a character: a normalizer may write one as several


def read_tokenizer_file(place: str) -> bytes:
    """Return the content of a tokenizer.json.

    Raises:
        DataError: It cannot be read, or is too large for one.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        raise DataError(f"tokenizer={place}: not a file: name the tokenizer.json in it")
    try:
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _MOST_BYTES:
                return file.read()
    except DataError as error:
        raise DataError(f"tokenizer={place}: {error}") from error
    except OSError as error:
        raise DataError(f"tokenizer={place}: cannot be read: {error.strerror}") from error
    raise DataError(f"tokenizer={place}: {size:,} bytes; a tokenizer.json has at most {_MOST_BYTES:,}")


def check_tokenizer(place: str, text: bytes) -> None:
    """Open a tokenizer and use it once, in a separate process.

    Raises:
        DataError: It is not a tokenizer.json, or passes a limit.
    """
    process = LimitedProcess(_open, text, _LIMITS)
    try:
        process.wait_for_start()
        count, largest = process.ask(_TEXT)
    except LimitedProcessError as error:
        raise DataError(f"tokenizer={place}: not a tokenizer.json that can be used: {error}") from error
    finally:
        process.end()
    if count > _MOST_TOKENS * len(_TEXT):
        why = f"it makes {count:,} tokens of {len(_TEXT)} characters"
        raise DataError(f"tokenizer={place}: not a tokenizer.json that can be used: {why}")
    if largest >= _MOST_VOCABULARY:
        raise DataError(f"tokenizer={place}: not a tokenizer.json that can be used: it has a token of number {largest}")


def _open(text: bytes) -> Callable[[str], tuple[int, int]]:
    try:
        import tokenizers
    except ImportError:
        raise DataError("tokenizer=PATH needs the library `tokenizers`: pip install tokenizers") from None
    tokenizer: Any = tokenizers.Tokenizer.from_str(text.decode())
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    return lambda sample: (sum(len(tokenizer.encode(character).ids) for character in sample), largest)
