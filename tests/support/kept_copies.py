"""What this computer keeps of the files of launches, as tests look at it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from orchestrator.engine.state.file_objects import files_folder, objects_folder, trees_folder
from orchestrator.engine.state.kept_trees import load_kept_tree
from orchestrator.paths import Paths


def read_kept(where: Paths, digest: str) -> dict[str, bytes]:
    """Return the contents of a kept tree by path, and the targets of its links."""
    tree = load_kept_tree(where, digest)
    assert tree is not None, "it is not kept"
    return {
        file.path: file.link.encode() if file.link is not None else tree.source(file).read_bytes()
        for file in tree.files
    }


def list_kept(where: Paths) -> list[str]:
    """Return the digests of the kept trees."""
    return sorted(path.stem for path in trees_folder(where).glob("*.json"))


def list_objects(where: Paths) -> set[str]:
    """Return the SHA-256 of the kept contents, each of which is right."""
    found = {path.name: path.read_bytes() for path in objects_folder(where).glob("*/*")}
    for name, content in found.items():
        assert hashlib.sha256(content).hexdigest() == name
    return set(found)


def list_staged(where: Paths) -> list[Path]:
    """Return what is being added or deleted."""
    return list((files_folder(where) / "staged").glob("*"))


def lose_kept(where: Paths) -> None:
    """Lose all that is kept, as a new computer that has only the store."""
    shutil.rmtree(files_folder(where), ignore_errors=True)
