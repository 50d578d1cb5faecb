"""The crash matrix on PostgreSQL: a few kills of each verb in turn, and in the full lane at every point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Place, matrix
from crash_verbs import VERBS, Verb, matrix_folder
from support.lanes import by_lane, spread
from support.postgres import postgres_server

CREATING = [verb for verb in VERBS if verb.name in ("launch", "resume", "recover")]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P29")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", spread(VERBS))
def test_every_command_killed_anywhere_leaks_nothing_on_a_server_either(folder: Path, verb: Verb) -> None:
    with postgres_server() as server:
        counts = matrix(Place(folder, server=server.new_store()), [verb], doubles=by_lane(0.0, 0.7), kills=2)
    counts.report("the same on PostgreSQL")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(900)
def test_the_matrix_finds_leaks_on_a_server_where_no_create_is_idempotent(folder: Path) -> None:
    with postgres_server() as server:
        counts = matrix(Place(folder, False, server.new_store()), CREATING, points="distinct")
    assert counts.violations
