"""The copy of a store's records for read commands: it holds what the store holds, and none of its secrets."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from store_history import LOCAL, METHODS, Step, forging, histories, play
from support.postgres import PostgresServer

from orchestrator.documents import records
from orchestrator.documents.records import records_as_json
from orchestrator.errors import CloudError
from orchestrator.hosts import HostAddress, OwnSsh
from orchestrator.plan.observed import IntentState
from orchestrator.store import schema
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.replica import DamagedReplicaError, Position, Replica, ReplicaReader
from orchestrator.store.replicated import EVENTS, NOT_SENT, NOT_SENT_COLUMNS, REDUCED, SENT
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord
from orchestrator.store.version import SCHEMA_VERSION

Document = dict[str, Any]
TASK = json.dumps({"envs": {"WANDB_API_KEY": "canary-env", "MODE": "fast"}, "run": "true"})
# What no document may contain: secrets, and what no reader has a use for.
CANARIES = ("canary-env", "canary-key", "canary-body", "canary-blob", "canary-problem", "canary-digest", "canary-path")

SHOWN_BY_EVENTS = {"canary-digest", "canary-path"}  # digests of tokens, and where the engine keeps a launch's files


def read_documents(location: Location, after: int = 0, limit: int = 1000, member: str = "ann") -> list[Document]:
    """Return the documents after an event, as they come over the wire."""
    found: list[Document] = []
    while not found or not found[-1]["complete"]:
        with open_reader_at(location) as reader:
            document = records_as_json(reader, found[-1]["until"]["seq"] if found else after, member, limit)
        found.append(json.loads(json.dumps(document)))
    return found


def update(replica: Replica, location: Location, limit: int = 1000) -> None:
    """Bring a copy up to date, as a command does."""
    position = replica.read_position()
    documents = read_documents(location, position.seq, limit)
    if not position.continues_in(documents[0]):
        documents = read_documents(location, 0, limit)
    assert replica.take_over(position, documents, "")


def expected_rows(location: Location) -> dict[str, set[str]]:
    """What a copy should hold, from the store itself. Columns that change without events count for open clusters."""
    with open_reader_at(location) as reader:
        rows = {
            table: [records.reduce_row(table, row) for row in reader.rows(table)] for table in SENT if table != EVENTS
        }
        rows[EVENTS] = [records.list_event_columns(event) for event in reader.all_events()]
    return {table: {_as_text(table, row) for row in found} for table, found in rows.items()}


def held_rows(replica: Replica) -> dict[str, set[str]]:
    with ReplicaReader(replica, "default") as reader:
        return {table: {_as_text(table, dict(row)) for row in reader.rows(table)} for table in SENT}


def _as_text(table: str, row: Document) -> str:
    shown = {name: row[name] for name in SENT[table] if name != "touched"}
    if table == "clusters" and row["gone"] is not None:
        shown = {name: value for name, value in shown.items() if name not in ("hosts", "last_state", "last_seen")}
    return json.dumps({name: int(value) if isinstance(value, bool) else value for name, value in shown.items()})


def test_every_table_and_column_is_decided() -> None:
    tables = schema.metadata.tables
    assert set(tables) == set(SENT) | set(NOT_SENT) and not set(SENT) & set(NOT_SENT)
    for table, columns in SENT.items():
        kept_back = NOT_SENT_COLUMNS.get(table, {})
        assert {column.name for column in tables[table].columns} == {*columns, *kept_back}, table
        assert set(REDUCED.get(table, {})) <= set(columns)
    reasons = [NOT_SENT, *NOT_SENT_COLUMNS.values(), *REDUCED.values()]
    assert all(text for group in reasons for text in group.values())
    assert {table: set(columns) for table, columns in records.REDUCERS.items()} == {
        table: set(columns) for table, columns in REDUCED.items() if table != EVENTS
    }


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], tuple[Location, Replica]]]:
    """Return a maker of an empty store and an empty copy."""
    numbers = count()

    def make() -> tuple[Location, Replica]:
        number = next(numbers)
        replica = Replica(tmp_path / f"copy-{number}")
        if request.param == "sqlite":
            return tmp_path / str(number) / "orch.db", replica
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_store(), replica

    yield make


@settings(
    max_examples=5,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=histories(METHODS), second=histories(METHODS))
def test_the_copy_of_any_history_holds_what_the_store_holds(
    fresh: Callable[[], tuple[Location, Replica]], first: list[Step], second: list[Step]
) -> None:
    location, replica = fresh()
    with Store(location) as store:
        for history, limit in ((first, 1000), (second, 3)):
            for step in history:
                play(store, step)
            update(replica, location, limit)
            assert held_rows(replica) == expected_rows(location)


def fill(location: Location) -> None:
    """Record a cluster at work, and something in every table that is not sent."""
    with Store(location) as store:
        cluster = store.open_cluster("mine", "cpu on local")
        lease = store.acquire("cluster:mine", "a test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "mine-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "mine-1", IntentState.ACCEPTED)
        store.note_hosts(lease, cluster, (_host(),))
        store.note_state(cluster, "ready")
        request = json.dumps({"trees": {"src": "canary-path"}, "secrets": "abcd"})
        store.open_job(
            cluster,
            NewJob(kind="launch", run_id="run", digest="d", task=TASK, bucket="", ranks=None, after_end="keep",
                   launch_request=request),
        )  # fmt: skip
        store.open_pipeline(
            "two", (TASK, TASK), json.dumps({"project": "default", "owner": "ann", "trees": "canary-path"})
        )
        store.add_token(
            TokenRecord(digest="canary-digest", name="laptop", member="ann", role="viewer", created=1.0, expires=2e9)
        )
        with forging(store) as tx:
            for table, values in (
                (schema.run_keys, {"run_id": "run", "key": "canary-key"}),
                (schema.provider_records, {"kind": "x", "name": "y", "body": "canary-body"}),
                (schema.blobs, {"digest": "d", "size": 1, "unpacked": 1, "content": "canary-blob", "used": 1.0}),
                (schema.notification_channels, {"name": "hook", "seq": 1, "problem": "canary-problem"}),
            ):
                tx.execute(table.insert().values(**values))
            tx.commit()


def _host() -> HostAddress:
    path = Path("/home/canary-path/id")
    return HostAddress(
        rank=0, alias="mine-1.0", host="10.0.0.1", port=22, user="me", identity_file=path, known_hosts=path,
        internal_ip="10.0.0.1", own=OwnSsh(keys=(path,), agent=str(path)), proxy=("nc", "canary-path"),
    )  # fmt: skip


def test_no_secret_of_the_store_is_sent(location: Location) -> None:
    fill(location)
    (document,) = read_documents(location)
    sent = {key: value for key, value in document.items() if key != "events"}
    assert not [one for one in CANARIES if one in json.dumps(sent)]
    events = json.dumps(document["events"])
    assert {one for one in CANARIES if one in events} <= SHOWN_BY_EVENTS
    assert "MODE" in events, "what is no secret is shown"


def test_what_is_at_work_is_said_as_the_store_says_it(location: Location, tmp_path: Path) -> None:
    fill(location)
    replica = Replica(tmp_path / "copy")
    with Store(location) as store:
        update(replica, location)
        with open_reader_at(location) as reader, ReplicaReader(replica, "default") as copy:
            holder = reader.lease_holder("cluster:mine")
            assert holder == copy.lease_holder("cluster:mine") != ""
            assert (copy.member, copy.file, copy.lease_holder("cluster:none")) == ("ann", None, "")
            assert copy.clusters()[0].hosts[0].host == "10.0.0.1" and copy.clusters()[0].last_state == "ready"
            assert [(one.project, one.owner, len(one.tasks)) for one in copy.pipelines(ended=True)] == [
                ("default", "ann", 2)
            ]
            assert not copy.engine_works()
        lease = store.acquire(f"engine:{_engine()}", "serve")
        assert isinstance(lease, Lease)
        store.note_state(store.clusters()[0], "stopped")
        update(replica, location)
        with ReplicaReader(replica, "default") as copy:
            assert copy.engine_works() and copy.clusters()[0].last_state == "stopped"
            assert [row["name"] for row in copy.rows("leases")] == ["cluster:mine"]


def _engine() -> str:
    from orchestrator.computer import name_engine

    return name_engine(os.environ)


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Replica]:
    """Return a store with records, and its copy."""
    location, replica = tmp_path / "orch.db", Replica(tmp_path / "copy")
    fill(location)
    update(replica, location)
    return location, replica


@pytest.mark.parametrize("change", ["UPDATE meta SET value = '2' WHERE key = 'incarnation'",
                                    "UPDATE meta SET value = 'other' WHERE key = 'installation'"])  # fmt: skip
def test_the_copy_of_another_store_is_made_again(copied: tuple[Path, Replica], tmp_path: Path, change: str) -> None:
    location, replica = copied
    other = tmp_path / "other.db"
    with Store(other) as store:
        store.open_cluster("only", "one")
        for number in range(30):
            store.event("only", "note", f"event {number}")
    with sqlite3.connect(other) as connection:
        connection.execute(change)
    assert len(held_rows(replica)["jobs"]) == 1
    update(replica, other)
    assert held_rows(replica) == expected_rows(other)
    update(replica, location)
    assert held_rows(replica) == expected_rows(location)


def test_the_copy_of_a_store_that_was_put_back_is_made_again(copied: tuple[Path, Replica], tmp_path: Path) -> None:
    location, replica = copied
    before = location.read_bytes()
    with Store(location) as store:
        store.open_cluster("lost", "with the newer state")
    update(replica, location)
    location.with_name("orch.db-wal").unlink(missing_ok=True)
    location.with_name("orch.db-shm").unlink(missing_ok=True)
    location.write_bytes(before)
    update(replica, location)  # it ends before the copy
    assert held_rows(replica) == expected_rows(location)
    with Store(location, accept_other_state=True) as store:
        store.open_cluster("another", "in its place")
        store.event("another", "note", "as many events as before")
    update(replica, location)
    assert held_rows(replica) == expected_rows(location)


def _damage_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 : 4096 + 3000] = b"\xff" * 3000
    file.write_bytes(content)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def _replace(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)


@pytest.mark.parametrize("damage", [_damage_page, _cut, _replace])
def test_damage_is_noticed_and_a_removed_copy_is_made_again(
    copied: tuple[Path, Replica], damage: Callable[[Path], None]
) -> None:
    location, replica = copied
    damage(replica.file)
    with pytest.raises(DamagedReplicaError):
        replica.read_position()
    with pytest.raises(DamagedReplicaError), ReplicaReader(replica, "default") as reader:
        [reader.rows(table) for table in SENT]
    replica.remove()
    with pytest.raises(DamagedReplicaError, match="removed it"):
        ReplicaReader(replica, "default")
    assert Replica(replica.file.parent).read_position() == Position()
    update(replica, location)
    assert held_rows(replica) == expected_rows(location)


class EndsTheProcess(list[Any]):
    """Rows of which only the first can be read: then this process is killed."""

    def __iter__(self) -> Iterator[Any]:
        yield super().__getitem__(0)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_update_leaves_the_old_copy(copied: tuple[Path, Replica]) -> None:
    location, replica = copied
    before, position = held_rows(replica), replica.read_position()
    with Store(location) as store:
        store.open_cluster("new", "not in the copy yet")
    documents = read_documents(location, position.seq)
    documents[0]["rows"]["jobs"] = EndsTheProcess([[None] * len(SENT["jobs"])])
    child = multiprocessing.get_context("fork").Process(target=replica.take_over, args=(position, documents, ""))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert held_rows(replica) == before and replica.read_position() == position
    update(replica, location)
    assert held_rows(replica) == expected_rows(location)


def test_of_two_updates_the_later_one_is_fetched_again(copied: tuple[Path, Replica]) -> None:
    location, replica = copied
    position, documents = replica.read_position(), read_documents(location, replica.read_position().seq)
    with Store(location) as store:
        store.open_cluster("new", "the other command saw it")
    update(replica, location)
    assert not replica.take_over(position, documents, "")
    assert held_rows(replica) == expected_rows(location)


def test_the_tag_is_kept_for_the_same_question_alone(copied: tuple[Path, Replica]) -> None:
    location, replica = copied
    position = replica.read_position()
    assert replica.take_over(position, read_documents(location, position.seq), "tag")
    assert replica.read_position().tag == "tag"
    with Store(location) as store:
        store.open_cluster("new", "so the next question is another one")
    position = replica.read_position()
    assert replica.take_over(position, read_documents(location, position.seq), "tag")
    assert replica.read_position().tag == ""


def test_records_of_another_orch_are_refused_with_what_to_do(copied: tuple[Path, Replica]) -> None:
    location, replica = copied
    before, position = held_rows(replica), replica.read_position()
    for change, said in (
        ({"min_reader": SCHEMA_VERSION + 1}, "newer orch"),
        ({"version": 2}, "newer orch"),
        ({"columns": {name: columns[1:] for name, columns in SENT.items()}}, "older orch"),
    ):
        with pytest.raises(CloudError, match=said) as refused:
            replica.take_over(position, [document | change for document in read_documents(location)], "")
        assert "upgrade" in refused.value.next_step
    newer = read_documents(location)
    newer[0]["tables"] = SCHEMA_VERSION + 1
    newer[0]["columns"]["jobs"].insert(0, "added")
    newer[0]["rows"]["jobs"] = [["x", *row] for row in newer[0]["rows"]["jobs"]]
    newer[0]["rows"]["added"] = [[1]]
    assert replica.take_over(position, newer, "")
    assert held_rows(replica) == before, "what this orch does not know is left out"


def test_an_event_about_a_table_of_a_newer_orch_is_shown_and_its_row_is_not(copied: tuple[Path, Replica]) -> None:
    location, replica = copied
    with Store(location) as store:
        store.event("mine", "note", "of a newer orch")
        with forging(store) as tx:
            tx.execute(
                schema.events.update().where(schema.events.c.what == "of a newer orch").values(subject="new x/1")
            )
            tx.commit()
    update(replica, location)
    assert held_rows(replica) == expected_rows(location)


def test_only_this_user_may_read_the_copy(copied: tuple[Path, Replica]) -> None:
    folder = copied[1].file.parent
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
