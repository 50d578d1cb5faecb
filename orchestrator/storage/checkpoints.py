"""The checkpoints that a trainer leaves in a bucket, and the task of a run.

Layout, the same on every kind of bucket:

    <run id>/task.json                               the task that the run was started with
    <run id>/checkpoints/step-00001200-e0002-a0003/part-00000-000.safetensors …
    <run id>/checkpoints/step-00001200-e0002-a0003/manifest.json     written last: sizes and SHA-256 of the parts
    <run id>/checkpoints/latest.json        {"step": 1200, "manifest": …, "epoch": 2}
    <run id>/checkpoints/description-<sha256>.json    of model and tokenizer; manifests name its digest

A step without a manifest is unfinished and ignored, and so is one beyond `latest.json`, which a writer left that was
overtaken. The newest complete checkpoint is found by examining the steps up to there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.errors import NotFoundError, StorageError
from orchestrator.messages import to_one_line
from orchestrator.storage.address import check_key
from orchestrator.storage.bucket import Bucket
from trainer.checkpoint.manifest import (
    LATEST,
    MANIFEST,
    MOST_BYTES,
    CorruptCheckpoint,
    Latest,
    Manifest,
    StepFolder,
    order_step_folders,
)
from trainer.checkpoint.manifest import Part as Part  # noqa: PLC0414  # re-exported for the engine
from trainer.checkpoint.manifest import name_description as name_description  # noqa: PLC0414  # likewise

Verify: TypeAlias = Literal["sizes", "checksums"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: its folder in the bucket.
        uri: the URI of that folder, for ORCH_RESUME_FROM.
    """

    run_id: str
    step: int
    path: str
    uri: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """The bytes of all parts."""
        return self.manifest.size


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that cannot be resumed from, with the reason."""

    step: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest complete checkpoint, if any, and the newer steps that were skipped, newest first."""

    checkpoint: Checkpoint | None
    skipped: tuple[Skipped, ...]


def find_newest_complete(bucket: Bucket, run_id: str, verify: Verify = "sizes") -> Newest:
    """Find the newest complete checkpoint, from the newest step backwards.

    Args:
        bucket: the bucket.
        run_id: the run.
        verify: "sizes" lists the parts; "checksums" also reads every byte of them.
    """
    skipped: list[Skipped] = []
    for found in iterate_checkpoints(bucket, run_id, verify):
        if isinstance(found, Checkpoint):
            return Newest(found, tuple(skipped))
        skipped.append(found)
    return Newest(None, tuple(skipped))


def list_checkpoints(bucket: Bucket, run_id: str, verify: Verify = "sizes") -> list[Checkpoint | Skipped]:
    """Return every step of a run, newest first, complete or not."""
    return list(iterate_checkpoints(bucket, run_id, verify))


def iterate_checkpoints(bucket: Bucket, run_id: str, verify: Verify = "sizes") -> Iterator[Checkpoint | Skipped]:
    """Yield every step of a run, newest first, complete or not; each is looked at when it is asked for."""
    for folder, refusal in _steps(bucket, run_id):
        yield _examine(bucket, run_id, folder, refusal, verify)


def list_runs(bucket: Bucket) -> list[str]:
    """Return the run ids in a bucket, sorted: the folders with a task or checkpoints."""
    return [folder for folder in bucket.list_dir().folders if _is_run(bucket, folder)]


def put_task(bucket: Bucket, run_id: str, task: bytes) -> bool:
    """Store the task of a run. Return False if the run has one already, which is never overwritten."""
    return bucket.put_if_absent(_task_path(run_id), task)


def get_task(bucket: Bucket, run_id: str, most: int) -> bytes:
    """Return the task that `put_task` stored, or whatever is there now.

    Raises NotFoundError for an unknown run, StorageError for more than `most` bytes.
    """
    try:
        return bucket.get_bounded(_task_path(run_id), most)
    except NotFoundError as error:
        if bucket.list_dir().folders:
            step = f"list the runs: orch storage ls {bucket.uri}"
            raise NotFoundError(f"there is no run {run_id} in {bucket.uri}", error.why, step) from error
        raise


