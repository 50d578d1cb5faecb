"""The files of a command as they were when it was planned, while they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.engine.state.snapshots import find_kept_copy, is_snapshot
from orchestrator.errors import UserError
from orchestrator.messages import join_some
from orchestrator.paths import Paths
from orchestrator.remote.tree import Tree, list_grown_files, read_snapshot, read_tree


def find_planned_tree(where: Paths, planned: Iterable[Tree], source: str, digest: str) -> Tree:
    """Return the planned files of this digest, from the copy that the launch kept where there is one.

    Where another process planned them they are read again.

    Raises:
        UserError: They are others now.
    """
    for tree in planned:
        if tree.digest == digest and tree.root.absolute() == Path(source):  # a file and a folder of it have one digest
            copy = find_kept_copy(where, tree)
            return tree if copy is None else replace(tree, root=copy)
    for tree in _read_again(where, Path(source)):
        if tree.digest == digest:
            return tree
    raise UserError(
        f"{source} changed since it was planned",
        "its files differ from the planned ones",
        "run the same command again",
    )


def _read_again(where: Paths, source: Path) -> Iterator[Tree]:
    """Yield the files as they are now: of a snapshot, else of a workdir, and of a file mount."""
    if is_snapshot(where, str(source)):
        yield read_snapshot(source)
    else:
        yield read_tree(source)
        yield read_tree(source, whole=True)


def note_grown_files(tree: Tree, note: Callable[[str], None]) -> None:
    """Report the files of a tree that grew after they were planned, such as the log of this very command."""
    if grown := list_grown_files(tree):
        note(f"sent as planned, without what was added since then: {join_some(list(map(str, grown)))}")
