"""Copies of what a launch sends, so that a later attempt gets the same files whatever happens to the originals.

There is one folder per content below `<state>/snapshots`, named by the tree's digest.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import StorageError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder
from orchestrator.remote.tree import Tree, read_snapshot

CONTENT = "content"
STALE = 24 * 3600.0  # seconds after which a copy that no record names is unused


def keep_snapshot(where: Paths, tree: Tree) -> Path:
    """Copy the tree unless its content is kept already, and return the path to send it from.

    Raises:
        StorageError: The copy cannot be written, or the tree changed meanwhile.
    """
    folder = snapshots_folder(where) / tree.digest
    name = CONTENT if tree.root.is_dir() else tree.root.name
    if folder.exists():
        with contextlib.suppress(FileNotFoundError):  # deleted at this moment: copied again below
            os.utime(folder)  # it is used: see drop_unused_snapshots
            return folder / name
    fresh = snapshots_folder(where) / f".{tree.digest[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        _copy(tree, fresh / name)
        _check(tree, fresh / name)
        fresh.rename(folder)
    except StorageError:
        shutil.rmtree(fresh, ignore_errors=True)  # it must not be taken for a complete copy
        raise
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)  # an incomplete copy is useless; the error is raised below
        if not folder.exists():  # else another command was faster
            raise StorageError(
                f"{tree.root} cannot be kept for later attempts",
                f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
                "free disk space, or launch without --detach",
            ) from error
    return folder / name


def drop_unused_snapshots(where: Paths, used: Iterable[str], *, older: float = STALE) -> None:
    """Delete the snapshots whose digest is not in `used`, and incomplete copies.

    Args:
        where: The folders of this installation.
        used: Digests that jobs still need.
        older: Seconds; a younger snapshot may belong to a launch that is not on record yet.
    """
    digests = set(used)
    for folder in snapshots_folder(where).glob("*"):
        if folder.name not in digests and _age(folder) >= older:
            shutil.rmtree(folder, ignore_errors=True)  # the rest is deleted the next time


def is_snapshot(where: Paths, source: str) -> bool:
    """Return whether `source` is inside the snapshot folder."""
    return Path(source).is_relative_to(snapshots_folder(where))


def snapshots_folder(where: Paths) -> Path:
    """Return the folder with the snapshots of this computer."""
    return where.state / "snapshots"


def _age(folder: Path) -> float:
    """Return the seconds since the folder was last used, or -1 when it was deleted meanwhile."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return -1.0


def _check(tree: Tree, copy: Path) -> None:
    """Raise StorageError when a file was edited between its hashing and its copying; one that only grew is cut."""
    kept = read_snapshot(copy)
    if kept.digest != tree.digest:
        contents = {file.sha256 for file in kept.files}
        edited = next((tree.source(file) for file in tree.files if file.sha256 not in contents), tree.root)
        raise StorageError(
            f"{edited} changed while it was copied for later attempts",
            "hosts would get other files than the planned ones",
            "run the same command again",
        )


def _copy(tree: Tree, target: Path) -> None:
    make_private_folder(target.parent)
    if not tree.root.is_dir():
        _copy_file(tree.root, target, tree.files[0].size)
        target.chmod(tree.files[0].mode & 0o700)  # hosts get their modes from the tree that is read again
        return
    make_private_folder(target)
    for file in tree.files:
        place = target / file.path
        make_private_folder(place.parent)
        if file.link is not None:
            place.symlink_to(file.link)
        else:
            _copy_file(tree.source(file), place, file.size)
            place.chmod(file.mode & 0o700)


def _copy_file(source: Path, place: Path, size: int) -> None:
    """Copy what the file held when it had this size: a log may have grown since."""
    shutil.copyfile(source, place)
    if place.stat().st_size > size:
        os.truncate(place, size)