def read_same_manifest(bucket: Bucket, checkpoint: Checkpoint) -> bytes:
    """Return the text of the manifest by which the checkpoint was chosen.

    Raises StorageError if it has changed since: its parts were compared with the earlier one.
    """
    text, folder = _read_manifest(bucket, checkpoint.path), StepFolder.parse(checkpoint.manifest.folder)
    try:
        same = folder is not None and Manifest.from_json(text, folder) == checkpoint.manifest
    except CorruptCheckpoint:
        same = False
    if not same:
        raise StorageError(
            f"{bucket.uri_of(checkpoint.path)}/{MANIFEST} changed while the checkpoint was read",
            "a manifest is written once and never changed, so another program writes there",
            "find out which one, then the same command again",
        )
    return text


def read_description(bucket: Bucket, checkpoint: Checkpoint) -> bytes | None:
    """Return the description of model and tokenizer that the manifest names; None for none, or for a damaged one.

    A checkpoint is complete without it: the trainer's export reports what is missing.
    """
    digest = checkpoint.manifest.description
    if not digest:
        return None
    path = f"{checkpoints_path(checkpoint.run_id)}/{name_description(digest)}"
    try:
        text = bucket.get_bounded(path, MOST_BYTES)
    except (NotFoundError, StorageError):
        return None
    return text if hashlib.sha256(text).hexdigest() == digest else None


def checkpoints_path(run_id: str) -> str:
    """Return the folder of a run's checkpoints, for ORCH_CHECKPOINT_URI."""
    return check_key(f"{run_id}/checkpoints")


def _read_manifest(bucket: Bucket, path: str) -> bytes:
    return bucket.get_bounded(f"{path}/{MANIFEST}", MOST_BYTES)


def _task_path(run_id: str) -> str:
    return f"{run_id}/task.json"


def _is_run(bucket: Bucket, folder: str) -> bool:
    inside = bucket.list_dir(folder)
    has_task = any(info.path == _task_path(folder) for info in inside.objects)
    return has_task or f"{folder}/checkpoints" in inside.folders


def _steps(bucket: Bucket, run_id: str) -> list[tuple[StepFolder, str]]:
    """Return every step folder, newest first, with the reason why it is not the run's, or ""."""
    place = checkpoints_path(run_id)
    try:
        latest = Latest.from_json(bucket.get_bounded(f"{place}/{LATEST}", MOST_BYTES))
    except (NotFoundError, CorruptCheckpoint):
        latest = None  # each complete checkpoint counts
    return order_step_folders((path.rsplit("/", 1)[-1] for path in bucket.list_dir(place).folders), latest)


def _examine(bucket: Bucket, run_id: str, folder: StepFolder, refusal: str, verify: Verify) -> Checkpoint | Skipped:
    step, path = folder.step, f"{checkpoints_path(run_id)}/{folder.name}"
    if refusal:
        return Skipped(step, path, refusal)
    sizes = {info.path.rsplit("/", 1)[-1]: info.size for info in bucket.list_dir(path).objects}
    if MANIFEST not in sizes:
        return Skipped(step, path, f"unfinished: it has no {MANIFEST}")
    if sizes[MANIFEST] > MOST_BYTES:
        return Skipped(step, path, f"its {MANIFEST} has {sizes[MANIFEST]:,} bytes, which no writer of orch makes")
    try:
        manifest = Manifest.from_json(_read_manifest(bucket, path), folder)
    except (CorruptCheckpoint, NotFoundError) as error:
        return Skipped(step, path, to_one_line(str(error), 200))
    if manifest.run_id != run_id:
        return Skipped(step, path, f"the manifest is of run {to_one_line(manifest.run_id, 80)}")
    for part in manifest.parts:
        reason = _find_damage(bucket, path, part, sizes.get(part.name), verify)
        if reason:
            return Skipped(step, path, reason)
    return Checkpoint(run_id=run_id, step=step, path=path, uri=bucket.uri_of(path), manifest=manifest)


def _find_damage(bucket: Bucket, path: str, part: Part, size: int | None, verify: Verify) -> str:
    """Return what is wrong with a part, or ""."""
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
