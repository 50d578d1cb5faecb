"""P9: a restored store takes the place of another one completely or not at all, and of none that is in use."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from support.postgres import PostgresServer
from test_store_copied import fill

from orchestrator.errors import ConflictError
from orchestrator.storage.bucket import Bucket
from orchestrator.store.backup import back_up
from orchestrator.store.failures import StoreError
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.other_state import OtherStateError
from orchestrator.store.replacement import refuse_replacement
from orchestrator.store.restore import fetch_backup, restore_store
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P9")


@pytest.fixture
def backup(tmp_path: Path) -> Bucket:
    """A bucket with a backup of a store with the cluster `c`."""
    fill(tmp_path / "first" / "orch.db")
    bucket = Bucket.open((tmp_path / "bucket").as_uri())
    back_up(tmp_path / "first" / "orch.db", bucket, 1e9)
    return bucket


_OF_FILES = ("sqlite3.connect", "os.remove", "os.rename")  # https://docs.python.org/3.11/library/audit_events.html


def restore(bucket: Bucket, to: Location, scratch: Path) -> None:
    folder = scratch / f"fetched-{time.monotonic_ns()}"
    folder.mkdir()
    file, head = fetch_backup(bucket.uri, folder)
    restore_store(file, head, to, replace_present=True)


def names(location: Location) -> list[str]:
    with Store(location) as store:
        return [cluster.name for cluster in store.clusters()]


def test_a_store_is_not_replaced_while_a_lease_is_held(location: Location, backup: Bucket, tmp_path: Path) -> None:
    with Store(location) as store:
        store.open_cluster("present", "")
        lease = store.acquire("cluster:present", "launch")
        assert isinstance(lease, Lease)
        for refused in (
            lambda: refuse_replacement(location, replace_present=True),
            lambda: restore(backup, location, tmp_path),
        ):
            with pytest.raises(ConflictError, match=f"in use by process {os.getpid()}") as caught:
                refused()
            assert f"kill {os.getpid()}" in caught.value.next_step
        store.release(lease)
        assert names(location) == ["present"]
    restore(backup, location, tmp_path)
    assert names(location) == ["c"]


def test_an_empty_store_with_which_an_engine_works_is_not_replaced(
    location: Location, backup: Bucket, tmp_path: Path
) -> None:
    with Store(location) as store:
        assert isinstance(store.acquire("engine:here", "unattended engine"), Lease)
        with pytest.raises(ConflictError, match="in use"):
            restore(backup, location, tmp_path)


def test_what_had_the_file_open_can_change_neither_the_old_nor_the_new_store(backup: Bucket, tmp_path: Path) -> None:
    location = tmp_path / "present" / "orch.db"
    with Store(location) as opened:
        restore(backup, location, tmp_path)
        for change in (
            lambda: opened.acquire("cluster:late", "launch"),
            lambda: opened.open_cluster("late", ""),
            lambda: opened.event("", "remark", "late"),
        ):
            with pytest.raises(StoreError, match="replaced by a backup"):
                change()
    assert names(location) == ["c"]
    assert find_store_faults(location) == ()


def test_a_damaged_file_is_replaced_and_kept_as_it_is(backup: Bucket, tmp_path: Path) -> None:
    location = tmp_path / "damaged" / "orch.db"
    location.parent.mkdir()
    location.write_bytes(b"no database" * 1000)
    with pytest.raises(ConflictError, match="not empty"):
        refuse_replacement(location, replace_present=False)
    restore(backup, location, tmp_path)
    assert names(location) == ["c"]
    (kept,) = location.parent.glob("orch.db.replaced-*[0-9]")
    assert kept.read_bytes() == b"no database" * 1000


@pytest.mark.parametrize("begin", [1, 2, 3])
def test_a_replacement_that_is_killed_anywhere_is_completed_by_the_same_command(
    backup: Bucket, tmp_path: Path, begin: int
) -> None:
    location, kills, retired = tmp_path / "present" / "orch.db", 0, 0
    with Store(location) as store:
        store.open_cluster("present", "")
    for deadly in itertools.count(begin, 3):
        if not _killed_at(lambda: restore(backup, location, tmp_path), deadly):
            break
        kills += 1
        try:
            assert names(location) == ["present"], "nothing was replaced"
        except StoreError as error:
            assert "orch store restore URI --replace" in error.next_step
            retired += 1
            restore(backup, location, tmp_path)
            break
    assert kills > 5 and retired == 1
    assert names(location) == ["c"]
    assert find_store_faults(location) == ()
    kept = list(location.parent.glob("orch.db.replaced-*[0-9]"))
    with closing(sqlite3.connect(kept[0])) as raw:
        assert raw.execute("SELECT name FROM clusters").fetchall() == [("present",)]


def _killed_at(work: Callable[[], None], deadly: int) -> bool:
    """Work in a child that kills itself before its n-th statement or step with a file; False when it came through."""
    child = os.fork()
    if child == 0:
        try:
            counter = itertools.count(1)

            def point(*_args: object) -> None:
                if next(counter) == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)

            event.listen(Engine, "before_cursor_execute", point)
            event.listen(Engine, "commit", point)
            sys.addaudithook(lambda name, _: point() if name in _OF_FILES else None)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_database_without_tables_is_complete_after_a_restoration(
    postgres: PostgresServer, backup: Bucket, tmp_path: Path
) -> None:
    address = postgres.new_store()
    restore(backup, address, tmp_path)
    with Store(address) as store:
        store.open_cluster("later", "")
    assert names(address) == ["c", "later"]


def test_a_file_that_was_brought_to_a_server_is_only_read_from_then_on(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    file, address = tmp_path / "state" / "orch.db", postgres.new_store()
    fill(file)
    bucket = Bucket.open((tmp_path / "bucket").as_uri())
    back_up(file, bucket, 1e9)
    restore(bucket, address, tmp_path)
    with pytest.raises(OtherStateError, match="an older state of it was put back"):
        Store(file)
    assert names(address) == ["c"]
