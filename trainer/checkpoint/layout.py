"""Where everything of a run lies in its bucket. This is a contract: the orchestrator reads it as well.

    <bucket>/<run id>/environment.json                what the first attempt ran on; environment-0002.json the second
    <bucket>/<run id>/metrics/attempt-0001/part-00001.jsonl
    <bucket>/<run id>/checkpoints/                    = ORCH_CHECKPOINT_URI
        step-00001200/part-00000-of-00004.safetensors     one for each rank, in the safetensors format
        step-00001200/manifest.json                       last and create-only
        latest.json                                       replaced by compare-and-swap, forward only

step: optimizer steps that are done; step-00000000 does not exist. At least 8 digits, more when needed.

manifest.json, UTF-8 JSON, one object with exactly these keys:
    format   1
    step     int, the same as in the folder's name
    run_id   str
    attempt  int, from 1
    world    int, ranks that wrote it = number of parts
    time     str, UTC, like 2026-11-20T18:30:00Z
    parts    list of {"name": str, "size": int (bytes), "sha256": str (64 lower-case hex digits)}, in rank order
    data     {"step", "position" (rows used), "seed", "batch", "seq_len", "source", "total_bytes", "fingerprint"}
    config   the run's configuration by dotted key, such as "model.dim": 128
latest.json: {"step": 1200, "manifest": "step-00001200/manifest.json"}

A folder without a manifest is no checkpoint. A checkpoint whose part is missing, or has another size or
checksum than its manifest says, is not used. A writer clears the manifest before it replaces a part, and the
parts' deletion begins with the manifest, so a manifest never speaks of parts that are being changed.

Tensors of the parts together: `model/<parameter>`, `optimizer/<parameter>/<state>`, each exactly once, and
`random/<rank>/<generator>` (uint8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from trainer.config import Scalar
from trainer.data import DataState

FORMAT = 1
MANIFEST = "manifest.json"
LATEST = "latest.json"

_PART = re.compile(r"part-\d{5,}-of-\d{5,}\.safetensors")
_FOLDER = re.compile(r"step-(\d{8,})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Broken(ValueError):
    """A manifest or a part is not what it must be; the text says how."""


def step_folder(step: int) -> str:
    return f"step-{step:08d}"


def step_of(folder: str) -> int | None:
    """The step of a folder's name; None for any other name, such as one with needless digits."""
    match = _FOLDER.fullmatch(folder)
    if match is None or step_folder(int(match.group(1))) != folder:
        return None
    return int(match.group(1))


def part_name(rank: int, world: int) -> str:
    return f"part-{rank:05d}-of-{world:05d}.safetensors"


def manifest_path(step: int) -> str:
    return f"{step_folder(step)}/{MANIFEST}"


def run_folder(checkpoint_uri: str) -> str:
    """The run's folder: the one that holds `checkpoints`; a place of another name is the folder itself."""
    uri = checkpoint_uri.rstrip("/")
    return uri.removesuffix("/checkpoints")


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a checkpoint. size: bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module's text."""

    step: int
    run_id: str
    attempt: int
    world: int
    time: str
    parts: tuple[Part, ...]
    data: DataState
    config: Mapping[str, Scalar]

    def to_json(self) -> bytes:
        content: dict[str, Any] = {
            "format": FORMAT,
            "step": self.step,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "world": self.world,
            "time": self.time,
            "parts": [asdict(part) for part in self.parts],
            "data": {**asdict(self.data), "position": self.data.position},
            "config": dict(self.config),
        }
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, step: int) -> Manifest:
        """Read the manifest of the folder of `step`. Raises Broken for anything that is not whole."""
        try:
            content: Any = json.loads(text)
            if content["format"] != FORMAT:
                raise Broken(f"the manifest is not of format {FORMAT}")
            data: dict[str, Any] = dict(content["data"])
            data.pop("position")
            manifest = cls(
                step=_whole(content["step"]),
                run_id=str(content["run_id"]),
                attempt=_whole(content["attempt"]),
                world=_whole(content["world"]),
                time=str(content["time"]),
                parts=tuple(_part(part) for part in content["parts"]),
                data=DataState(**data),
                config=dict(content["config"]),
            )
        except Broken:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Broken(f"the manifest cannot be read: {error!r}") from error
        if manifest.step != step:
            raise Broken(f"the manifest is of step {manifest.step}")
        if len(manifest.parts) != manifest.world:
            raise Broken(f"the manifest has {len(manifest.parts)} parts for {manifest.world} ranks")
        return manifest


@dataclass(frozen=True, slots=True)
class Latest:
    """What latest.json says."""

    step: int

    def to_json(self) -> bytes:
        return json.dumps({"step": self.step, "manifest": manifest_path(self.step)}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Latest:
        """Raises Broken."""
        try:
            return cls(_whole(json.loads(text)["step"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Broken(f"{LATEST} cannot be read: {error!r}") from error


def _part(content: Any) -> Part:
    part = Part(str(content["name"]), _whole(content["size"]), str(content["sha256"]))
    if not _PART.fullmatch(part.name) or not _SHA256.fullmatch(part.sha256):
        raise Broken(f"the manifest names an impossible part: {part.name!r}")
    return part


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Broken(f"the manifest has {value!r} where a whole number must be")
    return value
