"""Files that were sent to a service: a task names them by their digest where it has a path, `orch-tree:DIGEST`.

Such a name is no path of any computer. It says which files are meant, and it stays right in every record of the task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.task.model import Task

SCHEME = "orch-tree:"
_NAME = re.compile(rf"{SCHEME}([0-9a-f]{{64}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTree:
    """A folder or file that was sent.

    Attributes:
        digest: Of its paths, modes and contents.
    """

    digest: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.digest}"


def parse_sent_tree(path: str) -> SentTree | None:
    """Return what a path of a task names, or None where it is a path."""
    found = _NAME.fullmatch(path)
    return None if found is None else SentTree(digest=found[1])


def list_sent_trees(task: Task) -> dict[str, SentTree]:
    """Return what a task names by its digest, by label: `workdir`, or the target of a mount."""
    paths = {mount.target: mount.source for mount in task.file_mounts}
    if isinstance(task.workdir, str):
        paths["workdir"] = task.workdir
    found = {label: parse_sent_tree(path) for label, path in paths.items()}
    return {label: tree for label, tree in found.items() if tree is not None}


def find_sent_digests(text: str) -> set[str]:
    """Return the digests in a task, or in a document that holds one."""
    return set(_NAME.findall(text))
