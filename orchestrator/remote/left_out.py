"""Files of a folder that are not sent to the hosts, and why: git ignores them, or .orchignore does. Local only."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.remote.tree import IGNORE_FILE, Tree, is_in_git, read_ignore_rule, run_git

# Files that are counted in all, and of one folder, such as an environment: every plan waits for it.
_COUNTED, _COUNTED_EACH = 10_000, 2_000
# What programs make again by themselves: no program on a host misses it.
_MADE_AGAIN = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store", ".git"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One file, or one folder with all that is in it.

    Attributes:
        path: Below the root; that of a folder ends with "/".
        reason: Why it is not sent, such as `git ignores`.
        files: How many files that are.
        size: Bytes of these files.
        environment: Whether it is a virtual environment of Python.
        is_more: Whether there may be more than was counted.
    """

    path: str
    reason: str
    files: int
    size: int
    environment: bool = False
    is_more: bool = False


def list_left_out(tree: Tree) -> tuple[LeftOut, ...]:
    """Return what of a tree's folder is not in it, without what programs make again by themselves."""
    root = tree.root
    if not root.is_dir():
        return ()
    sent = {parent for file in tree.files for parent in list_parents(file.path)}
    paths: dict[str, str] = {}
    inner = [path for path in sorted(sent) if (root / path / ".git").exists()]  # submodules, other repositories
    ignored = [posixpath.join(path, name) for path in ("", *inner) for name in _list_ignored(root / path)]
    for name in ignored:  # git lists a folder before what is in it
        within = any(f"{parent}/" in paths for parent in list_parents(name.rstrip("/")))
        if not within and name.rstrip("/") not in sent:
            paths[name] = "git ignores"
    for name in _list_excluded(root, read_ignore_rule(root), frozenset(paths)):
        paths[name] = f"{IGNORE_FILE} excludes"
    counted, found = 0, list[LeftOut]()
    for name, reason in paths.items():
        if not _is_made_again(name):
            most = min(_COUNTED - counted, _COUNTED_EACH)
            files, size = _measure(root / name, most)
            counted += files
            environment = (root / name / "pyvenv.cfg").exists()  # PEP 405
            found.append(
                LeftOut(
                    path=name, reason=reason, files=files, size=size, environment=environment, is_more=files >= most > 1
                )
            )
    return tuple(found)


def list_parents(path: str) -> Iterator[str]:
    """Yield the folders of a path, from the inner to the outer."""
    while path := posixpath.dirname(path):
        yield path


def _is_made_again(name: str) -> bool:
    last = name.rstrip("/").rpartition("/")[2]
    return last in _MADE_AGAIN or last.endswith((".pyc", ".egg-info"))


def _list_ignored(root: Path) -> list[str]:
    """Return what git ignores: a folder of which it ignores everything, once; nothing where it ignores `root`."""
    if not is_in_git(root):
        return []
    listed = run_git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    return [os.fsdecode(name) for name in listed.split(b"\0") if name and name != b"./"]


def _list_excluded(root: Path, excludes: Callable[[str], bool], known: frozenset[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root).as_posix()
        below = "" if here == "." else f"{here}/"
        folders[:] = [name for name in folders if name != ".git" and f"{below}{name}/" not in known]
        yield from (path for name in folders if excludes(path := f"{below}{name}/"))
        folders[:] = [name for name in folders if not excludes(f"{below}{name}/")]
        yield from (path for name in names if (path := f"{below}{name}") not in known and excludes(path))


def _measure(path: Path, most: int) -> tuple[int, int]:
    """Return how many files there are, at most `most`, and their bytes."""
    if path.is_symlink() or not path.is_dir():
        return 1, path.lstat().st_size if os.path.lexists(path) else 0
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if files >= most:
                return files, size
            files, size = files + 1, size + _size_of(f"{folder}/{name}")
    return files, size


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # deleted meanwhile
        return 0
