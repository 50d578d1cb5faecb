"""P9: a backup holds the whole store, is verified before it replaces anything, and never becomes an older one."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from store_history import forging
from support.postgres import PostgresServer
from test_store_audit import audit_of, tables_of
from test_store_copied import fill

from orchestrator.errors import ConflictError, OrchError, StorageError
from orchestrator.storage.bucket import Bucket
from orchestrator.store.backup import HEAD, KEPT, back_up, read_backup_head
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.location import Location
from orchestrator.store.restore import fetch_backup, restore_store
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P9")

NewPlace = Callable[[], Location]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket.open((tmp_path / "bucket").as_uri())


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    """Makes places for stores that are restored."""
    if request.param == "sqlite":
        return lambda: tmp_path / str(time.monotonic_ns()) / "orch.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_store


def restore(bucket: Bucket, to: Location, tmp_path: Path, *, replace_present: bool = False) -> int:
    folder = tmp_path / f"fetched-{time.monotonic_ns()}"
    folder.mkdir()
    file, head = fetch_backup(bucket.uri, folder)
    return restore_store(file, head, to, replace_present=replace_present).incarnation


def test_every_row_comes_back_on_either_database(
    location: Location, new_place: NewPlace, bucket: Bucket, tmp_path: Path
) -> None:
    fill(location)
    with Store(location):
        before, rows = audit_of(location)[0], tables_of(location)
    head = back_up(location, bucket, 1e9)
    assert (head.seq, head.hash) == (before[-1].seq, before[-1].hash)
    place = new_place()
    assert restore(bucket, place, tmp_path) == 2
    with Store(place) as store:
        assert store.installation == head.installation
        assert tables_of(place) == rows
    assert audit_of(place)[0][: len(before)] == before
    assert find_store_faults(place) == ()


def test_no_run_key_is_in_a_backup_and_a_restored_store_makes_another(
    location: Location, new_place: NewPlace, bucket: Bucket, tmp_path: Path
) -> None:
    fill(location)
    with Store(location) as store:
        keys = {run: store.run_key(run) for run in ("run-1", "run-2")}
    head = back_up(location, bucket, 1e9)
    copy = (tmp_path / "bucket" / "orch-store" / head.installation / head.file).read_bytes()
    assert b"run-1" in copy, "the jobs are in it"
    assert [key for key in keys.values() if key.encode() in copy] == []
    place = new_place()
    restore(bucket, place, tmp_path)
    with Store(place) as store:
        assert store.run_key("run-1") != keys["run-1"]


def test_no_run_key_comes_from_a_backup(new_place: NewPlace, bucket: Bucket, tmp_path: Path) -> None:
    """Backups of earlier versions have keys, and whoever writes to the bucket may add some."""
    fill(tmp_path / "orch.db")
    head = back_up(tmp_path / "orch.db", bucket, 1e9)
    file = tmp_path / "bucket" / "orch-store" / head.installation / head.file
    with closing(sqlite3.connect(file)) as forged:
        forged.execute("INSERT INTO run_keys VALUES ('run-1', 'known-to-others')")
        forged.commit()
    (file.parent / HEAD).write_bytes(replace(head, sha256=hashlib.sha256(file.read_bytes()).hexdigest()).to_json())
    place = new_place()
    restore(bucket, place, tmp_path)
    with Store(place) as store:
        assert store.run_key("run-1") != "known-to-others"
    if isinstance(place, Path):
        assert b"known-to-others" not in place.read_bytes()


def test_a_second_backup_without_a_new_event_leaves_the_first_whole(
    location: Location, new_place: NewPlace, bucket: Bucket, tmp_path: Path
) -> None:
    fill(location)
    first = back_up(location, bucket, 1e9)
    assert back_up(location, bucket, 2e9) == first
    restore(bucket, new_place(), tmp_path)


def test_a_store_that_is_not_empty_is_replaced_only_on_request_and_kept(
    new_place: NewPlace, bucket: Bucket, tmp_path: Path
) -> None:
    place = new_place()
    fill(place)
    back_up(place, bucket, 1e9)
    with Store(place) as store:
        store.open_cluster("later", "")
    with pytest.raises(ConflictError, match="not empty"):
        restore(bucket, place, tmp_path)
    restore(bucket, place, tmp_path, replace_present=True)
    with Store(place) as store:
        assert [one.name for one in store.clusters()] == ["c"]
    if isinstance(place, Path):
        (kept,) = place.parent.glob("orch.db.replaced-*[0-9]")
        assert kept.stat().st_size > 0
        return
    with Store(place) as store, store._database.reading() as tx:
        newest = text("SELECT max(nspname) FROM pg_namespace WHERE nspname LIKE 'orch_replaced_%'")
        kept_in = tx.execute(newest).scalar_one()  # others are of stores in other schemas
        assert tx.execute(text(f"SELECT count(*) FROM {kept_in}.clusters")).scalar_one() == 2


def test_an_older_backup_never_takes_the_place_of_a_newer_one(location: Location, bucket: Bucket) -> None:
    fill(location)
    first = back_up(location, bucket, 1e9)
    with Store(location) as store:
        store.event("", "remark", "more")
    second = back_up(location, bucket, 2e9)
    assert second.order > first.order
    folder = f"orch-store/{first.installation}"
    with Store(location) as store, forging(store) as tx:  # the bucket knows what this store has lost
        tx.execute(text("DELETE FROM events WHERE seq = :seq"), {"seq": second.seq})
        tx.execute(text("UPDATE meta SET value = :head WHERE key = 'chain'"), {"head": f"{first.seq} {first.hash}"})
        tx.commit()
    with pytest.raises(OrchError, match="older state was put back"):
        back_up(location, bucket, 3e9)
    assert read_backup_head(bucket, folder)[0] == second


def test_the_newest_ten_are_kept(tmp_path: Path, bucket: Bucket) -> None:
    location = tmp_path / "orch.db"
    for number in range(KEPT + 3):
        with Store(location) as store:
            store.event("", "remark", str(number))
        newest = back_up(location, bucket, 1e9)
    kept = [info.path for info in bucket.list("orch-store") if info.path.endswith(".db")]
    assert len(kept) == KEPT
    assert kept[-1].endswith(newest.file)


def change_a_byte(folder: Path) -> None:
    (file,) = folder.glob("*.db")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def change_the_head(folder: Path) -> None:
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps(head | {"hash": "0" * 64}))


def add_a_trigger(folder: Path) -> None:
    """What would give a job back to the engines when the restoration takes it from them."""
    (file,) = folder.glob("*.db")
    with closing(sqlite3.connect(file)) as forged:
        forged.execute("CREATE TRIGGER t AFTER UPDATE ON jobs BEGIN UPDATE jobs SET watch = 'engine'; END")
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps(head | {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))


def no_time(folder: Path) -> None:
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps(head | {"time": float("nan")}))


def no_json(folder: Path) -> None:
    (folder / HEAD).write_text("{")


def wrong_types(folder: Path) -> None:
    (folder / HEAD).write_text(json.dumps({"file": 3}))


@pytest.mark.parametrize("damage", [change_a_byte, change_the_head, add_a_trigger, no_time, no_json, wrong_types])
def test_a_damaged_backup_changes_nothing(tmp_path: Path, bucket: Bucket, damage: Callable[[Path], None]) -> None:
    fill(tmp_path / "orch.db")
    head = back_up(tmp_path / "orch.db", bucket, 1e9)
    damage(tmp_path / "bucket" / "orch-store" / head.installation)
    target = tmp_path / "new" / "orch.db"
    with pytest.raises(StorageError):
        restore(bucket, target, tmp_path)
    assert not target.exists()
