"""The one definition of a checkpoint's manifest.json: the trainer writes and reads it, orchestrator.storage reads it.

This module needs only the standard library, so that both sides can import it anywhere. The file is UTF-8 JSON, one
object with exactly these keys:

    format   2
    step     int, the same as in the folder's name
    run_id   str
    attempt  int, from 1
    world    int, processes that wrote it; each wrote any number of parts, also none
    time     str, UTC, like 2026-11-20T18:30:00Z
    weights_only  bool; true: there are `model/` tensors and no others (an import)
    parts    list of {"name": str, "size": int (bytes), "header": int (bytes before the tensors' values),
             "sha256": str (64 lower-case hex digits, of the whole part)}, at least one
    data     {"step", "position" (rows used), "seed", "batch", "seq_len", "source", "total_tokens", "vocab",
             "fingerprint"}; null in an import
    config   the run's configuration by dotted key, such as "model.dim": 128

Unknown keys are ignored. Format 1 (orch 0.1.0: one part of a free name for each process, no "header" and no
"weights_only") can be listed and downloaded; only the trainer of that version resumes from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

FORMAT = 2
"""The format that this version writes."""
MANIFEST = "manifest.json"

_PART_NAME = re.compile(r"part-(\d{5,})-\d{3,}\.safetensors")
_PART_NAME_FORMAT_1 = re.compile(r"[^/\x00-\x1f]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of a checkpoint.

    Attributes:
        size: Bytes of the whole object.
        header: Bytes before the tensors' values; 0 in format 1, which does not record it.
        sha256: Checksum of the whole object, in lower-case hex.
    """

    name: str
    size: int
    header: int
    sha256: str

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
            header=parse_count(content["header"]) if number > 1 else 0,
            sha256=_parse_text(content["sha256"]),
        )
        name = _PART_NAME if number > 1 else _PART_NAME_FORMAT_1
        if not name.fullmatch(part.name) or not _SHA256.fullmatch(part.sha256) or part.header > part.size:
            raise CorruptCheckpoint(f"the manifest names an impossible part: {part.name!r}")
        return part

    @property
    def writer(self) -> int:
        """The rank of the process that wrote it; 0 where the name does not say."""
        match = _PART_NAME.fullmatch(self.name)
        return int(match.group(1)) if match is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The index of one checkpoint; the module's docstring describes each field.

    Attributes:
        data: Where in the data the run is, as stored; None for imported weights.
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

    def to_json(self) -> bytes:
        """Return the content of manifest.json."""
        content: dict[str, Any] = {
            "format": self.format,
            "step": self.step,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "world": self.world,
            "time": self.time,
            "weights_only": self.weights_only,
            "parts": [asdict(part) for part in self.parts],
            "data": None if self.data is None else dict(self.data),
            "config": dict(self.config),
        }
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, step: int, formats: Collection[int] = (1, FORMAT)) -> Manifest:
        """Parse the manifest in the folder of a step.

        Args:
            text: The content of manifest.json.
            step: Of the folder.
            formats: The formats that the reader takes.

        Raises:
            UnsupportedFormat: It has another format.
            CorruptCheckpoint: It is no complete manifest of that step.
        """
        try:
            content: Any = json.loads(text)
            number = _parse_format(content["format"], formats)
            manifest = cls(
                step=parse_count(content["step"]),
                run_id=_parse_text(content["run_id"]),
                attempt=parse_count(content["attempt"], least=1),
                world=parse_count(content["world"], least=1),
                time=_parse_text(content["time"]),
                weights_only=bool(content["weights_only"]) if number > 1 else False,
                parts=tuple(Part.from_json(part, number) for part in content["parts"]),
                data=None if content["data"] is None else dict(content["data"]),
                config=dict(content["config"]),
                format=number,
            )
            datetime.fromisoformat(manifest.time)
        except CorruptCheckpoint:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(f"the manifest cannot be read: {error!r}") from error
        if manifest.step != step:
            raise CorruptCheckpoint(f"the manifest is of step {manifest.step}")
        if not manifest.parts:
            raise CorruptCheckpoint("the manifest names no parts")
        if number == 1 and len(manifest.parts) != manifest.world:
            raise CorruptCheckpoint(f"the manifest has {len(manifest.parts)} parts for {manifest.world} ranks")
        return manifest

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)


def _parse_format(value: Any, formats: Collection[int]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorruptCheckpoint(f"the manifest has the format {value!r}")
    if value not in formats:
        raise UnsupportedFormat(value)
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise CorruptCheckpoint(f"the manifest has {value!r} where text must be")
    return value


def parse_count(value: Any, least: int = 0) -> int:
    """Return a value that must be a whole number.

    Raises:
        CorruptCheckpoint: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CorruptCheckpoint(f"the manifest has {value!r} where a whole number from {least} must be")
    return value
