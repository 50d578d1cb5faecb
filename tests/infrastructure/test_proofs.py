"""docs/proofs.json, the table of docs/promises.md that is made from it, and when the full lane is due."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
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


@pytest.mark.parametrize(
    ("today", "missing", "reasons"),
    [
        (date(2026, 11, 15), "", 0),
        (date(2026, 11, 16), "", 1),
        (date(2026, 11, 10), "b" * 40, 1),
        (date(2026, 12, 2), "b" * 40, 2),
        (date(2026, 11, 9), "", 1),  # the newest is of the day after
    ],
)
def test_the_full_lane_is_due_by_age_and_by_history(today: date, missing: str, reasons: int) -> None:
    assert len(proofs.out_of_date(PROOFS, ["hist", "kills"], today, lambda commit: commit != missing)) == reasons


def test_the_full_lane_is_due_for_a_proof_that_was_never_run() -> None:
    named = {"histories", "kills", "kills on PostgreSQL"}
    (reason,) = proofs.out_of_date(PROOFS, named, date(2026, 11, 10), lambda _: True)
    assert "no row `kills on PostgreSQL`" in reason


def test_every_row_is_named_by_a_test() -> None:
    """So that a proof is found, however its test writes the name; and a row without a test is deleted."""
    named = proofs.named_by_tests()
    assert [row for row in proofs.load() if not any(row.startswith(name) for name in named)] == []
    assert all(len(name) > 15 for name in named), "a prefix that fits to one row only"


def test_without_any_proof_the_full_lane_is_due() -> None:
    assert proofs.out_of_date({}, [], date(2026, 11, 1), lambda _: True)


WATCHED = {
    "jax": {
        "trainer/jax_engine/__init__.py",
        "trainer/shape/mesh.py",
        "trainer/torch_engine/engine.py",  # the other engines, with which it is compared
        "trainer/commands/train.py",
        "tests/trainer_jax/jax_world.py",
        "tests/trainer_jax/conftest.py",
        "scripts/bench/worlds.py",
    },
    "xla": {
        "trainer/xla_engine/engine.py",
        "trainer/commands/compile.py",
        "trainer/jax_engine/ahead_of_time.py",
        "trainer/torch_engine/rehearsal.py",
        "orchestrator/plan/preview_advice.py",
        "orchestrator/engine/training/compilation.py",
        "tests/trainer_xla/xla_process.py",
        "tests/engine/test_advice_compile.py",
        "scripts/tpu-compiler",
        "scripts/xla-env",
    },
}


@pytest.mark.parametrize("stack", due.STACKS)
def test_a_stack_watches_its_tests_and_what_they_name_import_and_run(stack: str) -> None:
    watched = due.files_of(stack)
    assert watched >= WATCHED[stack]
    assert not [path for path in watched if path.startswith(("orchestrator/cli", "orchestrator/providers"))]


def test_what_a_mark_names_exists() -> None:
    marks = re.compile(r"(?:mark\.(?:jax|xla)|^RUNS = )\(([^)]*)\)", re.M)
    files = {file for stack in due.STACKS for file in due.tests_of(stack)}
    named = [
        name for file in files for words in marks.findall(file.read_text()) for name in re.findall(r'"(.+?)"', words)
    ]
    assert len(named) >= 8
    for name in named:
        path = ROOT / (name if "/" in name else name.replace(".", "/"))
        assert path.exists() or path.with_suffix(".py").exists(), name
    assert all((ROOT / path).exists() for path in due.OF_ALL)


@pytest.mark.parametrize(
    ("changed", "stacks"),
    [
        ("trainer/jax_engine/step.py", ["jax", "xla"]),
        ("trainer/xla_engine/engine.py", ["jax", "xla"]),
        ("tests/trainer_jax/conftest.py", ["jax"]),
        ("orchestrator/plan/preview_advice.py", ["xla"]),
        ("tests/conftest.py", ["jax", "xla"]),
        ("orchestrator/cli/app.py", []),
    ],
)
def test_every_stack_is_due_by_what_changed(changed: str, stacks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"diff": changed, "merge-base": "a" * 40}
    monkeypatch.setattr(due, "git", lambda *words: answers.get(words[0], ""))
    monkeypatch.setattr(due, "is_ancestor", bool)
    reasons = {stack: due.reason(stack, 1) for stack in due.STACKS}
    assert [stack for stack, reason in reasons.items() if reason] == stacks
    assert all(re.fullmatch(rf"{changed} changed since [0-9a-f]{{9}}", reasons[stack]) for stack in stacks)


def test_every_stack_has_its_days() -> None:
    for stack in due.STACKS:
        days = [day for day in range(60) if due.is_regular_day(stack, day)]
        assert due.reason(stack, days[0]).startswith("every")
        assert len(days) == 12 and {one - before for before, one in itertools.pairwise(days)} == {due.STACK_DAYS}


def test_a_stack_is_due_where_no_earlier_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is in a clone without history, also where its only commit is that of origin's main."""
    clone = ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(tmp_path / "shallow")]
    subprocess.run(clone, check=True)
    monkeypatch.setattr(due, "ROOT", tmp_path / "shallow")
    assert due.reason("jax", 1) == "no earlier commit to compare with"


def test_a_clone_without_history_is_judged_by_age_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "git", lambda *words: "true")
    assert proofs.is_ancestor("a" * 40)
    monkeypatch.setattr(proofs, "git", lambda *words: "false")
    assert not proofs.is_ancestor("a" * 40)
