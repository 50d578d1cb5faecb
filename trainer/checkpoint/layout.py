"""Where everything of a run lies in its bucket. This is a contract: the orchestrator reads it as well.

    <bucket>/<run id>/environment.json                what the first attempt ran on; environment-0002.json the second
    <bucket>/<run id>/metrics/attempt-0001/part-00001.jsonl
    <bucket>/<run id>/checkpoints/                    = ORCH_CHECKPOINT_URI
        step-00001200/part-00003-000.safetensors          process 3's first part, in the safetensors format
        step-00001200/manifest.json                       last and create-only
        latest.json                                       replaced by compare-and-swap, forward only

step: optimizer steps that are done. At least 8 digits, more when needed. step-00000000 holds imported weights.

manifest.json, UTF-8 JSON, one object with exactly these keys:
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
latest.json: {"step": 1200, "manifest": "step-00001200/manifest.json"}

A folder without a manifest is no checkpoint. A checkpoint whose part is missing, or has another size or checksum than
its manifest says, is not used. A writer clears the manifest before it replaces a part, and the parts' deletion begins
with the manifest, so a manifest never speaks of parts that are being changed.

Tensors of the parts together: `model/<parameter>`, `optimizer/<parameter>/<moment>`, `average/<parameter>`, all F32,
each value exactly once. A tensor may lie in several parts, a region in each. A part's entry has the region's shape, and
as its key the tensor's name for a whole tensor, else name, region and whole shape:

    model/norm.weight
    model/blocks.0.ffn.up.weight[0:64,32:64]of[128,64]     rows 0 to 63, columns 32 to 63 of a 128 x 64 matrix

Format 1 (one part a rank, whole tensors, random states) was written by orch 0.1.0 and is read by that version only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from trainer.config import Scalar
from trainer.data.state import DataState
from trainer.errors import StorageError
from trainer.shape.box import Box, Piece

FORMAT = 2
MANIFEST = "manifest.json"
LATEST = "latest.json"

_PART = re.compile(r"part-(\d{5,})-\d{3,}\.safetensors")
_FOLDER = re.compile(r"step-(\d{8,})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REGION = re.compile(r"(.+)\[(\d+:\d+(?:,\d+:\d+)*)\]of\[(\d+(?:,\d+)*)\]")


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


def part_name(rank: int, index: int) -> str:
    """index: among the parts of that process."""
    return f"part-{rank:05d}-{index:03d}.safetensors"


def part_path(step: int, name: str) -> str:
    return f"{step_folder(step)}/{name}"


def manifest_path(step: int) -> str:
    return f"{step_folder(step)}/{MANIFEST}"


def run_folder(checkpoint_uri: str) -> str:
    """The run's folder: the one that holds `checkpoints`; a place of another name is the folder itself."""
    uri = checkpoint_uri.rstrip("/")
    return uri.removesuffix("/checkpoints")


def split_uri(uri: str) -> tuple[str, int | None]:
    """(place, step) of `place/step-00001200`; (place, None) without a step's folder at the end."""
    place, _, folder = uri.rstrip("/").rpartition("/")
    step = step_of(folder)
    return (uri, None) if step is None else (place, step)


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(piece: Piece) -> str:
    """The entry's key in a part."""
    if piece.box == Box.whole(piece.shape):
        return piece.name
    region = ",".join(f"{low}:{high}" for low, high in zip(piece.box.offset, piece.box.end, strict=True))
    return f"{piece.name}[{region}]of[{','.join(map(str, piece.shape))}]"


def piece_of(key: str, extent: tuple[int, ...]) -> Piece:
    """What an entry with this key and shape holds. Raises Broken."""
    match = _REGION.fullmatch(key)
    if match is None:
        return Piece(key, extent, Box.whole(extent))
    name, region, whole = match.groups()
    bounds = [bound.split(":") for bound in region.split(",")]
    shape = tuple(map(int, whole.split(",")))
    box = Box(tuple(int(low) for low, _ in bounds), tuple(int(high) - int(low) for low, high in bounds))
    if box.extent != extent or len(shape) != len(extent) or any(e > s for e, s in zip(box.end, shape, strict=True)):
        raise Broken(f"the entry {key!r} has the shape {list(extent)}")
    return Piece(name, shape, box)


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a checkpoint. size: bytes. header: bytes before the tensors' values."""

    name: str
    size: int
    header: int
    sha256: str

    @classmethod
    def from_json(cls, content: Any) -> Part:
        """Raises Broken, KeyError or TypeError."""
        part = cls(str(content["name"]), _whole(content["size"]), _whole(content["header"]), str(content["sha256"]))
        if not _PART.fullmatch(part.name) or not _SHA256.fullmatch(part.sha256) or part.header > part.size:
            raise Broken(f"the manifest names an impossible part: {part.name!r}")
        return part

    @property
    def writer(self) -> int:
        """The rank of the process that wrote it."""
        match = _PART.fullmatch(self.name)
        return int(match.group(1)) if match is not None else 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module's text."""

    step: int
    run_id: str
    attempt: int
    world: int
    time: str
    weights_only: bool
    parts: tuple[Part, ...]
    data: DataState | None
    config: Mapping[str, Scalar]

    def to_json(self) -> bytes:
        content: dict[str, Any] = {
            "format": FORMAT,
            "step": self.step,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "world": self.world,
            "time": self.time,
            "weights_only": self.weights_only,
            "parts": [asdict(part) for part in self.parts],
            "data": None if self.data is None else {**asdict(self.data), "position": self.data.position},
            "config": dict(self.config),
        }
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, step: int) -> Manifest:
        """Read the manifest of the folder of `step`. Raises Broken for anything that is not whole.

        Raises StorageError for a whole manifest of another format: passing that over would lose a run.
        """
        try:
            content: Any = json.loads(text)
            _check_format(content["format"], step)
            manifest = cls(
                step=_whole(content["step"]),
                run_id=str(content["run_id"]),
                attempt=_whole(content["attempt"]),
                world=_whole(content["world"]),
                time=str(content["time"]),
                weights_only=bool(content["weights_only"]),
                parts=tuple(Part.from_json(part) for part in content["parts"]),
                data=_data_state(content["data"]),
                config=dict(content["config"]),
            )
        except Broken:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Broken(f"the manifest cannot be read: {error!r}") from error
        if manifest.step != step:
            raise Broken(f"the manifest is of step {manifest.step}")
        if not manifest.parts:
            raise Broken("the manifest names no parts")
        return manifest

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)


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


def _check_format(found: Any, step: int) -> None:
    if found == FORMAT:
        return
    if isinstance(found, bool) or not isinstance(found, int):
        raise Broken(f"the manifest has the format {found!r}")
    reader = "only the trainer of orch 0.1.0 reads" if found < FORMAT else "a newer trainer wrote"
    raise StorageError(
        f"checkpoint {step} is of format {found}, which {reader}; this one reads format {FORMAT}: "
        "use that version, or another checkpoint.uri"
    )


def _data_state(content: Any) -> DataState | None:
    if content is None:
        return None
    fields = dict(content)
    fields.pop("position")
    return DataState(**fields)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Broken(f"the manifest has {value!r} where a whole number must be")
    return value
