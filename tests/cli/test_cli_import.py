"""P8: what runs when a state folder is imported can be used and ended from the team's store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server

from orchestrator.store.read import open_reader_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.promise("P8")]

TASK = 'name: mine\nresources: {infra: "local:1"}\nrun: touch "$MARK"; sleep 300\n'


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Orch]:
    """Yield the orch of a person, whose cluster `mine` runs a job, and whose engine was killed."""
    (tmp_path / "task.yaml").write_text(TASK)
    orch = Orch(tmp_path, {"MARK": str(tmp_path / "mark")})
    orch.ok("launch", "task.yaml", "--yes", "--detach", "--env", "MARK")
    until("the program runs", (tmp_path / "mark").exists)
    orch.kill_engines()
    yield orch
    orch.kill_engines()


def test_imported_machines_are_used_and_ended_from_the_team_store(person: Orch, server: PostgresServer) -> None:
    team = Orch(person.folder, {**person.more, "ORCH_STORE": server.new_store()})
    imported = team("store", "import", str(team.state))
    assert imported.returncode == 0, imported.stderr
    assert team.ok("exec", "mine", "--", "echo", "hello").strip().endswith("hello")
    (found,) = json.loads(team.ok("status", "-o", "json"))["clusters"]
    assert (found["name"], found["owner"]) == ("mine", "orch"), "the login of the person who imported it"
    done = team("down", "mine", "--yes")
    assert done.returncode == 0, done.stderr
    assert json.loads(team.ok("status", "-o", "json"))["clusters"] == []
    assert not list(team.state.rglob("*.pid")), "a simulated machine is left"
    with open_reader_at(team.more["ORCH_STORE"]) as reader:
        assert not any("taken over" in event.what for event in reader.events("mine"))


def test_imported_machines_can_be_relabelled(person: Orch, server: PostgresServer) -> None:
    team = Orch(person.folder, {**person.more, "ORCH_STORE": server.new_store()})
    team.ok("store", "import", str(team.state))
    taken = team("recover", "mine", "--take-over", "--yes")
    assert taken.returncode == 0, taken.stderr
    assert team.ok("exec", "mine", "--", "echo", "hello").strip().endswith("hello")
    team.ok("down", "mine", "--yes")


def test_imported_machines_are_ended_when_the_team_store_is_read_only(person: Orch, server: PostgresServer) -> None:
    team = Orch(person.folder, {**person.more, "ORCH_STORE": server.new_store()})
    team.ok("store", "import", str(team.state))
    server.sql("ALTER DATABASE postgres SET default_transaction_read_only = on")
    try:
        done = team("down", "mine", "--yes")
    finally:
        server.sql(
            "SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only"
        )
    assert done.returncode == 1, done.stderr
    assert "the machines of 'mine' are deleted" in done.stderr, done.stderr
