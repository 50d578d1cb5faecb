#!/usr/bin/env python3
"""docs/proofs.json: when each part of the full lane was green, and what it tried.

The table of docs/promises.md is made from it.

scripts/proofs.py --add RECORDS   sum up the lines that tests reported (ORCH_PROOF_REPORT) and write both files
scripts/proofs.py --write         write the table again
scripts/proofs.py --age           exit with 1 and the reasons when parts of the full lane are due
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from watches import Watches

ROOT = Path(__file__).resolve().parent.parent
FILE, PAGE = ROOT / "docs" / "proofs.json", ROOT / "docs" / "promises.md"
BEGIN, END = "<!-- proofs: made by scripts/proofs.py -->", "<!-- proofs: end -->"
OLDEST = 14  # days
CHECKS = "checks"  # the part without a folder of tests: static checks and type checkers

Proofs = dict[str, dict[str, Any]]


def main(words: list[str]) -> int:
    match words:
        case ["--add", records]:
            return add(Path(records))
        case ["--write"]:
            PAGE.write_text(with_table(PAGE.read_text(), load()))
            return 0
        case ["--age"]:
            lines = due_lines()
            print("\n".join(lines))
            return 1 if lines else 0
        case _:
            print(__doc__)
            return 2


def load() -> Proofs:
    """Return the rows of the table."""
    return dict(json.loads(FILE.read_text())["proofs"])


def load_parts() -> Proofs:
    """Return when each part of the full lane was green, and at which commit."""
    return dict(json.loads(FILE.read_text())["parts"])


def add(records: Path, part: str = "") -> int:
    """Write what was tried at HEAD, and that a part of the full lane was green there."""
    changed = git("status", "--porcelain", "--untracked-files=no").split("\n")
    if not git("rev-parse", "HEAD") or any(
        line and not line.endswith(("docs/proofs.json", "docs/promises.md")) for line in changed
    ):
        print("the tree has changes that are in no commit: nothing is written", file=sys.stderr)
        return 1
    at = {"date": datetime.now(tz=UTC).date().isoformat(), "commit": git("rev-parse", "HEAD")}
    proofs = load() | {name: {**at, **proof} for name, proof in summed(records.read_text().splitlines()).items()}
    parts = load_parts() | ({part: at} if part else {})
    FILE.write_text(json.dumps({"parts": parts, "proofs": proofs}, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), proofs))
    return 0


def summed(lines: Iterable[str]) -> Proofs:
    """Add up the records of each proof: numbers are summed, names are united and counted."""
    numbers: dict[str, dict[str, int]] = {}
    names: dict[str, dict[str, set[str]]] = {}
    violations: dict[str, int] = {}
    for record in map(json.loads, lines):
        proof = record["name"]
        violations[proof] = violations.get(proof, 0) + record["violations"]
        for what, many in record["counts"].items():
            total = numbers.setdefault(proof, {})
            if isinstance(many, int):
                total[what] = total.get(what, 0) + many
            else:
                seen = names.setdefault(proof, {}).setdefault(what, set())
                seen.update(many)
                total[what] = len(seen)
    return {name: {"counts": numbers[name], "violations": violations[name]} for name in sorted(numbers)}


def named_by_tests() -> dict[str, str]:
    """Return the names that tests report, each with the folder of the test.

    A name is as far as it is written there (an f-string up to its first brace). It is the argument of `report`, or of
    `proof` and `proof_on_server` where a table declares them.
    """
    call = re.compile(r'\b(?:report\(\s*f?|proof(?:_on_server)?=)"([^"{]+)')
    files = sorted((ROOT / "tests").glob("*/*.py"))
    return {name: file.parent.name for file in files for name in call.findall(file.read_text())}


def due_parts() -> dict[str, str]:
    """Return the parts of the full lane that are due, each with the reason."""
    watches = Watches.load(ROOT)
    folders = watches.folders
    parts = [CHECKS, *dict.fromkeys(folder.part for folder in folders.values()), *watches.mutated]
    due = out_of_date(load_parts(), parts, datetime.now(tz=UTC).date(), is_ancestor)
    rows = load()
    for name, folder in named_by_tests().items():
        if folder in folders and not any(row.startswith(name) for row in rows):
            due.setdefault(folders[folder].part, f"docs/proofs.json has no row `{name}`")
    return due


def due_lines() -> list[str]:
    """Return one line for each reason, with the command that runs its parts."""
    due = due_parts()
    by_reason = {reason: [part for part in due if due[part] == reason] for reason in dict.fromkeys(due.values())}
    return [f"{reason}: scripts/test --full {' '.join(parts)}" for reason, parts in by_reason.items()]


def out_of_date(recorded: Proofs, parts: Iterable[str], today: date, is_ancestor: Any) -> dict[str, str]:
    """Return the parts that were not green in an ancestor of HEAD within the last days, each with the reason."""
    due: dict[str, str] = {}
    for part in parts:
        row = recorded.get(part)
        age = (today - date.fromisoformat(row["date"])).days if row else 0
        if row is None:
            due[part] = "never green"
        elif age > OLDEST:
            due[part] = f"older than {OLDEST} days"
        elif age < 0:
            due[part] = "recorded for a day to come"
        elif not is_ancestor(row["commit"]):
            due[part] = f"green at {row['commit'][:12]}, no ancestor of HEAD"
    return due


def is_ancestor(commit: str) -> bool:
    """Return whether the commit is in HEAD's history; True where there is no whole history to judge by."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return True
    words = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0


def with_table(page: str, proofs: Proofs) -> str:
    """Return the page with the table made from the proofs."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(proofs)}\n{END}{tail}"


def table(proofs: Proofs) -> str:
    rows = ["| what | tried | violations | when, at |", "| --- | --- | --- | --- |"]
    for name, proof in proofs.items():
        tried = ", ".join(f"{many:,} {what}" for what, many in proof["counts"].items())
        rows.append(f"| {name} | {tried} | {proof['violations']} | {proof['date']}, `{proof['commit'][:9]}` |")
    return "\n".join(rows)


def git(*words: str) -> str:
    """Return what git prints; nothing when it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
