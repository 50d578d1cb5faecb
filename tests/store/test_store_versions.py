"""P8: a store is upgraded in one step, older and newer orchs work on it as far as it says; others are refused."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from support.postgres import PostgresServer
from support.store_versions import NEXT, dump_rows, make_earlier, next_version, write_versions
from test_store_audit import audit_of, tables_of

from orchestrator.engine.state.opening import refuse_creation
from orchestrator.errors import OrchError
from orchestrator.storage.bucket import Bucket
from orchestrator.store.backup import back_up
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.replacement import refuse_replacement
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.restore import fetch_backup, restore_store
from orchestrator.store.state_changes import StateChanges
from orchestrator.store.store import Store
from orchestrator.store.upgrade import upgrade_store
from orchestrator.store.version import EARLIER_COMMIT, SCHEMA_VERSION

pytestmark = [pytest.mark.promise("P8")]


@pytest.fixture
def present(location: Location) -> Location:
    """A store of this version with a cluster."""
    with Store(location) as store:
        store.open_cluster("busy", "")
    return location


# --- stores from before version 1 --------------------------------------------------------------------------


def _open(location: Location) -> None:
    Store(location)


def _read(location: Location) -> None:
    open_reader_at(location)


def _say_what_it_is(location: Location) -> None:
    StateChanges(location, accept_other_state=True)


def _upgrade(location: Location) -> None:
    upgrade_store(location, 2e9)


def _replace(location: Location) -> None:
    refuse_replacement(location, replace_present=True)


@pytest.mark.parametrize("version", [1, 4, 8])
@pytest.mark.parametrize("use", [_open, _read, _say_what_it_is, _upgrade, _replace])
def test_a_store_from_before_version_1_is_refused_with_both_versions_and_not_changed(
    location: Location, version: int, use: Callable[[Location], None]
) -> None:
    make_earlier(location, version, "going", "busy")
    before = dump_rows(location)
    with pytest.raises(
        OrchError, match=f"the old version {version}, and this orch uses version {SCHEMA_VERSION}:"
    ) as c:
        use(location)
    assert c.value.why == f"open there: busy, going; orch of commit {EARLIER_COMMIT} ends them"
    assert c.value.next_step.startswith("export ORCH_")
    assert dump_rows(location) == before


def test_nothing_of_an_earlier_store_is_backed_up(tmp_path: Path) -> None:
    file = tmp_path / "old" / "orch.db"
    make_earlier(file, 8, "busy")
    before = file.read_bytes()
    with pytest.raises(OrchError, match="the old version 8"):
        back_up(file, Bucket.open(f"file://{tmp_path}/bucket"), 2e9)
    assert file.read_bytes() == before
    assert not (tmp_path / "bucket").exists()


@pytest.mark.parametrize("beside", [True, False])
def test_a_backup_of_an_earlier_store_is_refused(tmp_path: Path, *, beside: bool) -> None:
    file, folder, target = tmp_path / "old.db", tmp_path / "bucket" / "orch-store" / "x", tmp_path / "new" / "orch.db"
    make_earlier(file, 8)
    folder.mkdir(parents=True)
    shutil.copy(file, folder / "1-1.db")
    if beside:
        text_of_head = '{"file": "1-1.db", "sha256": "x", "installation": "x", "incarnation": 1, "seq": 1, "hash": "", '
        (folder / "head.json").write_text(text_of_head + '"schema": 8, "time": 1.0}')
    source = f"file://{tmp_path}/bucket" if beside else str(folder / "1-1.db")
    with pytest.raises(OrchError, match=f"the old version 8, and this orch uses version {SCHEMA_VERSION}:") as caught:
        restore_store(*fetch_backup(source, tmp_path), target)
    assert EARLIER_COMMIT in caught.value.next_step
    assert not target.exists()


# --- an upgrade, with an invented version ------------------------------------------------------------------


def test_every_row_survives_an_upgrade_and_the_audit_knows_the_new_column(present: Location) -> None:
    before = dump_rows(present)
    with next_version():
        upgrade_store(present, 2e9)
        with Store(present) as store:
            assert store.version == NEXT
            store.open_cluster("new", "")
            real = tables_of(present)
        after = dump_rows(present)
        assert [(*row, "grey") for row in before["clusters"]] == [row for row in after["clusters"] if "busy" in row]
        assert set(before["events"]) < set(after["events"])
        events, head = audit_of(present)
        assert verify_chain(events, head) is None
        assert rebuild_tables(events) == real


def test_an_upgrade_that_is_killed_at_any_statement_leaves_the_older_version_complete(present: Location) -> None:
    before, killed = dump_rows(present), 0
    with next_version():
        while _killed_at(present, 1 + 2 * killed):
            killed += 1
            assert dump_rows(present) == before
        assert killed > 4  # it was killed at many points before it came through
        with Store(present) as store:
            assert (store.version, store.cluster("busy") is not None) == (NEXT, True)


def _killed_at(location: Location, deadly: int) -> bool:
    """Upgrade the store in a child that kills itself before its n-th statement; False when it came through."""
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


def test_several_that_upgrade_together_do_it_once(present: Location) -> None:
    with next_version():
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda _: upgrade_store(present, 2e9), range(6)))
        assert dump_rows(present)["flags"] == [("one",)]


def test_several_that_make_a_store_together_make_one(location: Location) -> None:
    def opened(_: int) -> str:
        with Store(location) as store:
            return store.installation

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(opened, range(6)))) == 1


def test_a_teams_store_is_upgraded_by_the_command_alone(postgres: PostgresServer) -> None:
    address = postgres.new_store()
    with Store(address) as store:
        store.open_cluster("busy", "")
    before = dump_rows(address)
    with next_version():
        with pytest.raises(OrchError, match="must be upgraded") as caught:
            Store(address)
        assert "orch store upgrade" in caught.value.next_step
        with open_reader_at(address) as reader:
            assert [cluster.name for cluster in reader.clusters()] == ["busy"], "it is read meanwhile"
        assert dump_rows(address) == before
        upgrade_store(address, 2e9)
        with Store(address) as store:
            assert store.version == NEXT


def test_the_copy_of_a_file_holds_the_older_version_and_can_be_put_back(tmp_path: Path) -> None:
    database, backup = tmp_path / "orch.db", tmp_path / "orch.db.bak"
    with Store(database) as store:
        store.open_cluster("busy", "")
    before = dump_rows(database)
    with next_version():
        with Store(database) as store:
            store.open_cluster("new", "")
        assert dump_rows(backup) == before
        assert backup.stat().st_mode & 0o077 == 0
        for name in ("orch.db-wal", "orch.db-shm", "orch.db", "orch.db.bak-wal", "orch.db.bak-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(backup, database)
        with pytest.raises(OrchError, match="older state"):
            Store(database)
        with StateChanges(database, accept_other_state=True) as state:
            state.accept_restored_state()
        with Store(database) as store:
            assert store.cluster("busy") is not None


def test_a_damaged_file_is_refused_with_its_copy_as_the_next_step(tmp_path: Path) -> None:
    database, backup = tmp_path / "orch.db", tmp_path / "orch.db.bak"
    Store(database).close()
    with next_version():
        Store(database).close()
        database.write_bytes(b"\0" * 8192)
        with pytest.raises(OrchError, match="damaged") as caught:
            Store(database)
        for part in ("mv", f"cp {backup} {database}; orch store restored"):
            assert part in caught.value.next_step


def test_without_a_copy_nothing_is_upgraded(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    Store(database).close()
    before = dump_rows(database)
    (tmp_path / "orch.db.bak.part").mkdir()
    with next_version():
        with pytest.raises(OrchError, match="its backup cannot be written"):
            Store(database)
        assert dump_rows(database) == before


# --- stores of newer versions ------------------------------------------------------------------------------


def test_a_newer_store_that_allows_no_older_orch_is_refused_with_what_to_do(location: Location) -> None:
    newer = SCHEMA_VERSION + 1
    write_versions(location, version=newer, min_reader=newer, min_writer=newer)
    before = dump_rows(location)
    for opened in (Store, open_reader_at):
        with pytest.raises(OrchError, match=f"newer orch.*version {newer}.*up to {SCHEMA_VERSION}") as caught:
            opened(location)
        assert "upgrade orch" in caught.value.next_step
    with pytest.raises(OrchError, match="newer orch"):
        refuse_replacement(location, replace_present=True)
    assert dump_rows(location) == before


def test_a_newer_store_that_may_be_read_is_read_and_not_changed(location: Location) -> None:
    newer = SCHEMA_VERSION + 1
    write_versions(location, version=newer, min_writer=newer)
    with pytest.raises(OrchError, match="newer orch"):
        Store(location)
    with open_reader_at(location) as reader:
        assert reader.version == newer


def test_in_a_newer_store_that_only_adds_this_orch_ends_machines_and_creates_none(
    present: Location,
) -> None:
    with next_version():
        upgrade_store(present, 2e9)
    with Store(present) as store:
        cluster = store.cluster("busy")
        assert cluster is not None
        store.set_desired_state(cluster, "down")
        with pytest.raises(OrchError, match="create nothing"):
            refuse_creation(store)
    with Store(present) as store:
        assert store.version == SCHEMA_VERSION + 1, "it is left as it is"
