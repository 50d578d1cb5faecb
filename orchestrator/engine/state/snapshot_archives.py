"""Snapshots as archives: a tree as compressed tar, and an archive as the files of a snapshot."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import IO

from orchestrator.engine.state.snapshots import CONTENT
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.remote.archive import unpack_archive
from orchestrator.remote.tree import Tree, TreeFile


def pack_tree(tree: Tree, archive: IO[bytes], copy: Path) -> None:
    """Write a tree as GNU tar, compressed; the same tree gives the same bytes.

    Args:
        tree: What is packed.
        archive: Where it is written.
        copy: Where its files are read: its root, or a copy of that.

    Raises:
        OSError: A file cannot be read, or became shorter since the tree was read.
    """
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for file in tree.files:
            entry = tarfile.TarInfo(file.path)
            entry.mode = file.mode
            if file.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                tar.addfile(entry)
                continue
            entry.size = file.size
            with (copy / file.path if copy.is_dir() else copy).open("rb") as content:
                tar.addfile(entry, content)


def find_leaving_link(tree: Tree) -> str:
    """Return the path of a link that no snapshot elsewhere can have, since it leads out of the tree; "" without one."""
    return next((file.path for file in tree.files if _leaves_tree(file)), "")


def unpack_tree(archive: IO[bytes], folder: Path, name: str, limits: ReceivingLimits) -> None:
    """Unpack an archive of `pack_tree`, which is not trusted, so that its tree is `folder / name`.

    Raises:
        RefusedEntryError: It has what `pack_tree` does not write, or more than the limits.
        OSError, EOFError, zlib.error: It is damaged, or the disk refuses it.
    """
    place = folder / CONTENT if name == CONTENT else folder
    with gzip.GzipFile(fileobj=archive) as packed, ReceivingFolder(place, limits) as receiving:
        unpack_archive(packed, receiving)  # type: ignore[arg-type]  # it reads only


def _leaves_tree(file: TreeFile) -> bool:
    """Return whether a link is one that ReceivingFolder does not make."""
    if file.link is None:
        return False
    parts = file.link.split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return file.link.startswith("/") or ups > file.path.count("/") or ".." in parts[ups:]
