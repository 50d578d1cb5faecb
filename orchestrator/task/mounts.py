"""Entries of `file_mounts`: which bucket is meant, and what hosts can mount."""

from __future__ import annotations

from orchestrator.task.errors import InvalidValueError
from orchestrator.task.model import FileMount, MountMode, MountSection

_STORES = {"s3": "s3", "gcs": "gs"}
_MOUNTABLE = ("gs://", "s3://")
_LATE_UPLOAD = "it uploads after the program considers its files saved, so a lost host loses them"


def check_mode(mount: FileMount, *, read_only: bool) -> None:
    """Refuse what hosts cannot mount, and s3:// buckets that the program may write to.

    In the dialect such a folder is writable, and a checkpoint that is written there would fail at the first save.
    """
    mountable = mount.source.startswith(_MOUNTABLE)
    if mount.mode is MountMode.MOUNT_CACHED:
        step = "write mode: MOUNT, which caches on disk what was read" if mountable else "write mode: COPY"
        raise InvalidValueError("`mode: MOUNT_CACHED` is not served", _LATE_UPLOAD, step)
    if mount.mode is MountMode.MOUNT and not mountable:
        why = "hosts mount gs:// buckets with gcsfuse and s3:// buckets with Mountpoint" if mount.from_bucket else ""
        why = why or "only buckets can"
        raise InvalidValueError(f"`{mount.source}` cannot be mounted with mode {mount.mode}", why, "write mode: COPY")
    needed = mount.mode is MountMode.MOUNT and mount.source.startswith("s3://")
    if needed and not read_only:
        step = "add read_only: true if the program only reads; else mode: COPY, a gs:// bucket, or checkpoint.bucket"
        what = f"`{mount.source}` cannot be mounted for writing"
        raise InvalidValueError(what, "orch mounts s3:// buckets read only", step)
    if read_only and not needed:
        why = "it is for s3:// buckets with mode MOUNT"
        raise InvalidValueError("`read_only` has no meaning for this mount", why, "remove it")


def read_mount(mount: MountSection, store: str, scheme: str) -> tuple[str, MountMode]:
    """Return source and mode of a mount that is a map, before variables are filled in.

    Args:
        mount: The mount as written.
        store: Its store, variables filled in.
        scheme: Of the bucket when the mount names no store.
    """
    if not mount.persistent:
        raise InvalidValueError(
            "a mount with `persistent: false` is not served", "orch never deletes a bucket", "remove it"
        )
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
            "copy the files to the bucket yourself, then write source: s3://NAME",
        )
    return source or f"{_STORES.get(store, scheme)}://{name}", mount.mode
