"""The folders that stand for buckets in a rehearsal, which neither reads nor writes a real one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.render.mounts import bucket_path
from orchestrator.task.model import MountMode, Task

OPTION = "--bucket-folder"
_SCHEMES = ("gs", "s3")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFolder:
    """A folder or file of the user's, whose copy stands for what a bucket holds at `source`."""

    source: str
    folder: Path


def parse_bucket_folder(text: str) -> BucketFolder:
    """Parse `gs://bucket/data=./sample`.

    Raises:
        UserError: The text has another form, or there is no such folder.
    """
    source, equals, path = text.partition("=")
    scheme, separator, rest = source.rstrip("/").partition("://")
    if not equals or not path or not separator or scheme not in _SCHEMES or not rest or ".." in rest.split("/"):
        raise UserError(f"{OPTION} {text} is not understood", next_step=f"write {OPTION} gs://BUCKET/data=./sample")
    folder = Path(path).expanduser().absolute()
    if not folder.exists():
        raise UserError(f"{OPTION} {text}: there is no {path}", next_step=f"ls -d {path}")
    return BucketFolder(source=source.rstrip("/"), folder=folder)


def fill_buckets(task: Task, folders: Sequence[BucketFolder], place: Path) -> tuple[str, ...]:
    """Make a folder for each bucket path that the task mounts, and return notes on those that are empty.

    Args:
        task: The task.
        folders: What stands for which bucket.
        place: The folder of all buckets, which the simulated cloud states for its hosts.

    Raises:
        UserError: The task copies a bucket for which no folder is given, or a folder stands for nothing in the task.
    """
    mounts = [one for one in task.file_mounts if one.source.partition("://")[0] in _SCHEMES]
    for given in folders:
        if not any(_is_within(one.source, given.source) or _is_within(given.source, one.source) for one in mounts):
            sources = ", ".join(one.source for one in mounts[:3]) or "no bucket"
            raise UserError(
                f"{OPTION} {given.source}: the task does not mount it", f"it mounts {sources}", "name one of those"
            )
        _copy(given.folder, bucket_path(place, given.source))
    notes: list[str] = []
    for mount in mounts:
        path = bucket_path(place, mount.source)
        if path.exists():
            continue
        fill = f"{OPTION} {mount.source.rstrip('/')}=./FOLDER"
        if mount.mode is MountMode.COPY:
            what = f"the rehearsal has no files to copy from {mount.source} to {mount.target}"
            raise UserError(what, "it does not read real buckets", f"give it a folder with a sample: {fill}")
        path.mkdir(parents=True)
        notes.append(f"{mount.target} is an empty folder here, not {mount.source}; {fill}   fills it")
    return tuple(notes)


def _is_within(address: str, folder: str) -> bool:
    return f"{address.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _copy(source: Path, target: Path) -> None:
    """Copy a folder or a file: the program may write to it, and the original stays as it is."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
    except (OSError, shutil.Error) as error:
        raise UserError(f"{source} cannot be copied for the rehearsal", str(error), "df -h ${TMPDIR:-/tmp}") from error
