"""Trees as JSON: what a computer, a bucket and a service keep of a tree beside its contents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.remote.tree import LAST_TIME, TREE_VERSION, Tree, TreeFile, TreeFolder, hash_link, make_tree

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096  # bytes of a path, as Linux has it


def write_record(tree: Tree, *, added: int = 0) -> str:
    """Return a tree as JSON; `added` bytes of its contents were not kept for another tree."""
    head = {"version": TREE_VERSION, "bytes": tree.total_bytes, "added": added}
    folders = [(folder.path, folder.mode, folder.mtime) for folder in tree.folders]
    files = [(file.path, file.mode, file.mtime, file.size, file.sha256, file.link) for file in tree.files]
    document = {**head, "kind": "file" if tree.is_file else "folder", "folders": folders, "files": files}
    return json.dumps(document, separators=(",", ":"))


def parse_record(content: bytes, digest: str, root: Path) -> Tree:
    """Return the tree of this digest, which is not trusted.

    Raises:
        ValueError: It is another one, or none.
    """
    try:
        document: dict[str, Any] = json.loads(content)
        if document["version"] != TREE_VERSION:
            raise ValueError(f"its version is {document['version']}, and this orch reads version {TREE_VERSION}")
        is_file = document["kind"] == "file"
        folders = [_parse_folder(*fields) for fields in document["folders"]]
        files = [_parse_file(*fields) for fields in document["files"]]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is not a record of files") from error
    if is_file and (folders or len(files) != 1 or files[0].link is not None or "/" in files[0].path):
        raise ValueError("it is not a record of one file")
    _refuse_bad_paths([file.path for file in files], [folder.path for folder in folders])
    tree = make_tree(root, files, folders, is_file=is_file)
    if tree.digest != digest:
        raise ValueError("its digest is another one")
    return tree


def _parse_folder(path: object, mode: object, mtime: object) -> TreeFolder:
    if not isinstance(path, str) or not _is_mode(mode) or not _is_time(mtime):
        raise ValueError(f"{path!r} is not a folder")
    return TreeFolder(path=path, mode=mode, mtime=mtime)  # type: ignore[arg-type]  # compared above


def _is_mode(number: object) -> bool:
    return type(number) is int and 0 <= number <= 0o777


def _is_time(number: object) -> bool:
    return type(number) is int and 0 <= number <= LAST_TIME


def _parse_file(path: object, mode: object, mtime: object, size: object, sha256: object, link: object) -> TreeFile:
    if not all(isinstance(text, str) for text in ((path, sha256) if link is None else (path, sha256, link))):
        raise ValueError("a name is not a text")
    if not _is_mode(mode) or not _is_time(mtime) or type(size) is not int or not 0 <= size < 1 << 53:
        raise ValueError(f"{path!r} has an impossible mode, time or size")
    file = TreeFile(path=path, mode=mode, mtime=mtime, size=size, sha256=sha256, link=link)  # type: ignore[arg-type]  # compared above
    if _SHA256.fullmatch(file.sha256) is None:
        raise ValueError(f"{file.path!r} lacks a checksum")
    if file.link is not None and (
        file.size or not file.link or "\0" in file.link or file.sha256 != hash_link(file.link)
    ):
        raise ValueError(f"{file.path!r} is not a link")
    return file


def _refuse_bad_paths(files: Sequence[str], folders: Sequence[str]) -> None:
    """Raise ValueError for a path that leaves the folder, is too long, stands twice, or is below a file."""
    known = set(files)
    if len(known.union(folders)) != len(files) + len(folders):
        raise ValueError("a path stands there twice")
    parents: set[str] = set()
    for path in (*files, *folders):
        if "\0" in path or len(os.fsencode(path)) > _LONGEST:
            raise ValueError(f"{path[:200]!r} is not a path, or too long")
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path[:200]!r} leaves the folder")
        parent = path.rpartition("/")[0]
        while parent and parent not in parents:
            parents.add(parent)
            parent = parent.rpartition("/")[0]
    if not known.isdisjoint(parents):
        raise ValueError("something is below a file")
