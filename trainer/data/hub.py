"""hf://NAME[#CONFIG][@REVISION][:SPLIT]: a data set of the Hugging Face hub, or a folder of one, by the `datasets`
library. In a run it is turned into token shards first, once for each machine; `prepare` does the same ahead of time.

The tokens' own digest is in the corpus's fingerprint, so a run is not resumed with another version of the data.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from trainer.data.documents import Text, document
from trainer.data.index import INDEX
from trainer.data.places import HUB
from trainer.data.tokenizers import read_tokenizer
from trainer.errors import DataError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ASK_SECONDS = 20.0
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


def version_of(name: HubName) -> str:
    """The commit that the name stands for now, or a digest of a folder's files by name, size and time of change.

    "" when it cannot be asked for, as on a machine without network.
    """
    folder = Path(name.name)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        told = [f"{path.relative_to(folder)}\0{(found := path.stat()).st_size}\0{found.st_mtime_ns}" for path in files]
        return hashlib.sha256("\n".join(told).encode(errors="surrogateescape")).hexdigest()[:32]
    if _COMMIT.fullmatch(name.revision):
        return name.revision
    try:
        api: Any = import_module("huggingface_hub").HfApi()  # `datasets` brings it
        return str(api.dataset_info(name.name, revision=name.revision or None, timeout=_ASK_SECONDS).sha or "")
    except Exception:  # it raises whatever its network library raises; loading will say what is wrong
        return ""


class HubDocuments:
    """The rows of one column, streamed."""

    def __init__(self, name: HubName, column: str) -> None:
        """name: with a commit as its revision where that is known, so that all rows are of the same one."""
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

    Another version of the data set has another folder; where the version cannot be asked for, it is the last that was
    known here. Ranks that share the folder wait for the first; should the file system not lock, they write the same
    shards. Place: $ORCH_DATA_CACHE, else the user's cache folder.
    """
    from trainer.data.prepare import Job, prepare

    tokens, name = read_tokenizer(tokenizer), parse(source)
    folder, version = _folder(source, (tokens.name, str(tokens.eod), column), version_of(name))
    if (folder / INDEX).exists():
        return folder
    pinned = _pinned(name, version) if _COMMIT.fullmatch(version) else source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("ab")
    except OSError as error:
        raise DataError(f"data={source}: {folder} cannot be made: {error.strerror}: set ORCH_DATA_CACHE") from error
    with lock:
        with suppress(OSError):  # a network's file system may have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, also when the process is killed
        if not (folder / INDEX).exists():
            report(f"{pinned} becomes token shards in {folder}; `python -m trainer prepare` does it ahead of time")
            prepare(Job(pinned, str(folder), tokens, column), report)
    return folder


def _folder(source: str, told: Sequence[str], version: str) -> tuple[Path, str]:
    """(where the shards of that version are, the version). Without one: of the last that was known here."""
    cache = _cache()
    key = hashlib.sha256("\0".join((source, *told)).encode()).hexdigest()[:24]
    known = cache / f"{key}.version"
    try:
        if version:
            cache.mkdir(parents=True, exist_ok=True)
            staged = cache / f".{key}.{os.getpid()}-{secrets.token_hex(4)}"
            staged.write_text(version)
            staged.replace(known)
        elif known.exists():
            version = known.read_text()
    except OSError as error:
        raise DataError(f"data={source}: {cache} cannot be used: {error.strerror}: set ORCH_DATA_CACHE") from error
    return cache / f"{key}-{hashlib.sha256(version.encode()).hexdigest()[:12]}", version


def _pinned(name: HubName, commit: str) -> str:
    config = f"#{name.config}" if name.config else ""
    return f"{HUB}{name.name}{config}@{commit}:{name.split}"


def _cache() -> Path:
    """Raises DataError."""
    place = os.environ.get("ORCH_DATA_CACHE", "")
    if "://" in place:
        raise DataError(f"ORCH_DATA_CACHE={place}: must be a folder of this machine; `prepare` writes to buckets")
    return Path(place) if place else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "orch-data"


def _loader() -> Callable[..., Any]:
    try:
        datasets: Any = import_module("datasets")  # optional
    except ImportError:
        raise DataError("data=hf://... needs the library `datasets`: pip install datasets") from None
    load: Callable[..., Any] = datasets.load_dataset
    return load
