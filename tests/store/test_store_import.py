"""P8: a state folder is imported completely or not at all, once, and no orch changes it afterwards."""

from __future__ import annotations

import itertools
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, update
from store_history import LOCAL
from support.postgres import PostgresServer
from test_store_copied import fill

from orchestrator.computer import read_computer
from orchestrator.errors import ConflictError, OrchError, UserError
from orchestrator.plan.observed import IntentState
from orchestrator.store.blob_changes import Blob
from orchestrator.store.failures import StoreError
from orchestrator.store.import_changes import ImportChanges, Imported, open_source, read_source, refuse_import
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Lease
from orchestrator.store.location import describe_location
from orchestrator.store.provider_records import StoredRecords
from orchestrator.store.read import open_reader_at
from orchestrator.store.schema import intents
from orchestrator.store.sealing import mark_moved, seal
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A living cluster `c` with a job, a half-done down, a waiting block's record."""
    file = tmp_path / "old" / "orch.db"
    fill(file)
    with Store(file) as store:
        cluster = store.open_cluster("going", "")
        lease = store.acquire("cluster:going", "down")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "going-1", LOCAL, "token-2", "request")
        store.update_intent(lease, cluster, "going-1", IntentState.ENDING)
        store.set_desired_state(cluster, "down")
        store.release(lease)
    StoredRecords(lambda: file)(file.parent / "ec2-blocks").put("block-1", '{"waits": true}')
    return file


def bring(file: Path, address: str) -> Imported:
    with closing(open_source(file, 1e9)) as source:
        with ImportChanges(address) as store:
            store.refuse_same_slices(read_source(source))
            seal(source, describe_location(address))
            done = store.import_records(read_source(source))
        mark_moved(source)
    return done


