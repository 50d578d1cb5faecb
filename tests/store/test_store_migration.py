"""P8: a store of an older version is read, upgraded in one step, and driven on; a newer one is refused."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, inspect, text
from support.postgres import PostgresServer
from support.store_v1 import put_v1, rows_of
from test_store_audit import audit_of, tables_of

from orchestrator.engine.state.opening import refuse_creation
from orchestrator.errors import OrchError
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, IntentState, Outcome
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.state_changes import StateChanges
from orchestrator.store.store import Store
from orchestrator.store.upgrade import upgrade_store
from orchestrator.store.version import OLDEST_WRITER, SCHEMA_VERSION

pytestmark = [pytest.mark.promise("P8")]


@pytest.fixture
def old(location: Location) -> Location:
    put_v1(location)
    return location


def test_light_commands_read_a_version_1_store_without_changing_it(old: Location) -> None:
    before = rows_of(old)
    with open_reader_at(old) as reader:
        assert [cluster.name for cluster in reader.clusters()] == ["busy", "going", "starting"]
        busy = reader.cluster("busy")
        assert busy is not None
        assert (busy.limits, reader.jobs(busy)[0].watch, reader.ended_attempts(busy, 1)[0].evidence) == ("{}", "", "")
        assert (len(reader.events(None)), reader.pipelines(), reader.unattended_jobs()) == (24, (), ())
        assert [cluster.name for cluster in reader.clusters_going_down()] == ["going"]
    assert rows_of(old) == before


def test_every_row_of_version_1_survives_the_upgrade_and_is_in_the_audit(old: Location) -> None:
    before = rows_of(old)
    upgrade_store(old, 2e9)
    with Store(old, lambda: 2e9) as store:
        real = tables_of(old)
        assert store.installation == "d651a4dc48c3"
    after = rows_of(old)
    assert {table: rows for table, rows in after.items() if table not in ("events", "meta")} == {
        table: rows for table, rows in before.items() if table not in ("events", "meta")
    }
    assert after["events"][: len(before["events"])] == before["events"]
    events, head = audit_of(old)
    assert verify_chain(events, head) is None
    assert rebuild_tables(events) == real


def test_the_upgraded_tables_are_those_of_a_new_store(old: Location, tmp_path: Path, request: Any) -> None:
    fresh = tmp_path / "fresh.db" if isinstance(old, Path) else request.getfixturevalue("postgres").new_store()
    upgrade_store(old, 2e9)
    with Store(old) as migrated, Store(fresh) as new:
        assert _shape(migrated) == _shape(new)


def _shape(store: Store) -> dict[str, Any]:
    seen = inspect(store._database.engine)
    return {
        table: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], str(column["default"]).strip("()"))
                for column in seen.get_columns(table)
            },
            "key": seen.get_pk_constraint(table)["constrained_columns"],
            "indexes": sorted((index["name"] or "", index["unique"]) for index in seen.get_indexes(table)),
        }
        for table in seen.get_table_names()
    }


def test_a_launch_a_job_and_a_down_that_were_cut_midway_are_driven_to_their_end(old: Location) -> None:
    upgrade_store(old, 2e9)
    with Store(old, lambda: 2e9, lease_seconds=0.1) as store:
        for name in ("starting", "busy", "going"):
            cluster = store.cluster(name)
            assert cluster is not None
            lease = _hold(store, name)
            assert lease.fence == 2  # above the one of the old holder
            (*_, current) = store.intents(cluster)
            if current.state is IntentState.PLANNED:
                token = f"{cluster.uid}-{current.generation}"
                store.write_intent(lease, cluster, current.generation, current.name, current.candidate, token, "again")
                store.update_intent(lease, cluster, current.name, IntentState.ACCEPTED)
            for job in store.jobs(cluster):
                if job.state != "ended":
                    store.start_attempt(cluster, job.id)
                    store.next_attempt(
                        cluster,
                        job.id,
                        EndedAttempt(attempt=job.attempt, cause=EndCause.PROGRAM, why="x"),
                        job.attempt + 1,
                    )
                    store.record_outcome(cluster, job.id, Outcome(status=0, code="", what="it succeeded"))
            if current.state is not IntentState.ENDING:
                store.update_intent(lease, cluster, current.name, IntentState.ENDING, EndCause.REQUESTED, "down")
            store.update_intent(lease, cluster, current.name, IntentState.DELETED)
            store.close_cluster(lease, cluster)
            assert store.cluster(name) is None
        real = tables_of(old)
    events, head = audit_of(old)
    assert verify_chain(events, head) is None
    assert rebuild_tables(events) == real


def _hold(store: Store, name: str) -> Lease:
    with store._database.writing() as tx:  # the old holder's 30 s are long over where this happens
        tx.execute(text("UPDATE leases SET expires = 0"))
        tx.commit()
    lease = store.acquire(f"cluster:{name}", "down")
    assert isinstance(lease, Lease)
    return lease


def test_an_upgrade_that_is_killed_at_any_statement_leaves_version_1_complete(old: Location) -> None:
    before = rows_of(old)
    whole = 0
    for deadly in range(1, 400, 2):
        killed = _killed_at(old, deadly)
        if rows_of(old) != before:
            break
        assert killed
        whole += 1
    assert whole > 30  # it was killed at many points before it came through
    with Store(old) as store:
        assert store.cluster("busy") is not None
    events, head = audit_of(old)
    assert verify_chain(events, head) is None


def _killed_at(location: Location, deadly: int) -> bool:
    """Open the store in a child that kills itself before its n-th statement; False when it came through."""
    child = os.fork()
    if child == 0:
        try:
            counter = itertools.count(1)

            def point(*_args: object) -> None:
                if next(counter) == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)

            event.listen(Engine, "before_cursor_execute", point)
            event.listen(Engine, "commit", point)
            upgrade_store(location, 2e9)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_several_that_upgrade_together_do_it_once(old: Location) -> None:
    def opened(_: int) -> str:
        upgrade_store(old, 2e9)
        with Store(old) as store:
            return store.installation

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(opened, range(6))) == {"d651a4dc48c3"}
    events, head = audit_of(old)
    assert verify_chain(events, head) is None
    carried = [(event.subject, event.before is None) for event in events if event.kind == "upgrade"]
    assert len(carried) == len(set(carried)) == 12 + 4 + 4, (
        "every row; again each intent and cluster, with its account or owner"
    )


def test_several_that_make_a_store_together_make_one(location: Location) -> None:
    def opened(_: int) -> str:
        with Store(location) as store:
            return store.installation

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(opened, range(6)))) == 1


def write_versions(location: Location, **values: int) -> None:
    with Store(location) as store, store._database.writing() as tx:
        for key, value in values.items():
            tx.execute(text("UPDATE meta SET value = :v WHERE key = :k"), {"k": key, "v": str(value)})
        tx.commit()


def test_a_newer_store_that_allows_no_older_orch_is_refused_with_what_to_do(location: Location) -> None:
    newer = SCHEMA_VERSION + 1
    write_versions(location, schema=newer, version=newer, min_reader=newer, min_writer=newer)
    for opened in (Store, open_reader_at):
        with pytest.raises(OrchError, match="newer orch") as caught:
            opened(location)
        assert "upgrade orch" in caught.value.next_step


def test_a_newer_store_that_may_be_read_is_read_and_not_changed(location: Location) -> None:
    newer = SCHEMA_VERSION + 1
    write_versions(location, version=newer, min_writer=newer)
    with pytest.raises(OrchError, match="newer orch"):
        Store(location)
    with open_reader_at(location) as reader:
        assert reader.version == newer


def test_in_a_newer_store_that_only_adds_this_orch_ends_machines_and_creates_none(location: Location) -> None:
    with Store(location) as store:
        store.open_cluster("c", "")
    write_versions(location, version=SCHEMA_VERSION + 1)
    with Store(location) as store:
        cluster = store.cluster("c")
        assert cluster is not None
        store.set_desired_state(cluster, "down")
        with pytest.raises(OrchError, match="create nothing"):
            refuse_creation(store)
    with Store(location) as store:
        assert store.version == SCHEMA_VERSION + 1, "it is left as it is"


def test_a_teams_store_is_upgraded_by_the_command_alone(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    put_v1(address)
    before = rows_of(address)
    with pytest.raises(OrchError, match="must be upgraded") as caught:
        Store(address)
    assert "orch store upgrade" in caught.value.next_step
    assert rows_of(address) == before


def test_orchs_up_to_version_4_open_what_they_may_change(location: Location) -> None:
    with Store(location) as store, store._database.reading() as tx:
        schema = tx.execute(text("SELECT value FROM meta WHERE key = 'schema'")).scalar_one()
    assert int(schema) == OLDEST_WRITER == 4


def test_the_backup_holds_version_1_and_can_be_put_back(tmp_path: Path) -> None:
    database, backup = tmp_path / "orch.db", tmp_path / "orch.db.bak"
    put_v1(database)
    before = rows_of(database)
    with Store(database) as store:
        store.open_cluster("new", "")
    assert rows_of(backup) == before
    assert backup.stat().st_mode & 0o077 == 0
    database.write_bytes(b"\0" * 8192)
    with pytest.raises(OrchError, match="damaged") as caught:
        Store(database)
    for part in ("mv", f"cp {backup} {database}; orch store restored"):
        assert part in caught.value.next_step
    for name in ("orch.db-wal", "orch.db-shm", "orch.db"):  # the words of the error
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(backup, database)
    with pytest.raises(OrchError, match="older state"):
        Store(database)
    with StateChanges(database, accept_other_state=True) as state:
        state.accept_restored_state()
    with Store(database) as store:
        assert store.cluster("busy") is not None


def test_without_a_backup_nothing_is_upgraded(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    put_v1(database)
    before = rows_of(database)
    (tmp_path / "orch.db.bak.part").mkdir()
    with pytest.raises(OrchError, match="its backup cannot be written"):
        Store(database)
    assert rows_of(database) == before


def test_a_store_whose_maker_was_killed_before_it_wrote_its_version_counts_as_version_1(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    put_v1(database)
    with sqlite3.connect(database) as raw:
        raw.execute("DELETE FROM meta")
    raw.close()
    with Store(database) as store:
        assert store.installation
