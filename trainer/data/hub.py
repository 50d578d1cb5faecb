"""Data sets of the Hugging Face hub: hf://NAME[#CONFIG][@REVISION][:SPLIT].

NAME is OWNER/NAME or a folder, read by the `datasets` library. Before a run starts, the data set is turned into token
shards, once per machine; `prepare` does the same ahead of time. The corpus's fingerprint contains a digest of the
tokens, so a run is not resumed with another version of the data.
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

from trainer.data.documents import TextChunk, split_value
from trainer.data.index import INDEX_NAME
from trainer.data.sources import HUB_SCHEME
from trainer.data.tokenizers import read_tokenizer
from trainer.errors import DataError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_QUERY_SECONDS = 20.0
_NAME = re.compile(r"(?P<name>[^#@:]+)(#(?P<config>[^@:]+))?(@(?P<revision>[^:]+))?(:(?P<split>.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """The parts of an hf:// address.

    Attributes:
        name: OWNER/NAME, or the path of a folder.
        config: Empty for the library's default.
        revision: Branch, tag or commit; empty for the library's default.
        split: Such as `train`.
    """

    name: str
    config: str
    revision: str
    split: str


def parse_hub_name(source: str) -> HubName:
    """Parse an hf:// address.

    Raises:
        DataError: The address is malformed.
    """
    match = _NAME.fullmatch(source.removeprefix(HUB_SCHEME))
    if match is None:
        raise DataError(f"data={source}: must be hf://NAME[#CONFIG][@REVISION][:SPLIT]")
    return HubName(
        name=match["name"],
        config=match["config"] or "",
        revision=match["revision"] or "",
        split=match["split"] or "train",
    )


def query_version(name: HubName) -> str:
    """Return the commit that the name refers to now, or a digest of a folder's files by name, size and time.

    Returns:
        An empty string when the version cannot be queried, as on a machine without network.
    """
    folder = Path(name.name)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = [
            f"{path.relative_to(folder)}\0{(found := path.stat()).st_size}\0{found.st_mtime_ns}" for path in files
        ]
        return hashlib.sha256("\n".join(listed).encode(errors="surrogateescape")).hexdigest()[:32]
    if _COMMIT.fullmatch(name.revision):
        return name.revision
    try:
        api: Any = import_module("huggingface_hub").HfApi()  # `datasets` brings it
        return str(api.dataset_info(name.name, revision=name.revision or None, timeout=_QUERY_SECONDS).sha or "")
    except Exception:  # it raises whatever its network library raises; loading reports the cause
        return ""


class HubDocuments:
    """The rows of one column, streamed."""

    def __init__(self, name: HubName, column: str) -> None:
        """Remember what to load.

        Args:
            name: With a commit as its revision where that is known, so that all rows are of the same version.
            column: The column that holds the text.
        """
        self._name = name
        self._column = column
        identity = "\0".join((name.name, name.config, name.revision, name.split))
        self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self.size: int | None = None
        self.bytes_read = 0
        self._load = _loader()

    def read(self) -> Iterator[TextChunk]:
        name = self._name
        try:
            rows: Any = self._load(
                name.name, name.config or None, split=name.split, revision=name.revision or None, streaming=True
            )
            for number, row in enumerate(rows):
                if self._column not in row:
                    has = ", ".join(map(str, row))
                    raise DataError(f"hf://{name.name} has no column {self._column!r}; choose column=NAME: {has}")
                for text in split_value(row[self._column], f"hf://{name.name}, row {number}"):
                    self.bytes_read += len(text.data)
                    yield text
        except DataError:
            raise
        except Exception as error:  # the library raises whatever its many readers raise
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(f"hf://{name.name} cannot be read: {first}") from error


def ensure_local_shards(source: str, tokenizer: str, column: str, report: Callable[[str], None]) -> Path:
    """Return the local folder with the data set's token shards, which are made if they do not exist.

    Another version of the data set has another folder. Where the version cannot be queried, the last version known on
    this machine is used. Ranks that share the folder wait for the first one; if the file system does not support locks,
    they write identical shards. The folder is in $ORCH_DATA_CACHE, else in the user's cache folder.

    Raises:
        DataError: The data set or the folder is unusable, or a library is missing.
        ConfigError: The tokenizer is unusable.
        TrainerError: An encoding process ended.
    """
    from trainer.data.prepare import PrepareJob, prepare_shards

    tokens, name = read_tokenizer(tokenizer), parse_hub_name(source)
    settings = (tokens.name, str(tokens.eod), column, *(f"begin {token}" for token in tokens.begin))
    folder, version = _folder(source, settings, query_version(name))
    if (folder / INDEX_NAME).exists():
        return folder
    pinned = _pinned(name, version) if _COMMIT.fullmatch(version) else source
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("ab")
    except OSError as error:
        raise DataError(f"data={source}: {folder} cannot be created: {error.strerror}: set ORCH_DATA_CACHE") from error
    with lock:
        with suppress(OSError):  # a network's file system may have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, also when the process is killed
        if not (folder / INDEX_NAME).exists():
            report(
                f"converting {pinned} to token shards in {folder}; `python -m trainer prepare` does it ahead of time"
            )
            prepare_shards(PrepareJob(source=pinned, destination=str(folder), tokens=tokens, column=column), report)
    return folder


def _folder(source: str, settings: Sequence[str], version: str) -> tuple[Path, str]:
    """Return the folder of that version's shards, and the version; without a version, the last known here."""
    cache = _cache()
    key = hashlib.sha256("\0".join((source, *settings)).encode()).hexdigest()[:24]
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
    return f"{HUB_SCHEME}{name.name}{config}@{commit}:{name.split}"


def _cache() -> Path:
    """Return the folder for all data sets' shards.

    Raises:
        DataError: ORCH_DATA_CACHE names a bucket.
    """
    place = os.environ.get("ORCH_DATA_CACHE", "")
    if "://" in place:
        raise DataError(
            f"ORCH_DATA_CACHE={place}: must be a folder on this machine; `python -m trainer prepare` writes to buckets"
        )
    return Path(place) if place else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "orch-data"


def _loader() -> Callable[..., Any]:
    try:
        datasets: Any = import_module("datasets")  # optional
    except ImportError:
        raise DataError("data=hf://... needs the library `datasets`: pip install datasets") from None
    load: Callable[..., Any] = datasets.load_dataset
    return load
