"""Copies of what a launch sends, so that a later attempt gets the same files, whatever happens to the originals.

One folder per content under <state>/snapshots, named by the tree's digest.
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
from orchestrator.remote.tree import Tree, read_snapshot

CONTENT = "content"
STALE = 24 * 3600.0  # seconds after which a copy that no record names is nobody's


def keep(where: Paths, tree: Tree) -> Path:
    """Copy the tree, unless its content is kept already; the path to send from. Raises StorageError."""
    folder = _root(where) / tree.digest
    name = CONTENT if tree.root.is_dir() else tree.root.name
    if folder.exists():
        with contextlib.suppress(FileNotFoundError):  # dropped this very moment: copied anew below
            os.utime(folder)  # it is wanted: see drop_unused
            return folder / name
    fresh = _root(where) / f".{tree.digest[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        _copy(tree, fresh / name)
        _check(tree, fresh / name)
        fresh.rename(folder)
    except StorageError:
        shutil.rmtree(fresh, ignore_errors=True)  # nobody may take it for a whole copy
        raise
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)  # half a copy is of no use; the error is told below
        if not folder.exists():  # else another command was faster
            raise StorageError(
                f"{tree.root} cannot be kept for later attempts",
                f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
                "make room, or launch without --detach",
            ) from error
    return folder / name


def drop_unused(where: Paths, used: Iterable[str], *, older: float = STALE) -> None:
    """Remove the snapshots whose digest is not in `used`, and copies that were cut off.

    older: seconds; what is younger may belong to a launch that is not on record yet.
    """
    wanted = set(used)
    for folder in _root(where).glob("*"):
        if folder.name not in wanted and _age(folder) >= older:
            shutil.rmtree(folder, ignore_errors=True)  # what stays is removed the next time


def is_snapshot(where: Paths, source: str) -> bool:
    return Path(source).is_relative_to(_root(where))


def _root(where: Paths) -> Path:
    return where.state / "snapshots"


def _age(folder: Path) -> float:
    """Seconds since it was last wanted; below 0 for one that is gone meanwhile."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return -1.0


def _check(tree: Tree, copy: Path) -> None:
    """Raises StorageError when a file was edited between its hashing and its copying."""
    if read_snapshot(copy).digest != tree.digest:
        raise StorageError(
            f"{tree.root} changed while it was copied for later attempts",
            "hosts would get other files than the ones that were looked at",
            "the same command again",
        )


def _copy(tree: Tree, target: Path) -> None:
    target.parent.mkdir(parents=True, mode=0o700)
    if not tree.root.is_dir():
        shutil.copyfile(tree.root, target)
        target.chmod(tree.files[0].mode)
        return
    target.mkdir()
    for file in tree.files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.link is not None:
            place.symlink_to(file.link)
        else:
            shutil.copyfile(tree.source(file), place)
            place.chmod(file.mode)
