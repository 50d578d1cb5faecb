"""P9: a store that was copied, moved or put back is only read, until a person says which it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import text
from store_history import LOCAL, forging
from test_store_audit import audit_of, tables_of

from orchestrator.errors import OrchError
from orchestrator.plan.observed import IntentState
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.other_state import WITNESS_FILE, OtherStateError, find_refusal
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.state_changes import StateChanges
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P9")

JOB = NewJob(kind="launch", run_id="run-1", digest="d", task="{}", bucket="", ranks=None, after_end="keep")


def fill(location: Location) -> None:
    """A cluster with machines, a job and a pipeline."""
    with Store(location) as store:
        cluster = store.open_cluster("c", "one")
        lease = store.acquire("cluster:c", "launch")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, "c-1", LOCAL, "token", "request")
        store.update_intent(lease, cluster, "c-1", IntentState.ACCEPTED)
        store.open_job(cluster, JOB)
        store.open_pipeline("p", ("{}",), uid="p1")
        store.release(lease)


def make_other(location: Location, tmp_path: Path) -> Location:
    """What a copy, a restored backup or another server is to orch: the tie names another place."""
    if isinstance(location, Path):
        other = tmp_path / "copy" / "orch.db"
        shutil.copytree(location.parent, other.parent)
        return other
    with Store(location) as store, store._database.writing() as tx:
        tx.execute(text("UPDATE meta SET value = '{\"database\": \"1\"}' WHERE key = 'tie'"))
        tx.commit()
    return location


def test_a_copy_is_read_and_never_changed(location: Location, tmp_path: Path) -> None:
    fill(location)
    other = make_other(location, tmp_path)
    before = audit_of(other)
    with pytest.raises(OtherStateError, match="copied, moved or restored") as caught:
        Store(other)
    assert all(word in caught.value.next_step for word in ("store moved", "store copied", "store restored"))
    assert len(caught.value.lines()) <= 5
    with open_reader_at(other) as reader:
        assert [cluster.name for cluster in reader.clusters()] == ["c"]
    assert audit_of(other) == before


def test_a_moved_store_keeps_everything_and_stale_leases_end(location: Location, tmp_path: Path) -> None:
    fill(location)
    other = make_other(location, tmp_path)
    with StateChanges(other, accept_other_state=True) as store:
        store.accept_move()
    with Store(other) as store:
        assert (store.incarnation, [cluster.name for cluster in store.clusters()]) == (2, ["c"])
        assert isinstance(store.acquire("cluster:c", "down"), Lease)
    assert find_store_faults(other) == ()


def test_a_copy_beside_the_original_closes_what_the_original_has(location: Location, tmp_path: Path) -> None:
    fill(location)
    other = make_other(location, tmp_path)
    with StateChanges(other, accept_other_state=True) as store:
        original = store.installation
        closed = store.accept_copy()
        assert (closed.clusters, closed.jobs, closed.pipelines) == (("c",), 1, 1)
    with Store(other) as store:
        assert store.installation != original
        assert store.clusters() == ()
        ((_, intent),) = store.all_intents()
        assert (intent.state, original in intent.why) == (IntentState.DELETED, True)
        real = tables_of(other)
    events, head = audit_of(other)
    assert verify_chain(events, head) is None
    assert rebuild_tables(events) == real


def put_back(location: Location) -> None:
    """Set the store back to before its last three events, as a point-in-time recovery does."""
    with Store(location) as store, forging(store) as tx:
        seq = tx.execute(text("SELECT max(seq) FROM events")).scalar_one() - 3
        digest = tx.execute(text("SELECT hash FROM events WHERE seq = :seq"), {"seq": seq}).scalar_one()
        tx.execute(text("DELETE FROM events WHERE seq > :seq"), {"seq": seq})
        tx.execute(text("UPDATE meta SET value = :head WHERE key = 'chain'"), {"head": f"{seq} {digest}"})
        witness = _witness_of(location)
        kept = witness.read_bytes()
        tx.commit()
    witness.write_bytes(kept)


def _witness_of(location: Location) -> Path:
    folder = location.parent if isinstance(location, Path) else Path(os.environ["ORCH_HOME"]) / "state"
    return folder / WITNESS_FILE


def test_an_older_state_that_was_put_back_is_noticed_until_a_person_agrees(location: Location) -> None:
    fill(location)
    put_back(location)
    with pytest.raises(OtherStateError, match="older state of it was put back"):
        Store(location)
    with StateChanges(location, accept_other_state=True) as store:
        store.accept_restored_state()
    with Store(location) as store:
        assert store.incarnation == 2
        store.event("", "remark", "it is used again")


def test_another_history_of_the_same_length_is_noticed(location: Location) -> None:
    fill(location)
    put_back(location)
    kept = _witness_of(location).read_bytes()
    _witness_of(location).unlink()
    with Store(location) as store:
        for number in range(5):
            store.event("", "remark", str(number))
    _witness_of(location).write_bytes(kept)
    with pytest.raises(OtherStateError, match="is not the one that this computer has seen"):
        Store(location)


def test_a_holder_of_the_incarnation_before_can_write_nothing(location: Location) -> None:
    fill(location)
    with Store(location) as old:
        lease = old.acquire("cluster:c", "down")
        assert isinstance(lease, Lease)
        cluster = old.cluster("c")
        assert cluster is not None
        with StateChanges(location, accept_other_state=True) as store:
            store.accept_restored_state()
        assert not old.renew(lease)
        for change in (lambda: old.note_hosts(lease, cluster, ()), lambda: old.close_cluster(lease, cluster)):
            with pytest.raises(OrchError, match="took over"):
                change()
        with pytest.raises(OrchError, match="moved, copied or restored since"):
            old.acquire("cluster:c", "down")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', '{"x": {"seq": 1}}'])
def test_a_damaged_witness_is_no_failure(location: Location, content: str) -> None:
    fill(location)
    _witness_of(location).write_text(content)
    with Store(location) as store:
        assert store.cluster("c") is not None


def test_a_folder_that_was_moved_with_its_file_is_no_copy(tmp_path: Path) -> None:
    fill(tmp_path / "old" / "orch.db")
    (tmp_path / "old").rename(tmp_path / "new")
    with Store(tmp_path / "new" / "orch.db") as store:
        assert store.cluster("c") is not None


def test_a_light_reader_says_the_same_as_a_command_that_changes_the_store(location: Location, tmp_path: Path) -> None:
    fill(location)
    with open_reader_at(location) as reader:
        assert find_refusal(reader, location) is None
    other = make_other(location, tmp_path)
    with pytest.raises(OtherStateError) as refused:
        Store(other)
    with open_reader_at(other) as reader:
        found = find_refusal(reader, other)
    assert found is not None and found.lines() == refused.value.lines()
