"""Trees as archives, for stores, buckets and services: the record of a tree, and each of its contents once.

An archive is compressed. It begins with a line, `orch-tree VERSION BYTES`, whose BYTES are those of the record. The
contents follow in the order in which the record names them first, without anything between them: it has their sizes.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from orchestrator.engine.state.file_objects import adding, record_path
from orchestrator.engine.state.kept_trees import use_kept_tree
from orchestrator.paths import Paths
from orchestrator.received_files import RefusedEntryError
from orchestrator.remote.tree import TREE_VERSION, Tree, TreeFile
from orchestrator.remote.tree_record import parse_record, write_record

_BLOCK = 1 << 20
_LEVEL = 1  # of zlib: the others take several times as long, and save a few percent
_LINE = re.compile(rb"orch-tree (\d{1,9}) (\d{1,9})\n")
_LINE_BYTES, _RECORD_BYTES = 40, 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """What an archive may hold.

    Attributes:
        entries: Files, folders and links.
        bytes: Of its contents.
    """

    entries: int = 1_000_000
    bytes: int


def write_archive(tree: Tree, out: IO[bytes]) -> None:
    """Write a tree as an archive; the same tree gives the same bytes.

    Raises:
        OSError: A file cannot be read, or became shorter since the tree was read.
    """
    record = write_record(tree).encode()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_LEVEL, mtime=0, filename="") as packed:
        packed.write(f"orch-tree {TREE_VERSION} {len(record)}\n".encode())
        packed.write(record)
        for file in _list_contents(tree):
            left = file.size
            with tree.source(file).open("rb") as content:
                while left:
                    if not (block := content.read(min(_BLOCK, left))):
                        raise OSError(None, "it became shorter", str(tree.source(file)))
                    packed.write(block)
                    left -= len(block)


def keep_archive(where: Paths, digest: str, archive: IO[bytes], limits: ArchiveLimits) -> Tree:
    """Keep the tree in an archive, which is not trusted.

    All of its contents must be there, also those that are kept already: who has only the digest gets no files by it.

    Raises:
        RefusedEntryError: It has more than the limits.
        ValueError, EOFError, zlib.error, OSError without a number: It is another tree, or damaged.
        OSError: The disk refuses it.
    """
    with adding(where) as objects, gzip.GzipFile(fileobj=archive) as packed:
        tree = _read_record(where, digest, packed)
        if len(tree.files) + len(tree.folders) > limits.entries:
            raise RefusedEntryError("too many files", f"at most {limits.entries:,} are accepted")
        if tree.total_bytes > limits.bytes:
            raise RefusedEntryError("the files are too large", f"at most {limits.bytes:,} bytes are accepted")
        for file in _list_contents(tree):
            if not objects.add(file.sha256, file.size, packed.read):
                raise ValueError(f"the content of {file.path!r} is another one")
        if packed.read(1):
            raise ValueError("there is more behind its end")
        if not use_kept_tree(where, digest):
            objects.record(tree)
    return tree


def _read_record(where: Paths, digest: str, packed: gzip.GzipFile) -> Tree:
    line = packed.readline(_LINE_BYTES)
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("it is not an archive of files")
    if int(found[1]) != TREE_VERSION:
        raise ValueError(f"its version is {int(found[1])}, and this orch reads version {TREE_VERSION}")
    if int(found[2]) > _RECORD_BYTES:
        raise RefusedEntryError("too many files", f"a record of at most {_RECORD_BYTES >> 20} MiB is accepted")
    return parse_record(packed.read(int(found[2])), digest, record_path(where, digest))


def _list_contents(tree: Tree) -> Iterator[TreeFile]:
    """Yield one file of each content, in the order of the tree."""
    seen: set[str] = set()
    for file in tree.files:
        if file.link is None and file.sha256 not in seen:
            seen.add(file.sha256)
            yield file
