"""The limit of what a launch sends: files.keep_bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable

from orchestrator.errors import UserError
from orchestrator.remote.tree import Tree
from orchestrator.task.config import load_config

KEEP_BYTES = "files.keep_bytes"
_NAMED_PARTS = 3


def read_keep_bytes() -> int:
    """Return how many bytes all kept files may have."""
    return load_config(os.environ).number(KEEP_BYTES)


def list_sizes(tree: Tree) -> dict[str, int]:
    """Return the size of each content of a tree by its SHA-256."""
    return {file.sha256: file.size for file in tree.files}


def find_too_large(trees: Iterable[Tree], most: int) -> UserError | None:
    """Return the error for a tree that has more bytes than may be kept; None without one."""
    return next((_too_large_error(tree, most) for tree in trees if sum(list_sizes(tree).values()) > most), None)


def _too_large_error(tree: Tree, most: int) -> UserError:
    parts: dict[str, int] = {}
    for file in tree.files:
        part = file.path.partition("/")[0]
        parts[part] = parts.get(part, 0) + file.size
    largest = sorted(parts.items(), key=lambda item: -item[1])[:_NAMED_PARTS]
    named = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in largest)
    size, limit = tree.total_bytes / 1e6, most / 1e6
    return UserError(
        f"{tree.root} is too large to be sent: {size:,.1f} MB, and {KEEP_BYTES} is {limit:,.1f} MB",
        f"the largest parts: {named}",
        f"leave them out: .orchignore; large data belongs into a bucket; or: orch config set {KEEP_BYTES} BYTES",
    )
