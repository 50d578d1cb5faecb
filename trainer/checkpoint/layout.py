"""Where each file of a run is in its bucket. This is a contract: the orchestrator reads it as well.

    <bucket>/<run id>/environment.json                what the first attempt ran on; environment-0002.json the second
    <bucket>/<run id>/metrics/attempt-0001/part-00001.jsonl
    <bucket>/<run id>/checkpoints/                    = ORCH_CHECKPOINT_URI
        step-00001200-e0002-a0003/part-00003-000.safetensors  process 3's first part, in the safetensors format
        step-00001200-e0002-a0003/manifest.json               last and create-only
        latest.json                                       replaced by compare-and-swap, forward only
        description-<sha256>.json                         of model and tokenizer, before the first manifest
    <bucket>/<run id>/epoch.json, beat.json           who drives the run: see trainer/checkpoint/epoch.py

step: optimizer steps that are done. At least 8 digits, more when needed. step-00000000 holds imported weights. Epoch
and attempt of the writer follow it, so no two starts of a run write to one folder. Imports, downloads and earlier
versions of orch have the plain step-00001200; both are read.

manifest.json, latest.json: see trainer/checkpoint/manifest.py, the one definition that trainer and orchestrator share.

A folder without a manifest is no checkpoint. A checkpoint whose part is missing, or has another size or checksum than
its manifest says, is not used. Nothing is replaced: the parts' deletion begins with the manifest, so a manifest never
names parts that are being changed.

Tensors of the parts together: `model/<parameter>`, `optimizer/<parameter>/<moment>`, `average/<parameter>`, all F32,
each value exactly once. A tensor may be in several parts, a region in each. A part's entry has the region's shape, and
as its key the tensor's name for a whole tensor, else name, region and whole shape:

    model/norm.weight
    model/blocks.0.ffn.up.weight[0:64,32:64]of[128,64]     rows 0 to 63, columns 32 to 63 of a 128 x 64 matrix

Format 1 (one part a rank, whole tensors, random states) was written by orch 0.1.0 and is read by that version only.
"""

from __future__ import annotations

import re
from typing import Any

from trainer.checkpoint.epoch import shorten
from trainer.checkpoint.manifest import (
    FORMAT,
    PROGRAM_FORMAT,
    CorruptCheckpoint,
    Manifest,
    StepFolder,
    UnsupportedFormat,
    parse_count,
)
from trainer.checkpoint.manifest import run_folder as run_folder  # noqa: PLC0414  # it is a place of a run as well
from trainer.data.state import DataState
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion

_REGION = re.compile(r"(.+)\[(\d+:\d+(?:,\d+:\d+)*)\]of\[(\d+(?:,\d+)*)\]")


def part_name(rank: int, index: int) -> str:
    """Return the name of a part.

    Args:
        rank: Of the process that writes it.
        index: Among the parts of that process.
    """
    return f"part-{rank:05d}-{index:03d}.safetensors"


def split_uri(uri: str) -> tuple[str, int | None]:
    """Split `place/step-00001200` into place and step; the step is None where no step's folder is at the end."""
    place, _, folder = uri.rstrip("/").rpartition("/")
    found = StepFolder.parse(folder)
    return (uri, None) if found is None else (place, found.step)


def format_region_key(piece: TensorRegion) -> str:
    """Return the key of a region's entry in a part."""
    if piece.box == Box.whole(piece.shape):
        return piece.name
    region = ",".join(f"{low}:{high}" for low, high in zip(piece.box.offset, piece.box.end, strict=True))
    return f"{piece.name}[{region}]of[{','.join(map(str, piece.shape))}]"


def parse_region_key(key: str, extent: tuple[int, ...]) -> TensorRegion:
    """Return the region that an entry with this key and shape holds.

    Raises:
        CorruptCheckpoint: They do not match.
    """
    match = _REGION.fullmatch(key)
    if match is None:
        return TensorRegion(key, extent, Box.whole(extent))
    name, region, whole = match.groups()
    bounds = [bound.split(":") for bound in region.split(",")]
    shape = tuple(map(int, whole.split(",")))
    box = Box(tuple(int(low) for low, _ in bounds), tuple(int(high) - int(low) for low, high in bounds))
    if box.extent != extent or len(shape) != len(extent) or any(e > s for e, s in zip(box.end, shape, strict=True)):
        raise CorruptCheckpoint(f"the entry {key!r} has the shape {list(extent)}")
    return TensorRegion(name, shape, box)


def parse_manifest(text: bytes, folder: StepFolder) -> Manifest:
    """Parse a manifest from which this trainer can resume.

    Raises:
        CorruptCheckpoint: It is no complete manifest of that step.
        StorageError: It has another format; skipping it would lose a run.
    """
    try:
        manifest = Manifest.from_json(text, folder, (FORMAT,))
        read_data_state(manifest)
    except UnsupportedFormat as error:
        reader = "only the trainer of orch 0.1.0 reads" if error.found < FORMAT else "a newer trainer wrote"
        if error.found == PROGRAM_FORMAT:
            reader = "an own program wrote (orch_run)"
        raise StorageError(
            f"checkpoint {folder.step} is of format {error.found}, which {reader}; this one reads format {FORMAT}: "
            "use that version, or another checkpoint.uri"
        ) from error
    except (KeyError, TypeError) as error:
        raise CorruptCheckpoint(f"the manifest cannot be read: {error!r}") from error
    return manifest


def read_data_state(manifest: Manifest) -> DataState | None:
    """Return where in the data the checkpoint is; None for imported weights."""
    if manifest.data is None:
        return None
    fields = dict(manifest.data)
    sources: Any = fields.pop("sources", [])
    try:
        parts = [dict[str, Any](source) for source in sources]
    except (TypeError, ValueError) as error:
        raise CorruptCheckpoint(f"the manifest has {shorten(sources)} where the sources must be") from error
    for content in (fields, *parts):
        for name, value in content.items():
            if name not in ("source", "fingerprint"):
                parse_count(value)
            elif not isinstance(value, str):
                raise CorruptCheckpoint(f"the manifest has {shorten(value)} where the {name} of the data must be")
    return DataState.from_json(manifest.data)


def format_data_state(data: DataState) -> dict[str, Any]:
    """Return the manifest's form of a data state."""
    return data.to_json()
