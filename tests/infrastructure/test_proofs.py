"""docs/proofs.json, the table of docs/promises.md that is made from it, and the parts of the full lane that are due."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import proofs  # noqa: E402  # a script, and no part of a package
from watches import Watches  # noqa: E402  # likewise

PROOFS = {
    "histories": {"counts": {"kills": 1200}, "violations": 0, "date": "2026-11-01", "commit": "a" * 40},
    "kills": {"counts": {"kills": 3, "points": 2}, "violations": 1, "date": "2026-11-10", "commit": "b" * 40},
}


def test_the_page_has_the_table_of_the_proofs() -> None:
    page = proofs.PAGE.read_text()
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


PARTS = {
    "engine": {"date": "2026-11-01", "commit": "a" * 40},
    "store": {"date": "2026-11-10", "commit": "b" * 40},
}


@pytest.mark.parametrize(
    ("today", "missing", "due"),
    [
        (date(2026, 11, 15), "", []),
        (date(2026, 11, 16), "", ["engine"]),
        (date(2026, 11, 10), "b" * 40, ["store"]),
        (date(2026, 12, 2), "b" * 40, ["engine", "store"]),
        (date(2026, 11, 9), "", ["store"]),  # recorded on the day after
    ],
)
def test_a_part_is_due_by_age_and_by_history(today: date, missing: str, due: list[str]) -> None:
    reasons = proofs.out_of_date(PARTS, ["engine", "store"], today, lambda commit: commit != missing)
    assert list(reasons) == due and all(reasons.values())


def test_a_part_that_was_never_green_is_due() -> None:
    due = proofs.out_of_date(PARTS, ["engine", "cli"], date(2026, 11, 10), lambda _: True)
    assert due == {"cli": "never green"}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which every part is green today, and every proof has its row."""
    at = {"date": proofs.datetime.now(tz=proofs.UTC).date().isoformat(), "commit": proofs.git("rev-parse", "HEAD")}
    watches = Watches.load(ROOT)
    parts = [proofs.CHECKS, *(folder.part for folder in watches.folders.values()), *watches.mutated]
    rows = {name: {**at, "counts": {}, "violations": 0} for name in proofs.named_by_tests()}
    file = tmp_path / "proofs.json"
    file.write_text(json.dumps({"parts": dict.fromkeys(parts, at), "proofs": rows}))
    monkeypatch.setattr(proofs, "FILE", file)
    return file


def test_a_part_is_due_for_a_proof_that_was_never_run(recorded: Path) -> None:
    assert proofs.due_lines() == []
    record = json.loads(recorded.read_text())
    name = next(name for name, folder in proofs.named_by_tests().items() if folder == "front_engine")
    del record["proofs"][name], record["parts"]["cli"]
    recorded.write_text(json.dumps(record))
    assert proofs.due_lines() == [
        "never green: scripts/test --full cli",
        f"docs/proofs.json has no row `{name}`: scripts/test --full crashes",
    ]


def test_every_row_is_named_by_a_test_or_a_part() -> None:
    """So that a proof is found, however its test writes the name; and a row without a test is deleted."""
    named = [*proofs.named_by_tests(), *(part.proof for part in Watches.load(ROOT).mutated.values())]
    assert [row for row in proofs.load() if not any(row.startswith(name) for name in named)] == []
    assert all(len(name) > 15 for name in named), "a prefix that fits to one row only"


def test_a_clone_without_history_is_judged_by_age_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "git", lambda *words: "true")
    assert proofs.is_ancestor("a" * 40)
    monkeypatch.setattr(proofs, "git", lambda *words: "false")
    assert not proofs.is_ancestor("a" * 40)
