"""The files of a tree that hosts report to hold, and the change to another tree."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.remote.pack import Change, manifest_of
from orchestrator.remote.tree import Tree

_RECORD = re.compile(rb"([fl][0-7]+ [0-9a-f]{64}) (.*)", re.DOTALL)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Holding:
    """The files on a host, compared by identity.

    Attributes:
        files: path to "f755 CHECKSUM", as in a manifest.
        owned: all paths that any sync sent there.
    """

    files: Mapping[bytes, bytes]
    owned: frozenset[bytes]


NOTHING = Holding({}, frozenset())


def holding_of_tree(tree: Tree) -> Holding:
    """Return the holding of a host that has exactly this tree."""
    return parse_manifest(manifest_of(tree))


def parse_manifest(manifest: bytes) -> Holding:
    """Return the holding that a manifest lists."""
    records = (_RECORD.fullmatch(record) for record in manifest.split(b"\0"))
    files = {found[2]: found[1] for found in records if found is not None}
    return Holding(files, frozenset(files))


def parse_inventory(inventory: bytes) -> Holding:
    """Return the holding that an inventory of templates/remote/sync.sh lists.

    A link never matches: sending it again costs nothing.
    """
    owned: set[bytes] = set()
    modes: dict[bytes, bytes] = {}
    files: dict[bytes, bytes] = {}
    for record in inventory.split(b"\0"):
        kind, rest = record[:1], record[1:]
        if kind == b"O":
            owned.add(rest.removeprefix(b"./"))
        elif kind == b"S" and rest.startswith(b"-"):
            permissions, _, path = rest.partition(b" ")
            modes[path.removeprefix(b"./")] = b"f755" if permissions[3:4] == b"x" else b"f644"
        elif kind == b"H":
            checksum, _, name = rest.partition(b"  ")
            if (path := name.removeprefix(b"./")) in modes:
                files[path] = modes[path] + b" " + checksum
    return Holding(files, frozenset(owned))


def plan_change(tree: Tree, target: Holding, held: Holding) -> Change:
    """Return the change from what a host holds to `tree`, whose holding is `target`."""
    missing = {path for path, record in target.files.items() if held.files.get(path) != record}
    return Change(
        tuple(file for file in tree.files if os.fsencode(file.path) in missing),
        tuple(os.fsdecode(path) for path in sorted(held.owned - target.owned)),
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
