"""tests/watches.toml: the packages, templates and data that each folder of tests watches, and the full lane's parts.

A folder runs with `scripts/test --changed` when a path changed that it watches. It always watches itself, the modules
of tests/support that it names, directly or through others of them, and what `everywhere` lists.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = "tests/support/"
# A module of tests/support is imported, or a file or folder of it is named in a string.
_NAMED = re.compile(r"""support[./](\w+)|from support import ([\w, ]+)|["'/](\w+)(?:\.py)?["']""")


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of tests.

    Attributes:
        name: Below tests/.
        part: Of the full lane.
        minutes: Of its tests with `--changed`, on two cores.
        watches: Files and folders, relative to the checkout; "." for all.
    """

    name: str
    part: str
    minutes: float
    watches: tuple[str, ...]

    def covers(self, path: str) -> bool:
        return is_below(path, (*self.watches, f"tests/{self.name}"))


@dataclass(frozen=True, kw_only=True)
class MutatedPart:
    """A part of the full lane that puts faults into the product: scripts/mutants.py.

    Attributes:
        name: Of the part.
        what: The part of the product that has the faults; for readers.
        files: Patterns of its files.
        tests: Folders that have to notice the faults.
    """

    name: str
    what: str
    files: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def proof(self) -> str:
        """Name of its row in docs/proofs.json."""
        return f"faults put into {self.what}, one at a time: its tests notice them"


@dataclass(frozen=True)
class Watches:
    """The table of a checkout."""

    root: Path
    everywhere: tuple[str, ...]
    folders: dict[str, Folder]
    mutated: dict[str, MutatedPart]
    _named: dict[str, set[str]] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, root: Path = ROOT) -> Watches:
        table = tomllib.loads((root / "tests" / "watches.toml").read_text("utf-8"))
        groups = {f"+{name}": paths for name, paths in table["groups"].items()}

        def expand(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(path for name in names for path in groups.get(name, [name]))

        folders = {
            name: Folder(name=name, part=row["part"], minutes=row["minutes"], watches=expand(row["watches"]))
            for name, row in table["folders"].items()
        }
        mutated = {
            f"mutants-{name}": MutatedPart(
                name=f"mutants-{name}", what=row["what"], files=tuple(row["files"]), tests=tuple(row["tests"])
            )
            for name, row in table.get("mutants", {}).items()
        }
        return cls(root, tuple(table["everywhere"]), folders, mutated)

    def touched(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the folders that watch one of the changed paths, each with the first of them."""
        first: dict[str, str] = {}
        for path in paths:
            for folder in self.folders.values():
                if folder.name not in first and self.watches(folder, path):
                    first[folder.name] = path
        return {name: first[name] for name in self.folders if name in first}

    def watches(self, folder: Folder, path: str) -> bool:
        if folder.covers(path) or is_below(path, self.everywhere):
            return True
        module = Path(path.removeprefix(SUPPORT).partition("/")[0]).stem
        return path.startswith(SUPPORT) and module in self.support_of(folder)

    def missing(self, name: str, opened: Iterable[str]) -> list[str]:
        """Return the files that the processes of a folder opened and that its row does not cover."""
        folder = self.folders[name]
        return sorted(path for path in set(opened) if not self.watches(folder, path))

    def support_of(self, folder: Folder) -> set[str]:
        """Return what a folder names of tests/support, also by way of other modules or of folders that it watches."""
        if folder.name not in self._named:
            self._named[folder.name] = self._find_support(folder)
        return self._named[folder.name]

    def _find_support(self, folder: Folder) -> set[str]:
        named: set[str] = set()
        places = [f"tests/{folder.name}", *(place for place in folder.watches if place.startswith("tests/"))]
        texts = [path.read_text("utf-8") for place in places for path in (self.root / place).rglob("*.py")]
        texts.append((self.root / "tests" / "conftest.py").read_text("utf-8"))
        while texts:
            words = {word for found in _NAMED.findall(texts.pop()) for word in re.findall(r"\w+", "".join(found))}
            new = (words & self._support.keys()) - named
            named |= new
            texts += [self._support[name] for name in new]
        return named

    @cached_property
    def _support(self) -> dict[str, str]:
        """Name of each module and folder of tests/support -> its text."""
        return {
            path.stem: path.read_text("utf-8") if path.is_file() else ""
            for path in (self.root / SUPPORT).iterdir()
            if path.name != "__pycache__"
        }


def is_below(path: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of the places, or below one. `x/*.py` has the files of x, and not those below it."""
    return any(
        place in (".", path) or path.startswith(f"{place}/") or ("*" in place and PurePosixPath(path).match(place))
        for place in places
    )
