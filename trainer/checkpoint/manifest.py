"""The one definition of a checkpoint's folder, its manifest.json and the pointer latest.json.

The trainer writes and reads them, orchestrator.storage reads them; this module needs only the standard library, so that
both sides can import it anywhere. manifest.json is UTF-8 JSON, one object with exactly these keys:

    format   2
    step     int, the same as in the folder's name
    run_id   str
    attempt  int, from 1
    epoch    int, from 1: the start of the run that wrote it, see epoch.py; 0 or absent: none was claimed
    world    int, processes that wrote it; each wrote any number of parts, also none
    time     str, UTC, like 2026-11-20T18:30:00Z
    weights_only  bool; true: there are `model/` tensors and no others (an import)
    parts    list of {"name": str, "size": int (bytes), "header": int (bytes before the tensors' values),
             "sha256": str (64 lower-case hex digits, of the whole part)}, at least one
    data     {"step", "position" (rows used), "seed", "batch", "seq_len", "source", "total_tokens", "vocab",
             "fingerprint"}; null in an import. Of a mixture also "sources": list of {"source", "weight" (whole
             numbers), "total_tokens", "fingerprint", "position" (rows used of it)}
    eval_loss  number, mean nats a token of an evaluation of this state; null or absent: it was not evaluated
    config   the run's configuration by dotted key, such as "model.dim": 128
    description  str, the SHA-256 of the description of model and tokenizer, which is beside the folders of steps as
             description-<sha256>.json (description.py); absent where none is known

Format 3 is of own programs (trainer/program): a folder of files. It has the keys format, step, run_id, attempt, epoch,
world and time as above, and

    parts    list of {"name": str, "size": int, "sha256": str, "file": str (where the file is in the program's folder,
             such as model/weights.pt)}, at least one
    meta     what the program gave, a JSON object
    signature  str, of everything above by the run's key, see signature.py; absent where the program had no key

Unknown keys are ignored. Format 1 (orch 0.1.0: one part of a free name for each process, no "header" and no
"weights_only") can be listed and downloaded; only the trainer of that version resumes from it.

latest.json: {"step": 1200, "manifest": "step-00001200-e0002-a0003/manifest.json", "epoch": 2}. It is moved by
compare-and-swap, and never by an epoch below its own. A start that finds what it names lost or damaged moves it back to
the checkpoint from which it resumes. A step behind which it stays is no checkpoint of the run: its
writer was overtaken, or killed.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from .epoch import shorten

FORMAT = 2
"""The format that this version's trainer writes."""
PROGRAM_FORMAT = 3
"""The format of the checkpoints of own programs."""
MANIFEST = "manifest.json"
RESERVED = ".orch-restored"
"""How the names begin that a restore uses in the program's folder: no file of a checkpoint has such a name there."""
LATEST = "latest.json"
LARGEST = (1 << 63) - 1
"""The largest number that is read."""
MOST_BYTES = 256 << 20
"""The bytes of the largest file beside the parts that is read: a manifest has 200 for each part."""

_PART_NAME = re.compile(r"part-(\d{5,})-\d{3,}\.safetensors")
_PART_NAME_FORMAT_3 = re.compile(r"part-(\d{5,})-\d{3,}\.file")
_PART_NAME_FORMAT_1 = re.compile(r"(?!\.)[^/\x00-\x1f]+")
_FILE = re.compile(r"(?:(?!\.{1,2}/)[^/\x00-\x1f\x7f\\]+/)*(?!\.{1,2}$)[^/\x00-\x1f\x7f\\]+")
_LONGEST_FILE = 1000  # bytes of a path, as in buckets
_LONGEST_NAME = 255  # bytes of a name, as on disks
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(r"step-(\d{8,})(?:-e(\d{4,})-a(\d{4,}))?")


class CorruptCheckpoint(ValueError):
    """A manifest or a part is not what it must be; the message says how."""


class UnsupportedFormat(CorruptCheckpoint):
    """A manifest of another format than the reader takes.

    Attributes:
        found: The number of the format.
    """

    def __init__(self, found: int) -> None:
        super().__init__(f"the manifest has format {found}, which this version of orch does not read")
        self.found = found


class StepFolder(NamedTuple):
    """What the name of a checkpoint's folder says; in the order of these values, the last is the newest.

    Attributes:
        epoch: Of its writer; 0 in the plain names of imports, downloads and earlier versions of orch.
    """

    step: int
    epoch: int = 0
    attempt: int = 0

    @property
    def name(self) -> str:
        """The name, such as step-00001200-e0002-a0003."""
        writer = f"-e{self.epoch:04d}-a{self.attempt:04d}" if self.epoch else ""
        return f"step-{self.step:08d}{writer}"

    @property
    def manifest(self) -> str:
        """The path of its manifest below the folder of checkpoints."""
        return f"{self.name}/{MANIFEST}"

    @classmethod
    def parse(cls, name: str) -> StepFolder | None:
        """Return the folder of that name; None for any other name, such as one with extra digits."""
        match = _FOLDER.fullmatch(name)
        if match is None:
            return None
        folder = cls(*(int(number or 0) for number in match.groups()))
        return folder if folder.name == name else None


