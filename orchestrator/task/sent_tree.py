"""Files that were sent to a service: a task names them by their digest where it has a path, `orch-tree:DIGEST/NAME`.

Such a name is no path of any computer. It says which files are meant, and it stays right in every record of the task.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

if TYPE_CHECKING:
    from orchestrator.task.model import Task

FOLDER = "content"  # the name of a folder; a single file keeps its own
SCHEME = "orch-tree:"
_NAME = re.compile(rf"{SCHEME}([0-9a-f]{{64}})/([A-Za-z0-9_.~%-]{{1,800}})")
_DIGEST = re.compile(rf"{SCHEME}([0-9a-f]{{64}})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTree:
    """A folder or file that was sent.

    Attributes:
        digest: Of its paths, modes and contents.
        name: `content` for a folder, else the name of the file.
    """

    digest: str
    name: str = FOLDER

    def __str__(self) -> str:
        return f"{SCHEME}{self.digest}/{quote(os.fsencode(self.name), safe='')}"


def parse_sent_tree(path: str) -> SentTree | None:
    """Return what a path of a task names, or None where it is a path."""
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    name = os.fsdecode(unquote_to_bytes(found[2]))
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return None
    tree = SentTree(digest=found[1], name=name)
    return tree if str(tree) == path else None  # one name for each


def list_sent_trees(task: Task) -> dict[str, SentTree]:
    """Return what a task names by its digest, by label: `workdir`, or the target of a mount."""
    paths = {mount.target: mount.source for mount in task.file_mounts}
    if isinstance(task.workdir, str):
        paths["workdir"] = task.workdir
    found = {label: parse_sent_tree(path) for label, path in paths.items()}
    return {label: tree for label, tree in found.items() if tree is not None}


def find_sent_digests(text: str) -> set[str]:
    """Return the digests in a task, or in a document that holds one."""
    return set(_DIGEST.findall(text))
