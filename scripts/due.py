#!/usr/bin/env python3
"""Say whether the tests of a stack are due: `scripts/due.py jax|xla` prints why and exits with 0, or exits with 1.

They are due when something changed that they import, since the commit of docs/proofs.json or, without one in this
history, since the branch left origin's main; and on every fifth day, because what a package index serves changes too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVERY = 5  # days
STACKS = {
    "jax": (["trainer.jax_engine"], ["tests/trainer_jax/", "tests/trainer_engines/", "requirements/"]),
    "xla": (
        ["trainer.xla_engine"],
        ["tests/trainer_xla/", "requirements/", "scripts/xla-env", "scripts/tpu-compiler"],
    ),
}


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in STACKS:
        print(__doc__)
        return 2
    why = reason(words[0], int(time.time() // 86_400))
    if why:
        print(f"the {words[0]} stack is due: {why}")
    return 0 if why else 1


def reason(stack: str, day: int) -> str:
    packages, folders = STACKS[stack]
    if (day + list(STACKS).index(stack)) % EVERY == 0:
        return f"every {EVERY} days"
    base = next((commit for commit in [*proof_commits(), fork_point()] if is_ancestor(commit)), "")
    if not base:  # a clone without history has its day, and no more
        return "no earlier commit to compare with" if git("rev-parse", "--is-shallow-repository") == "false" else ""
    changed = (
        git("diff", "--name-only", base).splitlines() + git("ls-files", "--others", "--exclude-standard").splitlines()
    )
    watched = files_of(packages)
    hits = [path for path in changed if path in watched or path.startswith(tuple(folders))]
    return f"{hits[0]} changed since {base[:9]}" if hits else ""


def files_of(packages: list[str]) -> set[str]:
    """Return the files of the packages and of everything that they import, directly or not."""
    import grimp

    graph = grimp.build_graph("orchestrator", "trainer")
    modules = {module for package in packages for module in (package, *graph.find_descendants(package))}
    modules |= {upstream for module in modules for upstream in graph.find_upstream_modules(module)}
    stems = [module.replace(".", "/") for module in modules]
    return {f"{stem}.py" for stem in stems} | {f"{stem}/__init__.py" for stem in stems}


def proof_commits() -> list[str]:
    proofs = json.loads((ROOT / "docs" / "proofs.json").read_text())
    return [proof["commit"] for proof in sorted(proofs.values(), key=lambda proof: str(proof["date"]))]


def fork_point() -> str:
    return git("merge-base", "HEAD", "origin/HEAD")


def is_ancestor(commit: str) -> bool:
    words = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return bool(commit) and subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0


def git(*words: str) -> str:
    """Return what git prints; nothing when it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
