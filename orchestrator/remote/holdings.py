"""The files of a tree that hosts report to hold, and the change to another tree."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.remote.pack import Change
from orchestrator.remote.tree import Tree, list_manifest

_RECORD = re.compile(rb"(d[0-7]+|[fl][0-7]+ [0-9a-f]{64}) (.*)", re.DOTALL)
_STATUS = re.compile(rb"([0-9a-f]{1,8}) \./(.*)", re.DOTALL)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Holding:
    """The files on a host, compared by identity.

    Attributes:
        entries: path to "f755 CHECKSUM" of a file, or "d755" of a folder, as in a manifest.
        owned: the paths of all files and links that any sync sent there.
        folders: the paths of all folders that any sync made there.
    """

    entries: Mapping[bytes, bytes]
    owned: frozenset[bytes]
    folders: frozenset[bytes]


NOTHING = Holding({}, frozenset(), frozenset())


def holding_of_tree(tree: Tree) -> Holding:
    """Return the holding of a host that has exactly this tree."""
    return parse_manifest(list_manifest(tree))


def parse_manifest(manifest: bytes) -> Holding:
    """Return the holding that a manifest lists."""
    records = (_RECORD.fullmatch(record) for record in manifest.split(b"\0"))
    entries = {found[2]: found[1] for found in records if found is not None}
    folders = frozenset(path for path, entry in entries.items() if entry.startswith(b"d"))
    return Holding(entries, frozenset(entries) - folders, folders)


def parse_inventory(inventory: bytes) -> Holding:
    """Return the holding that an inventory of templates/remote/sync.sh lists.

    A link never matches: sending it again costs nothing.
    """
    owned: set[bytes] = set()
    folders: set[bytes] = set()
    modes: dict[bytes, bytes] = {}
    entries: dict[bytes, bytes] = {}
    for record in inventory.split(b"\0"):
        kind, rest = record[:1], record[1:]
        if kind == b"O":
            owned.add(rest.removeprefix(b"./"))
        elif kind == b"D":
            folders.add(rest.removeprefix(b"./"))
        elif kind == b"S" and (found := _STATUS.fullmatch(rest)) is not None:
            mode, path = int(found[1], 16), found[2]
            if stat.S_ISREG(mode):
                modes[path] = b"f%o" % stat.S_IMODE(mode)
            elif stat.S_ISDIR(mode):
                entries[path] = b"d%o" % (mode & 0o777)  # a folder may have the bit for its group from one above it
        elif kind == b"H":
            checksum, _, name = rest.partition(b"  ")
            if (path := name.removeprefix(b"./")) in modes:
                entries[path] = modes[path] + b" " + checksum
    return Holding(entries, frozenset(owned), frozenset(folders))


def plan_change(tree: Tree, target: Holding, held: Holding) -> Change:
    """Return the change from what a host holds to `tree`, whose holding is `target`."""
    missing = {path for path, entry in target.entries.items() if held.entries.get(path) != entry}
    return Change(
        tuple(file for file in tree.files if os.fsencode(file.path) in missing),
        tuple(os.fsdecode(path) for path in sorted(held.owned - target.owned)),
        tuple(folder for folder in tree.folders if os.fsencode(folder.path) in missing),
        tuple(os.fsdecode(path) for path in sorted(held.folders - target.folders)),
    )


class Once(Generic[K, V]):
    """Values made once by key, by the first thread that needs them; others wait. A failure is not kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[K, Future[V]] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of `key`, made by the first caller."""
        while True:
            with self._lock:
                future = self._made.get(key)
                if future is None:
                    mine = self._made[key] = Future[V]()
                    break
            if future.exception() is None:
                return future.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._made[key]
            mine.set_exception(error)
            raise
        mine.set_result(value)
        return value
