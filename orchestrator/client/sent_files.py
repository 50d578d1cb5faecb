"""Files of this computer that a launch through a service needs: named by their digest, and sent where it lacks them."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import CloudError, StorageError, UserError
from orchestrator.formatting import format_size
from orchestrator.messages import count_noun
from orchestrator.task.sent_tree import SentTree

if TYPE_CHECKING:
    from orchestrator.client.http import Client
    from orchestrator.client.orders import HostCommand
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.preparation.tree_notes import TreeNotes
    from orchestrator.remote.tree import Tree
    from orchestrator.task.model import Task

_TRIES, _PAUSE_SECONDS = 3, 2.0
_MOST_DECISIVE = 5_000  # files that decide about setup, which a request describes


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """A task whose files are named by their digest.

    Attributes:
        task: It, as JSON.
        trees: The files on this computer, by name.
        described: What a plan needs to know of them, by name.
        notes: What is said of them before anything is sent.
    """

    task: str
    trees: dict[str, Tree]
    described: dict[str, dict[str, Any]]
    notes: TreeNotes

    def show_paths(self, text: str) -> str:
        """Return a text of the service with this computer's paths in place of the names."""
        for name, tree in self.trees.items():
            text = text.replace(name, str(tree.root.absolute()))
        return text


def name_files(task: Task) -> NamedFiles:
    """Return a task in which files of this computer are named by their digest.

    Raises:
        UserError: They cannot be read, or cannot be the same elsewhere.
    """
    from orchestrator.engine.preparation.git_state import add_git_state
    from orchestrator.engine.preparation.tree_notes import describe_trees

    trees: dict[str, Tree] = {}
    labelled: dict[str, Tree] = {}
    workdir, mounts = task.workdir, list(task.file_mounts)
    if isinstance(workdir, str):
        workdir = _name_tree(workdir, trees, whole=False)
        labelled["workdir"] = trees[workdir]
    for index, mount in enumerate(mounts):
        if not mount.from_bucket:
            mounts[index] = replace(mount, source=_name_tree(mount.source, trees, whole=True))
            labelled[mount.target] = trees[mounts[index].source]
    named = add_git_state(task).model_copy(update={"workdir": workdir, "file_mounts": tuple(mounts)})
    described = {name: _describe_tree(task, tree) for name, tree in trees.items()}
    notes = describe_trees(task, labelled)
    return NamedFiles(task=named.to_json(), trees=trees, described=described, notes=notes)


def name_folder(command: HostCommand) -> NamedFiles:
    """Return the folder that a command sends first, named by its digest.

    Raises:
        UserError: It cannot be read.
    """
    from orchestrator.engine.preparation.tree_notes import TreeNotes, describe_command_workdir

    trees: dict[str, Tree] = {}
    name = _name_tree(str(command.workdir), trees, whole=False)
    described = {name: {"files": len(trees[name].files), "bytes": trees[name].total_bytes}}
    notes = TreeNotes(notes=tuple(describe_command_workdir(trees[name], command.line)), doubts=())
    return NamedFiles(task="", trees=trees, described=described, notes=notes)


def send_files(client: Client, name: str, tree: Tree, narrator: Narrator) -> None:
    """Send files to the service.

    Raises:
        StorageError: They cannot be packed.
        OrchError: The service refuses them, or does not answer.
    """
    from orchestrator.engine.state.tree_archives import write_archive

    with tempfile.TemporaryFile(prefix="orch-files-") as archive:
        try:
            write_archive(tree, archive)
        except OSError as error:
            why = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
            raise StorageError(f"{tree.root} cannot be packed", why, "the same command again") from error
        packed = format_size(archive.tell())
        narrator.note(f"sending {tree.root}: {count_noun(len(tree.files), 'file')}, {packed} packed")
        for _ in range(_TRIES - 1):
            try:
                client.send_files(name, archive)
            except CloudError:  # the connection was cut
                time.sleep(_PAUSE_SECONDS)
            else:
                return
        client.send_files(name, archive)


def _name_tree(path: str, trees: dict[str, Tree], *, whole: bool) -> str:
    from orchestrator.remote.tree import read_tree

    root = Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a user who does not exist
    tree = read_tree(root, whole=whole)
    named = str(SentTree(digest=tree.digest))
    trees[named] = tree
    return named


def _describe_tree(task: Task, tree: Tree) -> dict[str, Any]:
    from orchestrator.engine.preparation.trees import decides_about_setup

    texts = [file for file in tree.files if file.path.isprintable()]  # JSON has no names that are no text
    decisive = {file.path: file.sha256 for file in texts if decides_about_setup(task, file.path)}
    if len(decisive) > _MOST_DECISIVE:
        what = f"{tree.root} has {len(decisive):,} files that could decide whether setup runs again"
        why = (
            f"files of dependencies, and those that setup names; at most {_MOST_DECISIVE:,} are described to a service"
        )
        raise UserError(what, why, "leave some out: .orchignore")
    return {"files": len(tree.files), "bytes": tree.total_bytes, "decisive": decisive}
