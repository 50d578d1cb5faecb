"""docs/proofs.json, README's table that is made from it, and when the full lane and the stacks are due."""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import due  # noqa: E402  # a script, and no part of a package
import proofs  # noqa: E402  # likewise

PROOFS = {
    "histories": {"counts": {"kills": 1200}, "violations": 0, "date": "2026-11-01", "commit": "a" * 40},
    "kills": {"counts": {"kills": 3, "points": 2}, "violations": 1, "date": "2026-11-10", "commit": "b" * 40},
}


def test_readme_has_the_table_of_the_proofs() -> None:
    page = (ROOT / "README.md").read_text()
    assert proofs.with_table(page, proofs.load()) == page, "run scripts/proofs.py --write"


def test_records_of_one_proof_are_added_up_and_names_counted_once() -> None:
    records = [
        {"name": "k", "counts": {"kills": 2, "points": ["a", "b"]}, "violations": 0},
        {"name": "h", "counts": {"kills": 9}, "violations": 0},
        {"name": "k", "counts": {"kills": 3, "points": ["b", "c"]}, "violations": 1},
    ]
    assert proofs.summed(map(json.dumps, records)) == {
        "h": {"counts": {"kills": 9}, "violations": 0},
        "k": {"counts": {"kills": 5, "points": 3}, "violations": 1},
    }


def test_the_table_says_what_how_many_when_and_at_which_commit() -> None:
    page = proofs.with_table(f"head\n{proofs.BEGIN}\nold\n{proofs.END}\ntail\n", PROOFS)
    assert page.startswith("head\n") and page.endswith("\ntail\n") and "old" not in page
    assert "| histories | 1,200 kills | 0 | 2026-11-01, `aaaaaaaaa` |" in page
    assert "| kills | 3 kills, 2 points | 1 | 2026-11-10, `bbbbbbbbb` |" in page


@pytest.mark.parametrize(
    ("today", "missing", "reasons"),
    [
        (date(2026, 11, 15), "", 0),
        (date(2026, 11, 16), "", 1),
        (date(2026, 11, 2), "b" * 40, 1),
        (date(2026, 12, 2), "b" * 40, 2),
    ],
)
def test_the_full_lane_is_due_by_age_and_by_history(today: date, missing: str, reasons: int) -> None:
    assert len(proofs.out_of_date(PROOFS, today, lambda commit: commit != missing)) == reasons


def test_without_any_proof_the_full_lane_is_due() -> None:
    assert proofs.out_of_date({}, date(2026, 11, 1), lambda _: True)


def test_a_stack_watches_what_it_imports_and_no_other_engine() -> None:
    watched = due.files_of(["trainer.jax_engine"])
    assert {"trainer/jax_engine/__init__.py", "trainer/shape/mesh.py", "trainer/config.py"} <= watched
    assert not [path for path in watched if path.startswith(("trainer/torch_engine", "orchestrator/"))]
    assert all((ROOT / folder).exists() for _, folders in due.STACKS.values() for folder in folders)


def test_every_stack_has_its_day_and_is_due_by_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = "trainer/jax_engine/__init__.py"
    answers = {"diff": changed, "merge-base": "a" * 40}
    monkeypatch.setattr(due, "git", lambda *words: answers.get(words[0], ""))
    monkeypatch.setattr(due, "is_ancestor", bool)
    assert "days" in due.reason("jax", 5 * due.EVERY)
    assert re.fullmatch(rf"{changed} changed since [0-9a-f]{{9}}", due.reason("jax", 1))
    assert due.reason("xla", 1) == ""


def test_a_clone_without_history_is_judged_by_age_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "git", lambda *words: "true")
    assert proofs.is_ancestor("a" * 40)
    monkeypatch.setattr(proofs, "git", lambda *words: "false")
    assert not proofs.is_ancestor("a" * 40)
