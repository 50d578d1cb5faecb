#!/usr/bin/env python3
"""Say whether the tests of a stack are due: `scripts/due.py jax|xla` prints why and exits with 0, or exits with 1.

They are due when something changed that they watch, since the commit of docs/proofs.json or, without one in this
history, since the branch left origin's main; and on every fifth day, because what a package index serves changes too.
They watch what their files name or import, and everything that this imports. A file that starts a whole program names
its modules in its mark: `pytest.mark.xla("trainer.commands.compile")`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from support.lanes import STACK_DAYS, today

STACKS = ("jax", "xla")
OF_ALL = ("requirements/", "tests/support/", "tests/conftest.py", "pyproject.toml", "scripts/test")
NAME = re.compile(r"\b(?:trainer|orchestrator|orch_fronts)(?:\.\w+)+|\bscripts/[\w./-]*\w")  # of a module or a script


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in STACKS:
        print(__doc__)
        return 2
    why = reason(words[0], today())
    if why:
        print(f"the {words[0]} stack is due: {why}")
    return 0 if why else 1


def reason(stack: str, day: int) -> str:
    if is_regular_day(stack, day):
        return f"every {STACK_DAYS} days"
    base = next((commit for commit in [*proof_commits(), fork_point()] if is_ancestor(commit)), "")
    if not base:
        return "no earlier commit to compare with"
    changed = (
        git("diff", "--name-only", base).splitlines() + git("ls-files", "--others", "--exclude-standard").splitlines()
    )
    watched = files_of(stack)
    hits = [path for path in changed if path in watched or path.startswith(OF_ALL)]
    return f"{hits[0]} changed since {base[:9]}" if hits else ""


def is_regular_day(stack: str, day: int) -> bool:
    """Return whether a stack has its turn on a day, whatever changed."""
    return (day + STACKS.index(stack)) % STACK_DAYS == 0


def files_of(stack: str) -> set[str]:
    """Return the files that the tests of a stack watch: themselves, what they name, and all that this imports."""
    files = set(tests_of(stack))
    names = {name for file in files for name in NAME.findall(file.read_text())}
    beside = {file.with_name("conftest.py") for file in files}
    return {str(file.relative_to(ROOT)) for file in files | beside} | names | set(files_of_modules(names))


def tests_of(stack: str) -> Iterable[Path]:
    """Yield the files that carry the mark, and the other files beside them that they name."""
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text()
        if re.search(rf"mark\.{stack}\b", text):
            yield file
            yield from (one for one in file.parent.glob("*.py") if one.stem in text)


def files_of_modules(names: Iterable[str]) -> Iterable[str]:
    """Yield the files of the modules, of those within them, and of everything that they import, directly or not."""
    import grimp

    graph = grimp.build_graph("orchestrator", "trainer", "orch_fronts")
    for name in names:
        module = name if name in graph.modules else name.rpartition(".")[0]
        if module in graph.modules:
            within = {module, *graph.find_descendants(module)}
            for one in within.union(*map(graph.find_upstream_modules, within)):
                stem = re.sub("^orch_fronts", "tests/fronts/orch_fronts", one).replace(".", "/")
                yield from (f"{stem}.py", f"{stem}/__init__.py")


def proof_commits() -> list[str]:
    proofs = json.loads((ROOT / "docs" / "proofs.json").read_text())
    return [proof["commit"] for proof in sorted(proofs.values(), key=lambda proof: str(proof["date"]))]


def fork_point() -> str:
    """Return where the branch left origin's main; nothing on main itself, which cannot be compared with itself."""
    found = git("merge-base", "HEAD", "origin/HEAD")
    return found if found != git("rev-parse", "HEAD") else ""


def is_ancestor(commit: str) -> bool:
    words = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return bool(commit) and subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0


def git(*words: str) -> str:
    """Return what git prints; nothing when it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
