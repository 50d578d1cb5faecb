"""The crash matrix on PostgreSQL: killed at every other lasting change, in turn; ORCH_EVERY_POINT=1: at every point."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix import Place, matrix
from crash_verbs import VERBS, matrix_folder
from support.postgres import postgres_server
from support.proof import report

CREATING = [verb for verb in VERBS if verb.name in ("launch", "resume", "recover")]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P29")
@pytest.mark.timeout(900)
def test_every_verb_killed_anywhere_leaks_nothing_on_a_server_either(folder: Path) -> None:
    """Fewer kills than on SQLite, the others in turn: the server is slower, and the engine is the same."""
    points = "all" if os.environ.get("ORCH_EVERY_POINT") else "alternate"
    with postgres_server() as server:
        url = server.new_store()
        counts = matrix(Place(folder, server=url), VERBS, doubles=0.05, points=points)
        off = matrix(Place(folder / "off", False, url), CREATING, points="distinct")
    share = f"{points} points, a seeded share of the doubles"
    report(f"crash matrix on postgresql: {counts} ({share}); tokens off: {len(off.violations)} violations")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    assert off.violations
