"""Folders and files that a command sends to the hosts: which, from where, and with which content."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from orchestrator.engine.state.kept_trees import FILE_INDEX, load_kept_tree
from orchestrator.errors import StorageError, UserError
from orchestrator.paths import load_paths
from orchestrator.plan.desired import TreeSpec
from orchestrator.remote.file_index import load_file_index
from orchestrator.remote.host_folder import HOST_FOLDER, WORKDIR
from orchestrator.remote.tree import Tree, read_tree
from orchestrator.task.model import Task
from orchestrator.task.sent_tree import SentTree, list_sent_trees, parse_sent_tree

DIALECT_WORKDIR = "sky_workdir"  # a link to WORKDIR (templates/run/workdir.sh.j2)
TRAINER = f"{HOST_FOLDER}/trainer/trainer"
PROGRAM_LIBRARY = f"{HOST_FOLDER}/program/trainer"
"""Where own programs find orch_run; the run script has the same path (templates/run/shell.sh.j2)."""
DEVICE_PROBE = f"{HOST_FOLDER}/devices/trainer"
DEPENDENCY_FILES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment.y*ml", "*.lock")
_IS_DEPENDENCY_FILE = re.compile("|".join(map(fnmatch.translate, DEPENDENCY_FILES))).match


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTree:
    """What a plan needs to know of files that are elsewhere.

    Attributes:
        tree: With those files alone that decide whether setup runs again.
        count: How many files it really has.
    """

    tree: Tree
    count: int


def read_trees(
    task: Task, kept: Mapping[str, str | DescribedTree] = MappingProxyType({})
) -> tuple[tuple[TreeSpec, ...], tuple[Tree, ...]]:
    """Read what is sent from here: the workdir, local file mounts, and the bundled trainer or its library.

    Args:
        task: The task.
        kept: The digests of kept trees to send in place of the originals, or what is known of such, by label.

    Returns:
        The trees as `decide` needs them, and the same trees with their files.
    """
    specs: list[tuple[str, str, str]] = []
    if isinstance(task.workdir, str):
        specs.append(("workdir", task.workdir, WORKDIR))
    mounted = {mount.target: mount.source for mount in task.file_mounts if not mount.from_bucket}
    specs += [(target, source, place_on_host(target)) for target, source in mounted.items()]
    if task.train is not None:
        specs.append(("trainer", str(_trainer_package()), TRAINER))
    elif gets_library(task):
        specs.append(("orch_run", str(_trainer_package()), PROGRAM_LIBRARY))
    read = [
        _read_labelled_tree(label, source, destination, kept.get(label), whole=label in mounted)
        for label, source, destination in specs
    ]
    return tuple(spec for spec, _ in read), tuple(tree for _, tree in read)


def list_own_trees(
    task: Task, specs: Iterable[TreeSpec], trees: Iterable[Tree], kept: Collection[str] = ()
) -> dict[str, Tree]:
    """Return the workdir and the file mounts that were read where their user works, by label."""
    sent = list_sent_trees(task)
    own = {"workdir", *(mount.target for mount in task.file_mounts)} - {*kept, *sent}
    return {spec.label: tree for spec, tree in zip(specs, trees, strict=True) if spec.label in own}


def _read_labelled_tree(
    label: str, written: str, destination: str, kept: str | DescribedTree | None, *, whole: bool
) -> tuple[TreeSpec, Tree]:
    count, sent, place = None, parse_sent_tree(written), _expand_home(written)
    source = written if sent is not None else str(place.absolute())
    if isinstance(kept, DescribedTree):
        tree, count = kept.tree, kept.count
    elif kept is not None:
        tree = _load_kept_tree(label, kept)
    elif sent is not None:
        from orchestrator.engine.state.shared_trees import fetch_trees  # it may open the store, which plans do not

        tree = _load_kept_tree(label, fetch_trees({label: sent.digest})[label])
    else:
        known = load_file_index(load_paths().state / FILE_INDEX, place)
        tree = read_tree(place, whole=whole, known=known)
    return _describe_tree(label, source, destination, tree, count), tree


def _load_kept_tree(label: str, digest: str) -> Tree:
    tree = load_kept_tree(load_paths(), digest)
    if tree is None:
        raise StorageError(
            f"the copies of the files of '{label}' are lost", "the state folder lacks them", "launch again"
        )
    return tree


def read_workdir_tree(folder: Path | SentTree, kept: DescribedTree | None = None) -> tuple[TreeSpec, Tree]:
    """Read a working directory alone, for exec: of this computer, or one that was sent, or is only described."""
    return _read_labelled_tree("workdir", str(folder), WORKDIR, kept, whole=False)


def read_trainer_tree() -> tuple[TreeSpec, Tree]:
    """Read the bundled trainer alone, for listing devices beside a training that may be running."""
    package = _trainer_package()
    tree = read_tree(package)
    return _describe_tree("devices", str(package), DEVICE_PROBE, tree), tree


def _describe_tree(label: str, source: str, destination: str, tree: Tree, count: int | None = None) -> TreeSpec:
    return TreeSpec(
        label=label,
        source=source,
        destination=destination,
        digest=tree.digest,
        files=len(tree.files) if count is None else count,
        total_bytes=tree.total_bytes,
    )


def decides_about_setup(task: Task, path: str) -> bool:
    """Return whether another content of a file that is sent lets setup run again."""
    name = path.rpartition("/")[2]
    return name in task.setup or _IS_DEPENDENCY_FILE(name) is not None


def place_in_workdir(target: str) -> str:
    """Return where a target below the dialect's name of the working directory is; "" for other targets."""
    head, slash, rest = target.removeprefix("~/").partition("/")
    return f"~/{WORKDIR}{slash}{rest}" if head == DIALECT_WORKDIR else ""


def place_on_host(target: str) -> str:
    """Return a path relative to the home folder when it begins with ~/; absolute paths stay."""
    return (place_in_workdir(target) or target).removeprefix("~/")


def gets_library(task: Task) -> bool:
    """Return whether the program can import orch_run: it is of use where there is a bucket."""
    return bool(task.run) and task.train is None and bool(task.checkpoint.bucket)


def _expand_home(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a user who does not exist


def _trainer_package() -> Path:
    """Find the bundled trainer's folder without importing it."""
    from importlib.util import find_spec

    spec = find_spec("trainer")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the bundled trainer is not installed", next_step="reinstall orch: scripts/bootstrap")
    return Path(next(iter(spec.submodule_search_locations)))
