"""Copies of what a launch sends, so that each attempt gets the same files whatever happens to the originals.

There is one folder per content below `<state>/snapshots`, named by the tree's digest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchestrator.errors import StorageError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder
from orchestrator.remote.file_index import identify_content, save_file_index
from orchestrator.remote.tree import Tree, TreeFile, describe_content

CONTENT = "content"
FILE_INDEX = "file-index"  # below the state folder: remote/file_index.py
_BLOCK = 1 << 20
STALE = 24 * 3600.0  # seconds after which a copy that no record names is unused


def keep_snapshot(where: Paths, tree: Tree, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Path:
    """Copy the tree unless its content is kept already, and return the path to send it from.

    Args:
        where: The folders of this installation.
        tree: What is sent.
        progress: Receives how many bytes are copied, and how many there are.

    Raises:
        StorageError: The copy cannot be written, or the tree changed meanwhile.
    """
    if (kept := find_kept_copy(where, tree)) is not None:
        with contextlib.suppress(FileNotFoundError):  # deleted at this moment: copied again below
            os.utime(kept.parent)  # it is used: see drop_unused_snapshots
            return kept
    root = snapshots_folder(where)
    fresh = root / f".{tree.digest[:16]}-{os.getpid()}-{secrets.token_hex(4)}"
    copy = root / tree.digest / _name_copy(tree)
    try:
        contents = _copy(tree, fresh / copy.name, progress)
        _install(fresh, copy)
        save_file_index(where.state / FILE_INDEX, tree.root, contents)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            shutil.rmtree(fresh, ignore_errors=True)  # what is left on the disk is without it
            raise _no_space_error(root, tree) from error
        raise StorageError(
            f"{tree.root} cannot be kept for later attempts",
            f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            f"make it readable, and {root} writable",
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # it must not be taken for a complete copy
    return copy


def find_kept_copy(where: Paths, tree: Tree) -> Path | None:
    """Return the path of the copy of a tree; None where it is not kept."""
    copy = snapshots_folder(where) / tree.digest / _name_copy(tree)
    return copy if os.path.lexists(copy) else None


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


def list_snapshots(where: Paths) -> dict[str, int]:
    """Return the bytes of each copy by its digest, of the one that was used longest ago first."""
    folders = [folder for folder in snapshots_folder(where).glob("*") if not folder.name.startswith(".")]
    return {folder.name: _measure(folder) for folder in sorted(folders, key=_age, reverse=True)}


def has_stale_snapshot(where: Paths) -> bool:
    """Return whether there is a copy that `drop_unused_snapshots` would delete, if it is unused."""
    return any(_age(folder) >= STALE for folder in snapshots_folder(where).glob("*"))


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


def _measure(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # deleted at this moment
                size += os.lstat(f"{parent}/{name}").st_size
    return size


def _name_copy(tree: Tree) -> str:
    """Return the name of the copy in its folder: a folder with one file has the digest of that file."""
    return CONTENT if tree.root.is_dir() else tree.root.name


def _install(fresh: Path, copy: Path) -> None:
    """Move a complete copy to its place, unless another command was faster."""
    with contextlib.suppress(OSError):  # the folder exists
        fresh.rename(copy.parent)
        return
    if not os.path.lexists(copy):
        (fresh / copy.name).rename(copy)


def _no_space_error(root: Path, tree: Tree) -> StorageError:
    free = shutil.disk_usage(root).free
    return StorageError(
        f"{tree.root} cannot be kept for later attempts",
        f"it has {tree.total_bytes / 1e6:,.0f} MB, and {root} has {free / 1e6:,.0f} MB left",
        "free disk space, or leave files out of what is sent: .orchignore",
    )


def _copy(tree: Tree, target: Path, progress: Callable[[int, int], None]) -> Mapping[str, str]:
    """Copy each file of a tree, and return the contents of the files for the index.

    Paths are text here: there may be 100,000 files.
    """
    make_private_folder(target.parent)
    below, root = (f"{target}/", f"{tree.root}/") if tree.root.is_dir() else ("", "")
    if below:
        make_private_folder(target)
    made = {"", str(target)}
    contents: dict[str, str] = {}
    done = 0
    for file in tree.files:
        place = f"{below}{file.path}" if below else str(target)
        if below and (folder := place.rpartition("/")[0]) not in made:
            make_private_folder(Path(folder))
            made.add(folder)
        if file.link is not None:
            Path(place).symlink_to(file.link)
            continue
        contents[_copy_file(f"{root}{file.path}" if root else str(tree.root), place, file)] = describe_content(file)
        done += file.size
        progress(done, tree.total_bytes)
    contents.pop("", None)
    return contents


def _copy_file(source: str, place: str, file: TreeFile) -> str:
    """Copy what the file held when it had its size: a log may have grown since. Hosts get its mode from the tree.

    Returns:
        What identifies its content; "" where that is unknown.

    Raises:
        StorageError: It was edited after it was hashed.
    """
    digest, left = hashlib.sha256(), file.size
    read = os.open(source, os.O_RDONLY)
    try:
        now = os.fstat(read)
        written = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode & 0o700)
        try:
            while left and (block := os.read(read, min(_BLOCK, left))):
                digest.update(block)
                left -= len(block)
                while block:
                    block = block[os.write(written, block) :]
        finally:
            os.close(written)
    finally:
        os.close(read)
    if digest.hexdigest() != file.sha256:
        raise StorageError(
            f"{source} changed while it was copied for later attempts",
            "hosts would get other files than the planned ones",
            "run the same command again",
        )
    return identify_content(now) if now.st_size == file.size else ""
