"""Every test that takes `location` runs on both databases: a SQLite file and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer, postgres_server

from orchestrator.store.location import Location


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this computer has seen of a store on PostgreSQL lies in its state folder."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "home"))


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty store's place."""
    if request.param == "sqlite":
        return tmp_path / "deep" / "orch.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_store()
