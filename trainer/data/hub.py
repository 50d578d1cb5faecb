"""Data sets of the Hugging Face hub: hf://NAME[#CONFIG][@REVISION][:SPLIT].

NAME is OWNER/NAME or a folder, read by the `datasets` library. Before a run starts, the data set is turned into token
shards, once per machine; `prepare` does the same ahead of time. The corpus's fingerprint contains a digest of the
tokens, so a run is not resumed with another version of the data.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from trainer.config import DataConfig
from trainer.data.conversion import convert_once
from trainer.data.documents import TextChunk, split_value
from trainer.data.files.bad_rows import BadRows
from trainer.data.sources import HUB_SCHEME
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

    def __init__(self, name: HubName, column: str, bad: BadRows) -> None:
        """Remember what to load.

        Args:
            name: With a commit as its revision where that is known, so that all rows are of the same version.
            column: The column that holds the text.
            bad: Counts rows without text.
        """
        self.bad = bad
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
                where = f"hf://{name.name}, row {number}"
                try:
                    texts = list(split_value(row[self._column], where))
                except DataError as error:
                    self.bad.add(where, str(error))
                    if self.bad.is_exceeded:
                        raise self.bad.fail() from None
                    continue
                self.bad.others = True
                for text in texts:
                    self.bytes_read += len(text.data)
                    yield text
        except DataError:
            raise
        except Exception as error:  # the library raises whatever its many readers raise
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(f"hf://{name.name} cannot be read: {first}") from error

    def list_notes(self) -> list[str]:
        return self.bad.list_notes()


def ensure_local_shards(config: DataConfig, report: Callable[[str], None]) -> Path:
    """Return the local folder with the data set's token shards, which are made if they do not exist.

    Another version of the data set has another folder. Where the version cannot be queried, the last version known on
    this machine is used.

    Raises:
        DataError: The data set or the folder is unusable, or a library is missing.
        ConfigError: The tokenizer is unusable.
        TrainerError: An encoding process ended.
    """
    name = parse_hub_name(config.source)

    def pin(version: str) -> str:
        return _pinned(name, version) if _COMMIT.fullmatch(version) else config.source

    return convert_once(config, query_version(name), report, pin)


def _pinned(name: HubName, commit: str) -> str:
    config = f"#{name.config}" if name.config else ""
    return f"{HUB_SCHEME}{name.name}{config}@{commit}:{name.split}"


def _loader() -> Callable[..., Any]:
    try:
        datasets: Any = import_module("datasets")  # optional
    except ImportError:
        raise DataError("data=hf://... needs the library `datasets`: pip install datasets") from None
    load: Callable[..., Any] = datasets.load_dataset
    return load
