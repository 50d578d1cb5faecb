#!/usr/bin/env python3
"""tests/green.toml: the trees of which a set of tests was green. `scripts/test --changed` compares with the newest.

scripts/green.py --base    print the commit with which `--changed` compares; exit with 1 without one
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "tests/green.toml"
CHANGED = "changed"  # the set of which every test that the change could break is part
OLDEST = 300  # ancestors that are compared
KEPT = 60  # lines
HEAD = (
    "# Trees of which a set of tests was green. scripts/test --changed writes and reads this file (tests/README.md).\n"
)


def main(words: list[str]) -> int:
    if words != ["--base"]:
        print(__doc__)
        return 2
    base = Green(ROOT).base()
    print(base or f"no ancestor of this tree has a line of the set '{CHANGED}' in {NAME}")
    return 0 if base else 1


@dataclass(frozen=True)
class Line:
    """A set of tests that was green. tree: see `Green.digest`."""

    tree: str
    date: date
    set: str


@dataclass(frozen=True)
class Green:
    """The lines of a checkout, and its tree as it lies there: uncommitted and untracked files count."""

    root: Path

    def lines(self) -> list[Line]:
        file = self.root / NAME
        return [Line(**one) for one in tomllib.loads(file.read_text("utf-8")).get("green", [])] if file.exists() else []

    def record(self, tree: str, set_: str) -> None:
        """Add a line, which replaces the one of the same tree and set; one of `CHANGED` replaces those of its parts."""
        replaced = {line for line in self.lines() if line.tree == tree and set_ in (line.set, CHANGED)}
        kept = [line for line in self.lines() if line not in replaced][-KEPT + 1 :]
        lines = [*kept, Line(tree, datetime.now(tz=UTC).date(), set_)]
        rows = (f'[[green]]\ntree = "{line.tree}"\ndate = {line.date}\nset = "{line.set}"\n' for line in lines)
        (self.root / NAME).write_text("\n".join([HEAD, *rows]), "utf-8")

    def sets_of(self, tree: str) -> set[str]:
        return {line.set for line in self.lines() if line.tree == tree}

    def base(self) -> str:
        """Return the newest ancestor with another tree of which the set `CHANGED` was green; "" without one."""
        green = {line.tree for line in self.lines() if line.set == CHANGED} - {self.digest(self.tree())}
        ancestors = self.git("log", "--format=%H", f"-n{OLDEST}").split() if green else []
        return next((commit for commit in ancestors if self.digest(commit) in green), "")

    def tree(self) -> str:
        """Return git's tree of the files as they lie in the folder, without those that git ignores."""
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder) / "index"
            own = self.root / self.git("rev-parse", "--git-path", "index")
            if own.exists():
                shutil.copy2(own, index)
            self.git("add", "--all", GIT_INDEX_FILE=str(index))
            return self.git("write-tree", GIT_INDEX_FILE=str(index))

    def digest(self, tree: str) -> str:
        """Return a digest of a commit or tree without the file of the lines itself."""
        outside = [line for line in self.git("ls-tree", tree).splitlines() if not line.endswith("\ttests")]
        tests = self.git("ls-tree", f"{tree}:tests").splitlines() if self.git("ls-tree", tree, "tests") else []
        inside = [line for line in tests if not line.endswith(f"\t{Path(NAME).name}")]
        return hashlib.sha256("\n".join([*outside, "tests:", *inside]).encode()).hexdigest()

    def changed_paths(self, base: str) -> list[str]:
        """Return the paths that differ from a commit; of a renamed file the old one and the new one."""
        return [path for path in self._diff(base) if path != NAME]

    def _diff(self, base: str) -> Iterator[str]:
        fields = iter(self.git("diff", "--name-status", "-z", "-M", base, self.tree()).split("\0"))
        for status in fields:
            if status:
                yield next(fields)
                if status.startswith(("R", "C")):
                    yield next(fields)

    def git(self, *words: str, **env: str) -> str:
        command = ["git", *words]
        done = subprocess.run(
            command, cwd=self.root, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