@dataclass(frozen=True, slots=True)
class Latest:
    """The content of latest.json.

    Attributes:
        manifest: Path of the newest checkpoint's manifest; "" while there is none.
        epoch: Of the start of the run that set it; 0 from earlier versions of orch.
    """

    step: int
    manifest: str
    epoch: int = 0

    def to_json(self) -> bytes:
        """Return the file's content."""
        return json.dumps({"step": self.step, "manifest": self.manifest, "epoch": self.epoch}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Latest:
        """Parse the file's content.

        Raises:
            CorruptCheckpoint: It is not valid.
        """
        try:
            content: Any = json.loads(text)
            step = parse_count(content["step"])
            manifest = _parse_text(content.get("manifest", StepFolder(step).manifest))
            return cls(step, manifest, parse_count(content.get("epoch", 0)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(f"{LATEST} cannot be read: {shorten(error)}") from error


def run_folder(checkpoint_uri: str) -> str:
    """Return the run's folder: the one that holds `checkpoints`, or the place itself if it has another name."""
    uri = checkpoint_uri.rstrip("/")
    return uri.removesuffix("/checkpoints")


def name_description(digest: str) -> str:
    """Return the name of a description of model and tokenizer, beside the folders of steps."""
    return f"description-{digest}.json"


def order_step_folders(names: Iterable[str], latest: Latest | None) -> list[tuple[StepFolder, str]]:
    """Return the folders of checkpoints, newest first, each with the reason why it is none of this run, or "".

    Args:
        names: Of all folders beside latest.json.
        latest: The pointer; None where there is none, as in a copy of single checkpoints.
    """
    folders = [folder for name in names if (folder := StepFolder.parse(name)) is not None]
    named = latest.manifest if latest is not None else ""
    ordered = sorted(folders, key=lambda one: (one.step, one.manifest == named, *one[1:]), reverse=True)
    ahead = latest.step if latest is not None else None
    return [
        (one, f"{LATEST} never named it" if one.epoch and ahead is not None and one.step > ahead else "")
        for one in ordered
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of a checkpoint.

    Attributes:
        size: Bytes of the whole object.
        header: Bytes before the tensors' values; 0 in formats 1 and 3, which do not record it.
        sha256: Checksum of the whole object, in lower-case hex.
        file: Where it is in the folder of an own program; "" in the trainer's formats.
    """

    name: str
    size: int
    header: int
    sha256: str
    file: str = ""

    @classmethod
    def from_json(cls, content: Any, number: int = FORMAT) -> Part:
        """Parse one entry of "parts" in a manifest of format `number`.

        Raises:
            CorruptCheckpoint: A value is impossible.
            KeyError: A key is missing.
            TypeError: It is no JSON object.
        """
        part = cls(
            name=_parse_text(content["name"]),
            size=parse_count(content["size"]),
            header=parse_count(content["header"]) if number == FORMAT else 0,
            sha256=_parse_text(content["sha256"]),
            file=check_file_path(_parse_text(content["file"])) if number == PROGRAM_FORMAT else "",
        )
        name = _PART_NAMES[number]
        if not name.fullmatch(part.name) or not _SHA256.fullmatch(part.sha256) or part.header > part.size:
            raise CorruptCheckpoint(f"the manifest names an impossible part: {shorten(part.name)}")
        return part

    @property
    def writer(self) -> int:
        """The rank of the process that wrote it; 0 where the name does not say."""
        match = _PART_NAME.fullmatch(self.name)
        return int(match.group(1)) if match is not None else 0

    @property
    def target(self) -> str:
        """Where it is in a downloaded checkpoint."""
        return self.file or self.name

    def to_json(self) -> dict[str, Any]:
        """Return its entry in a manifest."""
        entry = asdict(self)
        del entry["header" if self.file else "file"]
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The index of one checkpoint; the module's docstring describes each field.

    Attributes:
        data: Where in the data the run is, as stored; None for imported weights.
        meta: What an own program gave; empty in the trainer's formats.
        signature: By the key of the run, in hex; "" where an own program had no key, and in the trainer's formats.
        description: Digest of the description of model and tokenizer; "" for none.
        folder: Name of the folder that holds it; not in the file, since a download has another one.
    """

    step: int
    run_id: str
    attempt: int
    world: int
    time: str
    weights_only: bool
    parts: tuple[Part, ...]
    data: Mapping[str, Any] | None
    config: Mapping[str, Any]
    format: int = FORMAT
    epoch: int = 0
    eval_loss: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    signature: str = ""
    description: str = ""
    folder: str

    def to_json(self) -> bytes:
        """Return the content of manifest.json."""
        content: dict[str, Any] = {
            "format": self.format,
            "step": self.step,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "epoch": self.epoch,
            "world": self.world,
            "time": self.time,
            "parts": [part.to_json() for part in self.parts],
        }
        if self.format == PROGRAM_FORMAT:
            content["meta"] = dict(self.meta)
            content |= {"signature": self.signature} if self.signature else {}
        else:
            content["weights_only"] = self.weights_only
            content["data"] = None if self.data is None else dict(self.data)
            content["eval_loss"] = self.eval_loss
            content["config"] = dict(self.config)
            content |= {"description": self.description} if self.description else {}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(
        cls, text: bytes, folder: StepFolder, formats: Collection[int] = (1, FORMAT, PROGRAM_FORMAT)
    ) -> Manifest:
        """Parse the manifest in the folder of a step.

        Args:
            text: The content of manifest.json.
            folder: The folder.
            formats: The formats that the reader takes.

        Raises:
            UnsupportedFormat: It has another format.
            CorruptCheckpoint: It is no complete manifest of that step.
        """
        try:
            content: Any = json.loads(text)
            number = _parse_format(content["format"], formats)
            own = number == PROGRAM_FORMAT
            manifest = cls(
                step=parse_count(content["step"]),
                run_id=_parse_text(content["run_id"]),
                attempt=parse_count(content["attempt"], least=1),
                world=parse_count(content["world"], least=1),
                time=_parse_text(content["time"]),
                weights_only=bool(content["weights_only"]) if number == FORMAT else False,
                parts=tuple(Part.from_json(part, number) for part in content["parts"]),
                data=None if own or content["data"] is None else dict(content["data"]),
                config={} if own else dict(content["config"]),
                format=number,
                epoch=parse_count(content.get("epoch", 0)),
                eval_loss=None if own else _parse_loss(content.get("eval_loss")),
                meta=dict(content["meta"]) if own else {},
                signature=_parse_text(content.get("signature", "")) if own else "",
                description="" if own else _parse_digest(content.get("description", "")),
                folder=folder.name,
            )
            datetime.fromisoformat(manifest.time.replace("Z", "+00:00"))  # before Python 3.11 without Z
        except CorruptCheckpoint:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(f"the manifest cannot be read: {shorten(error)}") from error
        if manifest.step != folder.step:
            raise CorruptCheckpoint(f"the manifest is of step {shorten(manifest.step)}")
        if any(len(set(names)) < len(names) for names in (manifest.names, [part.target for part in manifest.parts])):
            raise CorruptCheckpoint("the manifest names a part twice")
        if own and (blocked := find_blocked_file([part.file for part in manifest.parts])):
            raise CorruptCheckpoint(f"the manifest names {shorten(blocked)} as a file and as a folder")
        if not manifest.parts:
            raise CorruptCheckpoint("the manifest names no parts")
        if number == 1 and len(manifest.parts) != manifest.world:
            raise CorruptCheckpoint(f"the manifest has {len(manifest.parts)} parts for {manifest.world} ranks")
        return manifest

    @property
    def names(self) -> list[str]:
        """The names of all parts."""
        return [part.name for part in self.parts]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)


_PART_NAMES = {1: _PART_NAME_FORMAT_1, FORMAT: _PART_NAME, PROGRAM_FORMAT: _PART_NAME_FORMAT_3}


def check_file_path(path: str) -> str:
    """Return the path of a file of an own program's folder, which a download writes to.

    Raises:
        CorruptCheckpoint: It leads out of the folder, no disk has such a name, or the name is used otherwise.
    """
    if _FILE.fullmatch(path) is None or path == MANIFEST or path.casefold().startswith(RESERVED):
        raise CorruptCheckpoint(f"the manifest names an impossible file: {shorten(path)}")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise CorruptCheckpoint(f"the manifest names an impossible file: {shorten(path)}") from error
    if len(encoded) > _LONGEST_FILE or max(map(len, encoded.split(b"/"))) > _LONGEST_NAME:
        raise CorruptCheckpoint(f"the manifest names a file whose name is too long: {shorten(path)}")
    return path


def find_blocked_file(files: Collection[str]) -> str:
    """Return a path that is that of a file and of a folder of others, or ""; no disk has both."""
    names = set(files)
    parents = (file[: match.start()] for file in files for match in re.finditer("/", file))
    return next((parent for parent in parents if parent in names), "")


def _parse_format(value: Any, formats: Collection[int]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorruptCheckpoint(f"the manifest has the format {shorten(value)}")
    if value not in formats:
        raise UnsupportedFormat(value)
    return value


def _parse_loss(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CorruptCheckpoint(f"the manifest has the loss {shorten(value)}")
    return float(value)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise CorruptCheckpoint(f"the manifest has {shorten(value)} where text must be")
    return value


def _parse_digest(value: Any) -> str:
    """Return the digest that names a file; "" for none."""
    if value and _SHA256.fullmatch(_parse_text(value)) is None:
        raise CorruptCheckpoint(f"the manifest has {shorten(value)} where a SHA-256 must be")
    return _parse_text(value)


def parse_count(value: Any, least: int = 0) -> int:
    """Return a value that must be a whole number.

    Raises:
        CorruptCheckpoint: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise CorruptCheckpoint(f"the manifest has {shorten(value)} where a whole number from {least} must be")
    return value
