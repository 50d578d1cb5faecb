"""Entries of `file_mounts`: which bucket is meant, and what hosts can mount."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.messages import escape_controls
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.model import FileMount, MountMode, MountSection, Task

_STORES = {"s3": "s3", "gcs": "gs"}
_MOUNTABLE = ("gs://", "s3://")
_LATE_UPLOAD = "it uploads after the program considers its files saved, so a lost host loses them"


def check_mode(mount: FileMount) -> None:
    """Refuse what hosts cannot mount."""
    mountable = mount.source.startswith(_MOUNTABLE)
    if mount.mode is MountMode.MOUNT_CACHED:
        step = "write mode: MOUNT, which caches on disk what was read" if mountable else "write mode: COPY"
        raise InvalidValueError("`mode: MOUNT_CACHED` is not served", _LATE_UPLOAD, step)
    if mount.mode is MountMode.MOUNT and not mountable:
        why = "hosts mount gs:// buckets with gcsfuse and s3:// buckets with Mountpoint" if mount.from_bucket else ""
        why = why or "only buckets can"
        raise InvalidValueError(f"`{mount.source}` cannot be mounted with mode {mount.mode}", why, "write mode: COPY")
    if mount.read_only and not mount.in_s3:
        why = "it is for s3:// buckets with mode MOUNT"
        raise InvalidValueError("`read_only` has no meaning for this mount", why, "remove it")


def outside_targets(tasks: Iterable[Task]) -> list[str]:
    """Return the targets that are not below the hosts' home folders, for messages."""
    targets = {mount.target for task in tasks for mount in task.file_mounts if mount.target.startswith("/")}
    return sorted(map(escape_controls, targets))


def describe_writes(mount: FileMount) -> str:
    """Return what a program may do in a bucket of S3 that is mounted for writing.

    Source: awslabs/mountpoint-s3, doc/SEMANTICS.md, "Reading and writing files" (read 2026-11-26).
    """
    return (
        f"{mount.source} at {mount.target}: files are written from beginning to end, replaced and deleted; "
        "Mountpoint refuses to append, rename or change in place. read_only: true where the program only reads"
    )


def read_mount(mount: MountSection, store: str, scheme: str) -> tuple[str, MountMode]:
    """Return source and mode of a mount that is a map, before variables are filled in.

    Args:
        mount: The mount as written.
        store: Its store, variables filled in.
        scheme: Of the bucket when the mount names no store.
    """
    source, name = mount.source, mount.name
    if not source and not name:
        raise InvalidValueError("a mount needs a source", "", "write source: s3://NAME, or name and store")
    if store and store not in _STORES:
        raise InvalidValueError(
            f"`store` cannot be `{store}`", "orch mounts buckets of s3 and gcs", "write one of them"
        )
    if name and not source and not store and not scheme:
        why = "the machines are not all in one cloud, whose buckets are meant without a store"
        raise InvalidValueError(f"the bucket `{name}` needs a store", why, "write store: gcs, or store: s3")
    if source and name:
        raise InvalidValueError(
            "a mount with `name` and `source` would make a bucket",
            "orch makes none",
            f"copy the files to the bucket yourself, then write source: {_STORES.get(store, scheme) or 's3'}://{name}"
            if "://" not in source
            else f"remove `name`: {source} is mounted as it is",
        )
    return source or f"{_STORES.get(store, scheme)}://{name}", mount.mode
