"""The files of a command as they were when it was planned, while they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from orchestrator.engine.state.kept_trees import is_kept, load_kept_tree, take_kept_contents
from orchestrator.errors import UserError
from orchestrator.messages import join_some
from orchestrator.paths import Paths
from orchestrator.remote.tree import Tree, list_grown_files, read_tree


def find_planned_tree(where: Paths, planned: Iterable[Tree], source: str, digest: str) -> Tree:
    """Return the planned files of this digest, from the copies that the launch kept where there are some.

    Where another process planned them, and none are kept, they are read again.

    Raises:
        UserError: They are others now.
    """
    tree = next((tree for tree in planned if tree.digest == digest), None)
    if tree is not None:
        return take_kept_contents(where, tree) if is_kept(where, digest) else tree
    if (kept := load_kept_tree(where, digest)) is not None:
        return kept
    for whole in (False, True):  # of a workdir, and of a file mount
        if (tree := read_tree(Path(source), whole=whole)).digest == digest:
            return tree
    raise UserError(
        f"{source} changed since it was planned",
        "its files differ from the planned ones",
        "run the same command again",
    )


def note_grown_files(tree: Tree, note: Callable[[str], None]) -> None:
    """Report the files of a tree that grew after they were planned, such as the log of this very command."""
    if grown := list_grown_files(tree):
        note(f"sent as planned, without what was added since then: {join_some(list(map(str, grown)))}")
