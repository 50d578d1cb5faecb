"""Killed by SIGKILL at every point where it could matter, once or twice, every verb ends as if nothing had happened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_matrix import Counts, Place, matrix
from crash_verbs import VERBS, matrix_folder
from support.proof import report

BY_NAME = {verb.name: verb for verb in VERBS}
CREATING = [BY_NAME["launch"], BY_NAME["resume"], BY_NAME["recover"]]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


def tell(what: str, counts: Counts, say: Callable[[str], None]) -> None:
    say(f"crash matrix on {what}: {counts}")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.promise("P1")
@pytest.mark.timeout(120)
def test_a_launch_killed_where_something_lasting_changes_goes_on_when_it_is_given_again(folder: Path) -> None:
    tell("sqlite, launch", matrix(Place(folder), [BY_NAME["launch"]], points="distinct"), print)


@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(120)
def test_the_matrix_sees_a_second_slice_when_tokens_are_not_honoured(folder: Path) -> None:
    counts = matrix(Place(folder, honour_tokens=False), [BY_NAME["launch"]], points="distinct")
    assert any("had two slices" in what for what in counts.violations), counts
    assert any("no record wants" in what or "are on record" in what for what in counts.violations), counts


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P25")
@pytest.mark.timeout(900)
def test_every_verb_killed_anywhere_once_or_twice_leaks_nothing(folder: Path) -> None:
    doubles = 1.0 if os.environ.get("ORCH_EVERY_POINT") else 0.1
    counts = matrix(Place(folder), VERBS, doubles=doubles)
    off = matrix(Place(folder / "off", honour_tokens=False), CREATING, points="distinct")
    report(f"crash matrix on sqlite: {counts}; tokens off: {len(off.violations)} violations")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    assert off.violations
