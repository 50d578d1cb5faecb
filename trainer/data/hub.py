"""hf://NAME[#CONFIG][@REVISION][:SPLIT]: a data set of the Hugging Face hub, or a folder of one, by the `datasets`
library. In a run it is turned into token shards first, once for each machine; `prepare` does the same ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from trainer.data.documents import Text, document
from trainer.data.index import INDEX
from trainer.data.places import HUB
from trainer.data.tokenizers import read_tokenizer
from trainer.errors import DataError

_WORDS = re.compile(r"(?P<name>[^#@:]+)(#(?P<config>[^@:]+))?(@(?P<revision>[^:]+))?(:(?P<split>.+))?")


@dataclass(frozen=True, slots=True)
class HubName:
    """name: OWNER/NAME, or the path of a folder. config, revision: "" for the library's default."""

    name: str
    config: str
    revision: str
    split: str


def parse(source: str) -> HubName:
    """Raises DataError."""
    match = _WORDS.fullmatch(source.removeprefix(HUB))
    if match is None:
        raise DataError(f"data={source}: must be hf://NAME[#CONFIG][@REVISION][:SPLIT]")
    return HubName(match["name"], match["config"] or "", match["revision"] or "", match["split"] or "train")


class HubDocuments:
    """The rows of one column, streamed. Give a revision, or the data may change between two attempts: then the tokens
    are others, and resuming says so."""

    def __init__(self, name: HubName, column: str) -> None:
        self._name = name
        self._column = column
        told = "\0".join((name.name, name.config, name.revision, name.split))
        self.fingerprint = hashlib.sha256(told.encode()).hexdigest()[:32]
        self.size: int | None = None
        self.seen = 0
        self._load = _loader()

    def read(self) -> Iterator[Text]:
        name = self._name
        try:
            rows: Any = self._load(
                name.name, name.config or None, split=name.split, revision=name.revision or None, streaming=True
            )
            for number, row in enumerate(rows):
                if self._column not in row:
                    has = ", ".join(map(str, row))
                    raise DataError(f"hf://{name.name} has no column {self._column!r}, but {has}: column=NAME")
                for text in document(row[self._column], f"hf://{name.name}, row {number}"):
                    self.seen += len(text.data)
                    yield text
        except DataError:
            raise
        except Exception as error:  # the library raises whatever its many readers raise
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(f"hf://{name.name} cannot be read: {first}") from error


def shards_of(source: str, tokenizer: str, column: str, report: Callable[[str], None]) -> Path:
    """The local folder with this data set's token shards; made when it is not there. Raises as `prepare` does.

    Ranks of the same machine wait for the first. Place: $ORCH_DATA_CACHE, else the user's cache folder.
    """
    from trainer.data.prepare import Job, prepare

    tokens = read_tokenizer(tokenizer)
    told = "\0".join((source, tokens.name, str(tokens.eod), column))
    folder = _cache() / hashlib.sha256(told.encode()).hexdigest()[:24]
    if (folder / INDEX).exists():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("ab")
    except OSError as error:
        raise DataError(f"data={source}: {folder} cannot be made: {error.strerror}: set ORCH_DATA_CACHE") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, also when the process is killed
        if not (folder / INDEX).exists():
            report(f"{source} becomes token shards in {folder}; `python -m trainer prepare` does it ahead of time")
            prepare(Job(source, str(folder), tokens, column), report)
    return folder


def _cache() -> Path:
    place = os.environ.get("ORCH_DATA_CACHE", "")
    return Path(place) if place else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "orch-data"


def _loader() -> Callable[..., Any]:
    try:
        datasets: Any = import_module("datasets")  # optional
    except ImportError:
        raise DataError("data=hf://... needs the library `datasets`: pip install datasets") from None
    load: Callable[..., Any] = datasets.load_dataset
    return load
