"""The index of a folder of token shards, index.json: a list of the shards and the meaning of their numbers.

    format     "orch-tokens-1"; "orch-tokens-3" where tokens are marked (trainer/data/tokens/marks.py) and show where
               documents begin (trainer/data/tokens/document_starts.py); "orch-tokens-2" has marks alone, and is no
               longer written
    dtype      "uint8", "uint16" or "int32", or with marks "int16" or "int32"; little-endian, as all shards are
    vocab      int; every token is below it
    tokenizer  "bytes", or the SHA-256 of tokenizer.json, which is then stored beside the index
    eod        the token that ends each document
    documents  number of documents
    tokens     number of tokens in all shards
    shards     list of {"name", "tokens", "sha256", "trained", "largest"}, in order; "trained": marked tokens; null
               without marks; "largest": the largest token in it; null or absent from earlier versions
    source     what was read; informational
    made_from  a digest of the input and of the settings: equal digests make equal shards
    moment     the date that a chat template wrote; "" or absent where it wrote none

It is written last: a folder without it is incomplete. description.json beside it is that of the tokenizer
(trainer/checkpoint/description.py), for the runs that read the shards; earlier versions wrote none.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.checkpoint.epoch import shorten
from trainer.data.extents import Piece
from trainer.errors import DataError

INDEX_NAME = "index.json"
PROGRESS_NAME = "prepare-progress.json"
"""File in a folder that `prepare` has begun and not finished."""
TOKENIZER_NAME = "tokenizer.json"
DESCRIPTION_NAME = "description.json"
FORMAT = "orch-tokens-1"
MARKED_FORMAT = "orch-tokens-3"
MARKED_WITHOUT_STARTS = "orch-tokens-2"

_DTYPES = ("uint8", "uint16", "int32")
_MARKED_DTYPES = ("int16", "int32")
_NAME = re.compile(r"shard-\d{5,}\.bin")


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of tokens.

    Attributes:
        trained: The number of marked ones; None without marks.
        largest: The largest token; None: unknown.
    """

    name: str
    tokens: int
    sha256: str
    trained: int | None = None
    largest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The contents of index.json; the module's docstring describes the fields.

    Attributes:
        starts: Whether marked tokens show where documents begin; the format says so.
    """

    dtype: str
    vocab: int
    tokenizer: str
    eod: int
    documents: int
    shards: tuple[Shard, ...]
    source: str
    made_from: str
    moment: str = ""
    starts: bool = True

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @property
    def largest(self) -> int:
        """The largest token that the shards have; where that is unknown, the largest that they may have."""
        found = [shard.largest for shard in self.shards]
        return max((self.vocab - 1 if one is None else one for one in found), default=self.vocab - 1)

    @property
    def trained(self) -> int | None:
        """Number of marked tokens; None where no token has a mark."""
        counts = [shard.trained for shard in self.shards if shard.trained is not None]
        return sum(counts) if counts else None

    @property
    def marked(self) -> bool:
        return self.trained is not None

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(Piece(shard.name, shard.tokens) for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Short hash of the tokens themselves, the same wherever the shards are stored."""
        identity = [self.dtype, self.vocab, self.tokenizer, *((shard.tokens, shard.sha256) for shard in self.shards)]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    def to_json(self) -> bytes:
        name = MARKED_FORMAT if self.marked else FORMAT
        fields = {key: value for key, value in asdict(self).items() if key != "starts"}
        return json.dumps({"format": name, "tokens": self.tokens, **fields}, indent=1).encode()

    @staticmethod
    def is_index(text: bytes) -> bool:
        """Return whether this is an index of ours, complete or not; other programs also use this file name."""
        return b'"orch-tokens-' in text[:200]

    @classmethod
    def from_json(cls, text: bytes, place: str) -> Index:
        """Parse an index.

        Args:
            text: The contents of index.json.
            place: Its folder, for error messages.

        Raises:
            DataError: The text is not a valid index.
        """
        try:
            content: Any = json.loads(text)
            if content["format"] not in (FORMAT, MARKED_WITHOUT_STARTS, MARKED_FORMAT):
                raise DataError(
                    f"data={place}: {INDEX_NAME} is of format {shorten(content['format'])}; this trainer reads "
                    f"{FORMAT}, {MARKED_WITHOUT_STARTS} and {MARKED_FORMAT}"
                )
            index = cls(
                dtype=str(content["dtype"]),
                vocab=int(content["vocab"]),
                tokenizer=str(content["tokenizer"]),
                eod=int(content["eod"]),
                documents=int(content["documents"]),
                shards=tuple(parse_shard(shard) for shard in content["shards"]),
                source=str(content["source"]),
                made_from=str(content["made_from"]),
                moment=str(content.get("moment") or ""),
                starts=content["format"] != MARKED_WITHOUT_STARTS,
            )
        except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError) as error:
            why = f"cannot be read ({shorten(error)}): prepare the text again"
            raise DataError(f"data={place}: {INDEX_NAME} {why}") from error
        marked = content["format"] != FORMAT
        complete = all((shard.trained is not None) == marked for shard in index.shards)
        if (
            index.dtype not in (_MARKED_DTYPES if marked else _DTYPES)
            or not complete
            or index.tokens != content.get("tokens")
        ):
            raise DataError(f"data={place}: {INDEX_NAME} contradicts itself: prepare the text again")
        return index


def parse_shard(content: Any) -> Shard:
    """Parse one entry of the list of shards.

    Raises:
        ValueError: The entry is impossible.
        KeyError: A key is missing.
        TypeError: A value has the wrong type.
    """
    name, tokens, digest = str(content["name"]), int(content["tokens"]), str(content["sha256"])
    trained, largest = (None if content.get(key) is None else int(content[key]) for key in ("trained", "largest"))
    shard = Shard(name, tokens, digest, trained, largest)
    if not _NAME.fullmatch(shard.name) or shard.tokens < 1 or not 0 <= (shard.trained or 0) <= shard.tokens:
        raise ValueError(f"impossible shard {shorten(shard.name)}")
    return shard


def format_shard_name(number: int) -> str:
    """Return the file name of a shard; numbers start at 0."""
    return f"shard-{number:05d}.bin"
