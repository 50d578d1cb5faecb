"""Killed by SIGKILL at every point where it could matter, once or twice, every verb ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Counts, Place, matrix
from crash_verbs import VERBS, Verb, matrix_folder
from support.lanes import by_lane, spread
from support.proof import report

BY_NAME = {verb.name: verb for verb in VERBS}
CREATING = [BY_NAME["launch"], BY_NAME["resume"], BY_NAME["recover"]]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


def check(counts: Counts) -> None:
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.promise("P1")
@pytest.mark.timeout(120)
def test_a_launch_killed_at_a_lasting_change_continues_when_repeated(folder: Path) -> None:
    check(matrix(Place(folder), [BY_NAME["launch"]], points="distinct", kills=6))


@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(120)
def test_the_matrix_finds_a_second_slice_when_tokens_are_ignored(folder: Path) -> None:
    counts = matrix(Place(folder, honour_tokens=False), [BY_NAME["launch"]], points="distinct")
    assert any("had two slices" in what for what in counts.violations), counts
    assert any("no record wants" in what or "are on record" in what for what in counts.violations), counts


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P25")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", spread(VERBS))
def test_every_command_killed_anywhere_once_or_twice_leaks_nothing(folder: Path, verb: Verb) -> None:
    counts = matrix(Place(folder), [verb], doubles=by_lane(0.02, 1.0), kills=10)
    counts.report("SIGKILL at every crash point of every command, SQLite")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(900)
def test_the_matrix_finds_leaks_where_no_create_is_idempotent(folder: Path) -> None:
    counts = matrix(Place(folder, honour_tokens=False), CREATING, points="distinct")
    report(
        "the same with idempotency tokens switched off: it must find leaks",
        {"commands": counts.verbs, "kills": counts.singles, "leaks found": len(counts.violations)},
    )
    assert counts.violations
