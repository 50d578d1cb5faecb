"""index.json of a folder of token shards: which there are, and what their numbers mean.

    format     "orch-tokens-1"
    dtype      "uint8", "uint16" or "int32"; little-endian, as all shards are
    vocab      int; every token is below it
    tokenizer  "bytes", or the SHA-256 of tokenizer.json, which then lies beside the index
    eod        the token that ends each document
    documents  how many
    tokens     how many, in all shards
    shards     list of {"name", "tokens", "sha256"}, in order
    source     what was read: only told
    made_from  a digest of what was read and of the settings: the same makes the same shards

It is written last: a folder without it is not whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.data.extents import Piece
from trainer.errors import DataError

INDEX = "index.json"
PROGRESS = "prepare-progress.json"
"""Lies in a folder that `prepare` has begun and not ended."""
TOKENIZER = "tokenizer.json"
FORMAT = "orch-tokens-1"

_DTYPES = ("uint8", "uint16", "int32")
_NAME = re.compile(r"shard-\d{5,}\.bin")


@dataclass(frozen=True, slots=True)
class Shard:
    name: str
    tokens: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Index:
    """See the module's text."""

    dtype: str
    vocab: int
    tokenizer: str
    eod: int
    documents: int
    shards: tuple[Shard, ...]
    source: str
    made_from: str

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(Piece(shard.name, shard.tokens) for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Of the tokens themselves: the same wherever the shards lie."""
        told = [self.dtype, self.vocab, self.tokenizer, *((shard.tokens, shard.sha256) for shard in self.shards)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, "tokens": self.tokens, **asdict(self)}, indent=1).encode()

    @staticmethod
    def looks_like(text: bytes) -> bool:
        """Whether this is an index of ours, whole or not; other programs have files of this name too."""
        return b'"orch-tokens-' in text[:200]

    @classmethod
    def from_json(cls, text: bytes, place: str) -> Index:
        """Raises DataError, naming the place."""
        try:
            content: Any = json.loads(text)
            if content["format"] != FORMAT:
                raise DataError(f"data={place}: {INDEX} is of format {content['format']}; this trainer reads {FORMAT}")
            index = cls(
                dtype=str(content["dtype"]),
                vocab=int(content["vocab"]),
                tokenizer=str(content["tokenizer"]),
                eod=int(content["eod"]),
                documents=int(content["documents"]),
                shards=tuple(shard_from(shard) for shard in content["shards"]),
                source=str(content["source"]),
                made_from=str(content["made_from"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"data={place}: {INDEX} cannot be read ({error!r}): prepare the text again") from error
        if index.dtype not in _DTYPES or index.tokens != content["tokens"]:
            raise DataError(f"data={place}: {INDEX} contradicts itself: prepare the text again")
        return index


def shard_from(content: Any) -> Shard:
    """Raises ValueError, KeyError or TypeError."""
    shard = Shard(str(content["name"]), int(content["tokens"]), str(content["sha256"]))
    if not _NAME.fullmatch(shard.name) or shard.tokens < 1:
        raise ValueError(f"impossible shard {shard.name!r}")
    return shard


def shard_name(number: int) -> str:
    """number: from 0."""
    return f"shard-{number:05d}.bin"
