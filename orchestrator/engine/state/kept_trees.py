"""Copies of what a launch sends, so that each attempt gets the same files whatever happens to the originals.

Each content is kept once, whichever trees have it: file_objects.py. A tree is found by its digest.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace

from orchestrator.engine.state.file_objects import (
    Objects,
    adding,
    age,
    delete_trees,
    files_folder,
    has_leftovers,
    list_records,
    objects_folder,
    record_path,
)
from orchestrator.errors import StorageError
from orchestrator.paths import Paths
from orchestrator.remote.file_index import save_file_index
from orchestrator.remote.tree import Tree, TreeFile, describe_content
from orchestrator.remote.tree_record import parse_record

FILE_INDEX = "file-index"  # below the state folder: remote/file_index.py
STALE = 24 * 3600.0  # seconds after which a tree that no record names is unused


def keep_tree(where: Paths, tree: Tree, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
    """Copy the contents of a tree that are not kept already.

    Args:
        where: The folders of this installation.
        tree: What is sent.
        progress: Receives how many bytes are kept, and how many there are.

    Raises:
        StorageError: A copy cannot be written, or the tree changed meanwhile.
    """
    try:
        with adding(where) as objects:
            _add_contents(objects, tree, progress)
            if use_kept_tree(where, tree.digest) and not objects.added:
                return
            objects.record(tree)
        known = {file.identity: describe_content(file) for file in tree.files if file.identity}
        save_file_index(where.state / FILE_INDEX, tree.root, known)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space_error(where, tree) from error
        raise StorageError(
            f"{tree.root} cannot be kept for later attempts",
            f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            f"make it readable, and {files_folder(where)} writable",
        ) from error


def use_kept_tree(where: Paths, digest: str) -> bool:
    """Return whether a tree is kept; it is kept for another day then."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(record_path(where, digest))
        return True
    return False


def is_kept(where: Paths, digest: str) -> bool:
    """Return whether a tree is kept."""
    return record_path(where, digest).exists()


def load_kept_tree(where: Paths, digest: str) -> Tree | None:
    """Return a kept tree; None where it is not kept, or its record is damaged."""
    record = record_path(where, digest)
    try:
        return take_kept_contents(where, parse_record(record.read_bytes(), digest, record))
    except FileNotFoundError:
        return None
    except ValueError:
        with contextlib.suppress(BlockingIOError):
            delete_trees(where, [digest], wait=False)
        return None


def take_kept_contents(where: Paths, tree: Tree) -> Tree:
    """Return the same tree, which is kept, with its contents read from the copies."""
    return replace(tree, objects=objects_folder(where))


def drop_unused_trees(where: Paths, used: Iterable[str], *, older: float = STALE) -> None:
    """Delete the trees whose digest is not in `used`, and what processes that were killed left.

    Args:
        where: The folders of this installation.
        used: Digests that jobs still need.
        older: Seconds; a younger tree may belong to a launch that is not on record yet.
    """
    needed = set(used)
    unused = [record.stem for record in list_records(where) if record.stem not in needed and age(record) >= older]
    if unused or has_leftovers(where, older):
        with contextlib.suppress(BlockingIOError):  # a launch is copying: another time
            delete_trees(where, unused, older=older, wait=False)


def has_stale_tree(where: Paths) -> bool:
    """Return whether there is something that `drop_unused_trees` would delete, if it is unused."""
    return has_leftovers(where, STALE) or any(age(record) >= STALE for record in list_records(where))


def _add_contents(objects: Objects, tree: Tree, progress: Callable[[int, int], None]) -> None:
    """Copy what is missing. Paths are text here: there may be 100,000 files."""
    root = str(tree.root) if tree.is_file else f"{tree.root}/"
    done = 0
    for file in tree.files:
        if file.link is not None:
            continue
        if not objects.has(file.sha256, file.size):
            _add_content(objects, root if tree.is_file else f"{root}{file.path}", file)
        done += file.size
        progress(done, tree.total_bytes)


def _add_content(objects: Objects, source: str, file: TreeFile) -> None:
    """Copy what a file held when it had its size: a log may have grown since.

    Raises:
        StorageError: It was edited after it was hashed.
    """
    opened = os.open(source, os.O_RDONLY)
    try:
        same = objects.add(file.sha256, file.size, lambda size: os.read(opened, size))
    finally:
        os.close(opened)
    if not same:
        raise StorageError(
            f"{source} changed while it was copied for later attempts",
            "hosts would get other files than the planned ones",
            "run the same command again",
        )


def _no_space_error(where: Paths, tree: Tree) -> StorageError:
    folder = files_folder(where)
    free = shutil.disk_usage(folder).free
    return StorageError(
        f"{tree.root} cannot be kept for later attempts",
        f"it has {tree.total_bytes / 1e6:,.0f} MB, and {folder} has {free / 1e6:,.0f} MB left",
        "free disk space, or leave files out of what is sent: .orchignore",
    )
