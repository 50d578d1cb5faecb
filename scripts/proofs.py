#!/usr/bin/env python3
"""docs/proofs.json: what the full lane of the tests tried. The table of docs/promises.md is made from it.

scripts/proofs.py --add RECORDS   sum up the lines that tests reported (ORCH_PROOF_REPORT) and write both files
scripts/proofs.py --write         write the table again
scripts/proofs.py --age           exit with 1 and the reasons when the full lane is due
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

ROOT = Path(__file__).resolve().parent.parent
FILE, PAGE = ROOT / "docs" / "proofs.json", ROOT / "docs" / "promises.md"
BEGIN, END = "<!-- proofs: made by scripts/proofs.py -->", "<!-- proofs: end -->"
OLDEST = 14  # days

Proofs = dict[str, dict[str, Any]]


def main(words: list[str]) -> int:
    match words:
        case ["--add", records]:
            return add(Path(records))
        case ["--write"]:
            PAGE.write_text(with_table(PAGE.read_text(), load()))
            return 0
        case ["--age"]:
            reasons = out_of_date(load(), named_by_tests(), datetime.now(tz=UTC).date(), is_ancestor)
            print("\n".join(reasons))
            return 1 if reasons else 0
        case _:
            print(__doc__)
            return 2


def load() -> Proofs:
    return dict(json.loads(FILE.read_text()))


def add(records: Path) -> int:
    changed = git("status", "--porcelain", "--untracked-files=no").split("\n")
    if not git("rev-parse", "HEAD") or any(
        line and not line.endswith(("docs/proofs.json", "docs/promises.md")) for line in changed
    ):
        print("the tree has changes that are in no commit: nothing is written", file=sys.stderr)
        return 1
    at = {"date": datetime.now(tz=UTC).date().isoformat(), "commit": git("rev-parse", "HEAD")}
    proofs = load() | {name: {**at, **proof} for name, proof in summed(records.read_text().splitlines()).items()}
    FILE.write_text(json.dumps(proofs, indent=2, ensure_ascii=False) + "\n")
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


def named_by_tests() -> set[str]:
    """Return the names that tests report, each as far as it is written there (an f-string up to its first brace).

    They are the argument of `report`, or of `proof` and `proof_on_server` where a table declares them.
    """
    call = re.compile(r'\b(?:report\(\s*f?|proof(?:_on_server)?=)"([^"{]+)')
    return {name for file in (ROOT / "tests").rglob("*.py") for name in call.findall(file.read_text())}


def out_of_date(proofs: Proofs, named: Iterable[str], today: date, is_ancestor: Any) -> list[str]:
    """Return why the full lane is due, in sentences."""
    if not proofs:
        return ["docs/proofs.json is empty"]
    dates = [proof["date"] for proof in proofs.values()]
    age = (today - date.fromisoformat(min(dates))).days
    reasons = [f"docs/proofs.json is {age} days old (since {min(dates)})"] if age > OLDEST else []
    reasons += [f"docs/proofs.json names {max(dates)}, which is to come"] if max(dates) > today.isoformat() else []
    missing = [name for name in sorted(named) if not any(row.startswith(name) for row in proofs)]
    reasons += [f"docs/proofs.json has no row `{name}`, which a test reports" for name in missing]
    commits = sorted({proof["commit"] for proof in proofs.values()})
    reasons += [f"docs/proofs.json names {one[:12]}, no ancestor of HEAD" for one in commits if not is_ancestor(one)]
    return reasons


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