def test_what_lives_continues_under_a_free_name_and_the_source_is_closed(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_store()
    with Store(address) as store:
        mine = store.open_cluster("c", "that of another member")
    with Store(folder) as opened:
        old = opened.installation
        done = bring(folder, address)
        assert done.names == {"c": "c-2", "going": "going"}
        with pytest.raises(OrchError):  # a command that had opened the file before
            opened.open_cluster("late", "")
    with Store(address) as store:
        assert [cluster.name for cluster in store.clusters()] == ["c", "c-2", "going"]
        assert store.imported == (old,)
        imported = store.cluster("c-2")
        assert imported is not None and imported.uid != mine.uid
        assert [intent.name for intent in store.intents(imported)] == ["c-1"], "the machines keep their names"
        assert [cluster.name for cluster in store.clusters_going_down()] == ["going"]
    assert StoredRecords(lambda: address)(folder.parent / "ec2-blocks").read("block-1") == '{"waits": true}'
    assert find_store_faults(address) == ()
    with pytest.raises(OrchError, match="were imported into") as caught:
        Store(folder)
    assert "export ORCH_STORE=" in caught.value.next_step
    with open_reader_at(folder) as reader:
        assert len(reader.clusters()) == 2


def test_hosts_of_open_slices_get_a_higher_epoch_and_the_importing_person_keeps_the_clusters(
    postgres: PostgresServer, folder: Path
) -> None:
    with Store(folder) as store:
        lease = store.acquire("cluster:c", "recover")
        cluster = store.cluster("c")
        assert isinstance(lease, Lease) and cluster is not None
        store.raise_epoch(lease, cluster, "token", 4)
        store.release(lease)
        assert cluster.owner == store.user
    address = postgres.new_store()
    bring(folder, address)
    with Store(address) as store:
        assert {one.token: (one.epoch, one.holder) for one in store.slice_owners()} == {
            "token": (5, ""),
            "token-2": (2, ""),
        }
        assert {cluster.owner for cluster in store.clusters()} == {store.user}


def test_a_run_keeps_its_key_and_its_files(postgres: PostgresServer, folder: Path) -> None:
    with Store(folder) as store:
        key = store.run_key("run-1")
        store.keep_blob(Blob(digest="tree-1", size=2, unpacked=1, content=b"ab"))
    address = postgres.new_store()
    bring(folder, address)
    with Store(address) as store:
        assert store.run_key("run-1") == key
        assert store.find_blob("tree-1") == Blob(digest="tree-1", size=2, unpacked=1, content=b"ab")


def test_a_second_import_adds_nothing(postgres: PostgresServer, folder: Path) -> None:
    address = postgres.new_store()
    bring(folder, address)
    assert bring(folder, address).rows == 0
    with Store(address) as store:
        assert [cluster.name for cluster in store.clusters()] == ["c", "going"]


def test_a_folder_with_which_an_orch_works_is_not_sealed(postgres: PostgresServer, folder: Path) -> None:
    with Store(folder) as store:
        assert isinstance(store.acquire("engine:here", "unattended engine"), Lease)
        with pytest.raises(ConflictError, match="in use by process"):
            bring(folder, postgres.new_store())
        store.open_cluster("still", "it is not sealed")


@pytest.mark.parametrize("step", [1, 2])
def test_an_import_that_is_killed_at_any_statement_is_completed_by_the_same_command(
    postgres: PostgresServer, folder: Path, step: int
) -> None:
    address = postgres.new_store()
    Store(address).__exit__()
    kills = 0
    for deadly in range(step, 400, 8):
        if not _killed_at(folder, address, deadly):
            break
        kills += 1
        with open_reader_at(address) as reader:
            assert len(reader.clusters()) in (0, 2), "all or nothing"
    assert kills > 5
    bring(folder, address)
    with Store(address) as store:
        assert [cluster.name for cluster in store.clusters()] == ["c", "going"]
    assert find_store_faults(address) == ()


def _killed_at(file: Path, address: str, deadly: int) -> bool:
    """Import in a child that kills itself before its n-th statement; False when it came through."""
    child = os.fork()
    if child == 0:
        try:
            counter = itertools.count(1)

            def point(*_args: object) -> None:
                if next(counter) == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)

            event.listen(Engine, "before_cursor_execute", point)
            event.listen(Engine, "commit", point)
            bring(file, address)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_another_login_completes_an_import_that_was_killed(postgres: PostgresServer, folder: Path) -> None:
    """The address without the login says which store it is."""
    address = postgres.new_store()
    with closing(open_source(folder, 1e9)) as source:
        seal(source, describe_location(address, login="ann"))
    refuse_import(folder, address, folder.parent, wait=False)
    bring(folder, address)
    with Store(address) as store:
        assert [cluster.name for cluster in store.clusters()] == ["c", "going"]
    with closing(open_source(folder, 1e9)) as source, pytest.raises(StoreError, match="were imported into"):
        seal(source, describe_location(address).replace("/postgres", "/another"))


def test_hosts_that_are_processes_of_the_folder_stay_with_it(postgres: PostgresServer, folder: Path) -> None:
    address = postgres.new_store()
    with Store(folder) as store:
        cluster = store.cluster("c")
        assert cluster is not None
        with store._database.writing() as tx:
            here = f"local:{read_computer(folder.parent).id}:here"
            tx.execute(update(intents).where(intents.c.name == "c-1").values(account=here))
            tx.commit()
    refuse_import(folder, address, folder.parent, wait=False)
    with pytest.raises(ConflictError, match="are processes of the folder") as caught:
        refuse_import(folder, address, folder.parent.parent / "another", wait=False)
    assert f"ORCH_HOME={folder.parent.parent} orch down c" in caught.value.next_step
    with Store(folder) as store:
        store.open_cluster("still", "it is not sealed")


def test_a_folder_is_not_imported_into_itself(folder: Path) -> None:
    with pytest.raises(UserError, match="into itself"):
        refuse_import(folder, folder.parent / ".." / folder.parent.name / folder.name, folder.parent, wait=False)
