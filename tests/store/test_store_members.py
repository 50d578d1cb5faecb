"""A member's login of PostgreSQL: what it may do, what it may not, and who its events name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from store_history import METHODS, Step, histories, play
from support.postgres import PostgresServer
from test_store_audit import audit_of

from orchestrator.errors import UserError
from orchestrator.store.failures import StoreError
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.provider_records import StoredRecords
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P25")


@dataclass(frozen=True)
class Team:
    """A store of the login orch with the member ann, and both their addresses."""

    owner: str
    member: str
    server: PostgresServer


@pytest.fixture
def team(postgres: PostgresServer) -> Team:
    address = postgres.new_store()
    return Team(address, postgres.new_member("ann", address), postgres)


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    address = postgres.new_store()
    yield address, postgres.new_member("bob", address)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(METHODS))
def test_a_member_may_do_all_that_the_store_does(shared: tuple[str, str], history: list[Step]) -> None:
    owner, member = shared
    with Store(member) as store:
        assert store.user == "bob"
        for step in history:
            play(store, step)
    assert find_store_faults(owner) == ()
    events, _ = audit_of(member)
    assert {event.actor.partition("@")[0] for event in events} <= {"bob", "orch"}


def test_a_member_keeps_the_records_of_providers_and_reads_as_itself(team: Team, tmp_path: Path) -> None:
    records = StoredRecords(lambda: team.member)
    kind = records(tmp_path / "kind")
    kind.put("x", "{}")
    kind.put("x", "{1}")
    assert kind.read("x") == "{1}"
    kind.drop("x")
    assert kind.names() == []
    records.database.close()
    with open_reader_at(team.member) as reader:
        assert reader.member == "ann"


FORBIDDEN = [
    "UPDATE events SET actor = 'bob@x:1'",
    "DELETE FROM events",
    "TRUNCATE events",
    "INSERT INTO events (seq, at, cluster, actor, kind, what) VALUES (99, 0, '', 'bob@x:1', 'x', 'x')",
    "UPDATE meta SET value = '0 '",
    "INSERT INTO meta (key, value) VALUES ('tie', '{}')",
    "DELETE FROM leases",
    "UPDATE clusters SET owner = 'ann'",
    "UPDATE budgets SET dollars_per_month = 1e9",
    "INSERT INTO budgets (project, member) VALUES ('', '')",
    "DELETE FROM budgets",
    "UPDATE jobs SET status = 0",
    "DELETE FROM clusters",
    "INSERT INTO pipelines (uid, name, tasks, stage, state, created) VALUES ('u', 'n', '[]', 0, 'running', 0)",
    "ALTER TABLE events DISABLE TRIGGER events_are_kept",
    "DROP TRIGGER events_are_kept ON events",
    "CREATE OR REPLACE FUNCTION orch_keys() RETURNS json LANGUAGE sql AS $$ SELECT NULL::json $$",
    "CREATE TABLE mine (x integer)",
    "SET SESSION AUTHORIZATION orch",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_a_member_cannot_change_what_was_recorded(team: Team, statement: str) -> None:
    import psycopg

    with Store(team.member) as store:
        store.open_cluster("c", "")
    before = audit_of(team.owner)
    with psycopg.connect(team.member, autocommit=True) as raw, pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw.execute(statement.encode())
    assert audit_of(team.owner) == before


@pytest.mark.parametrize("statement", ["UPDATE events SET what = 'x'", "DELETE FROM events", "TRUNCATE events"])
def test_not_even_the_owner_of_the_store_changes_an_event_by_mistake(team: Team, statement: str) -> None:
    import psycopg

    with psycopg.connect(team.owner, autocommit=True) as raw, pytest.raises(psycopg.Error, match="only added"):
        raw.execute(statement.encode())


def test_a_member_cannot_act_in_the_name_of_another(team: Team) -> None:
    import psycopg

    change: dict[str, Any] = {"verb": "event", "table": "", "key": {}, "values": {}, "cluster": "c", "kind": "remark"}
    change |= {"what": "forged", "cause": "x", "actor": "bob@x:1"}
    request = {"id": "1", "at": 1.0, "client": "x:1", "user": "bob", "actor": "bob@x:1", "guards": []}
    with psycopg.connect(team.member, autocommit=True) as raw:
        raw.execute("SELECT orch_change(%s::json)", [json.dumps({**request, "changes": [change]})])
    assert audit_of(team.owner)[0][-1].actor == "ann@x:1"
    assert find_store_faults(team.owner) == ()


def test_names_that_a_member_defines_are_not_used_with_the_rights_of_the_owner(team: Team) -> None:
    """A temporary table `meta` or `events` would be found first, without the fixed search_path."""
    import psycopg

    with Store(team.owner) as store:
        store.event("c", "remark", "before")
    change = {
        "verb": "event",
        "table": "",
        "key": {},
        "values": {},
        "cluster": "",
        "kind": "k",
        "what": "w",
        "cause": "c",
    }
    request = {"id": "2", "at": 1.0, "client": "x:1", "guards": [], "changes": [change]}
    with psycopg.connect(team.member, autocommit=True) as raw:
        raw.execute("CREATE TEMPORARY TABLE meta (key text, value text)")
        raw.execute("INSERT INTO pg_temp.meta VALUES ('chain', '7 forged')")
        raw.execute("SELECT orch_change(%s::json)", [json.dumps(request)])
    assert find_store_faults(team.owner) == ()
    assert audit_of(team.owner)[0][-1].what == "w"


def test_a_revoked_login_is_refused_with_the_next_step(team: Team) -> None:
    with Store(team.owner) as store:
        store.change_member("ann", revoke=True)
    with pytest.raises(StoreError, match="may not do that") as refused:
        Store(team.member)
    assert "orch store grant" in refused.value.next_step


def test_a_login_that_does_not_exist_and_a_file_are_refused(team: Team, tmp_path: Path) -> None:
    with Store(team.owner) as store, pytest.raises(UserError, match="no login 'absent-login'"):
        store.change_member("absent-login")
    with Store(tmp_path / "orch.db") as store, pytest.raises(UserError, match="no logins"):
        store.change_member("ann")
