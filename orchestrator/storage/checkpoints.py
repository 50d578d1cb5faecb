"""Reading the checkpoints that a trainer leaves in a bucket, and the task that belongs to a run.

Layout, the same on every kind of bucket:

    <run id>/task.json                               what the run was started with
    <run id>/checkpoints/step-00001200/part-00000-000.safetensors …
    <run id>/checkpoints/step-00001200/manifest.json     written last: sizes and SHA-256 of the parts
    <run id>/checkpoints/latest.json        {"step": 1200, "manifest": "step-00001200/manifest.json"}

A step without a manifest is unfinished and does not count. `latest.json` is a hint for people and programs that
want one answer quickly; what is newest and whole is found by looking.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from orchestrator.errors import NotFoundError
from orchestrator.storage.address import check_key
from orchestrator.storage.bucket import Bucket

Verify: TypeAlias = Literal["sizes", "checksums"]


class Part(BaseModel):
    """One file of a checkpoint. size: bytes. sha256: hex."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[^/\x00-\x1f]+$")
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """`manifest.json`. world: processes that wrote it; in format 1 one part each, in format 2 any number of parts.
    time: when, in UTC. data: None for imported weights. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1, 2]
    step: int = Field(ge=0)
    run_id: str
    attempt: int = Field(ge=0)
    world: int = Field(ge=1)
    time: datetime
    parts: tuple[Part, ...] = Field(min_length=1)
    data: dict[str, JsonValue] | None = Field(default_factory=dict)
    config: dict[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint. path: its folder in the bucket. uri: the same with the bucket, for ORCH_RESUME_FROM."""

    run_id: str
    step: int
    path: str
    uri: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.manifest.parts)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that cannot be resumed from, and why."""

    step: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest whole checkpoint, if any, and the newer steps that were passed over, newest first."""

    checkpoint: Checkpoint | None
    skipped: tuple[Skipped, ...]


def newest_complete(bucket: Bucket, run_id: str, verify: Verify = "sizes") -> Newest:
    """Look from the newest step backwards until one is whole.

    verify: "sizes" lists the parts; "checksums" also reads every byte of them. Raises what Bucket methods raise.
    """
    skipped: list[Skipped] = []
    for step, path in _steps(bucket, run_id):
        found = _examine(bucket, run_id, step, path, verify)
        if isinstance(found, Checkpoint):
            return Newest(found, tuple(skipped))
        skipped.append(found)
    return Newest(None, tuple(skipped))


def list_checkpoints(bucket: Bucket, run_id: str, verify: Verify = "sizes") -> list[Checkpoint | Skipped]:
    """Every step of a run, newest first, whole or not."""
    return [_examine(bucket, run_id, step, path, verify) for step, path in _steps(bucket, run_id)]


def list_runs(bucket: Bucket) -> list[str]:
    """The run ids in a bucket, sorted: folders that hold a task or checkpoints."""
    return [folder for folder in bucket.list_dir().folders if _is_run(bucket, folder)]


def put_task(bucket: Bucket, run_id: str, task: bytes) -> bool:
    """Keep what a run was started with. False if the run has a task already; it is never overwritten."""
    return bucket.put_if_absent(_task_path(run_id), task)


def get_task(bucket: Bucket, run_id: str) -> bytes:
    """What `put_task` kept. Raises NotFoundError for an unknown run."""
    try:
        return bucket.get(_task_path(run_id))
    except NotFoundError as error:
        if bucket.list_dir().folders:
            step = f"list the runs: orch storage ls {bucket.uri}"
            raise NotFoundError(f"there is no run {run_id} in {bucket.uri}", error.why, step) from error
        raise


def checkpoints_path(run_id: str) -> str:
    """The folder that becomes ORCH_CHECKPOINT_URI."""
    return check_key(f"{run_id}/checkpoints")


def _task_path(run_id: str) -> str:
    return f"{run_id}/task.json"


def _is_run(bucket: Bucket, folder: str) -> bool:
    inside = bucket.list_dir(folder)
    has_task = any(info.path == _task_path(folder) for info in inside.objects)
    return has_task or f"{folder}/checkpoints" in inside.folders


def _steps(bucket: Bucket, run_id: str) -> Iterator[tuple[int, str]]:
    """(step, folder) of every step folder, newest first."""
    found: list[tuple[int, str]] = []
    for folder in bucket.list_dir(checkpoints_path(run_id)).folders:
        match = re.fullmatch(r"step-([0-9]{8}|[1-9][0-9]{8,})", folder.rsplit("/", 1)[-1])
        if match:
            found.append((int(match.group(1)), folder))
    yield from sorted(found, reverse=True)


def _examine(bucket: Bucket, run_id: str, step: int, path: str, verify: Verify) -> Checkpoint | Skipped:
    sizes = {info.path.rsplit("/", 1)[-1]: info.size for info in bucket.list_dir(path).objects}
    if "manifest.json" not in sizes:
        return Skipped(step, path, "unfinished: it has no manifest.json")
    try:
        manifest = Manifest.model_validate(json.loads(bucket.get(f"{path}/manifest.json")))
    except (ValueError, ValidationError, NotFoundError) as error:
        return Skipped(step, path, f"its manifest cannot be read: {_short(error)}")
    if (manifest.step, manifest.run_id) != (step, run_id):
        return Skipped(step, path, f"its manifest is of run {manifest.run_id}, step {manifest.step}")
    if manifest.format == 1 and len(manifest.parts) != manifest.world:
        return Skipped(step, path, f"its manifest has {len(manifest.parts)} parts for {manifest.world} ranks")
    for part in manifest.parts:
        reason = _wrong(bucket, path, part, sizes.get(part.name), verify)
        if reason:
            return Skipped(step, path, reason)
    return Checkpoint(run_id, step, path, bucket.uri_of(path), manifest)


def _wrong(bucket: Bucket, path: str, part: Part, size: int | None, verify: Verify) -> str:
    """What is wrong with a part; "" if nothing is."""
    if size is None:
        return f"{part.name} is missing"
    if size != part.size:
        return f"{part.name} has {size} bytes, not {part.size}"
    if verify == "sizes":
        return ""
    digest = hashlib.sha256()
    try:
        for chunk in bucket.read_chunks(f"{path}/{part.name}"):
            digest.update(chunk)
    except NotFoundError:
        return f"{part.name} is missing"
    return "" if digest.hexdigest() == part.sha256 else f"{part.name} is damaged: its SHA-256 differs"


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).splitlines()[0][:200]
