"""A store to write runs to, on SQLite; tests that take `location` run on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from receivers import MailReceiver, WebReceiver, mail_receiver, web_receiver
from run_history import Clock, History
from support.postgres import PostgresServer, postgres_server

from orchestrator.store.location import Location
from orchestrator.store.store import Store


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("ORCH_HOME", str(home))
    for name in ("ORCH_STORE", "ORCH_PROJECT", "ORCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    home.mkdir()
    return home


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def mail() -> Iterator[MailReceiver]:
    with mail_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, own_home: Path) -> Location:
    if request.param == "sqlite":
        return own_home / "state" / "orch.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_store()


@pytest.fixture
def history(own_home: Path) -> Iterator[History]:
    clock = Clock()
    with Store(own_home / "state" / "orch.db", clock) as store:
        yield History(store, clock)
