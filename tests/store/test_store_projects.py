"""Projects: names of clusters are unique in one, and an orch without projects may work beside."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import inspect
from support.driving import Listener
from test_store_audit import audit_of, tables_of

from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import NotFoundError
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import open_reader_at
from orchestrator.store.records import NewJob
from orchestrator.store.replay import rebuild_tables
from orchestrator.store.schema import clusters
from orchestrator.store.store import Store


def test_each_project_has_its_own_cluster_of_a_name(location: Location) -> None:
    with Store(location) as store, Store(location, project="lab") as lab:
        mine, theirs = store.open_cluster("c", "mine"), lab.open_cluster("c", "theirs")
        assert mine.uid != theirs.uid and mine.uid[-6:] != theirs.uid[-6:]
        assert (store.open_cluster("c", ""), lab.open_cluster("c", "")) == (mine, theirs), "unique in a project"
        assert [(one.project, one.qualified_name) for one in (mine, theirs)] == [("default", "c"), ("lab", "lab/c")]
        new = NewJob(kind="launch", run_id="run", digest="d", task="", bucket="", ranks=None, after_end="keep")
        lab.open_job(theirs, new)
        for each, record in ((store, mine), (lab, theirs)):
            with open_reader_at(location, each.project) as reader:
                assert reader.cluster("c") == each.cluster("c") == record
                assert [one.uid for one in reader.clusters()] == [one.uid for one in each.clusters()]
                assert len(reader.clusters()) == 2, "listings are of all projects"
                found = None if each is store else ("c", 1)
                runs = [reader.find_run("run"), each.find_run("run")]
                assert [run and (run[0], run[1].id) for run in runs] == [found, found]
                jobs = (reader.last_run_of("c"), each.last_run_of("c"))
                assert [job is not None for job in jobs] == [found is not None] * 2
                assert len(reader.events(record.qualified_name)) == (1 if each is store else 2)
        held = lab.acquire("cluster:lab/c", "test")
        assert isinstance(held, Lease)
        lab.close_cluster(held, theirs)
        assert (store.cluster("c"), lab.cluster("c")) == (mine, None)
        assert (store.deleted_cluster("c"), (lab.deleted_cluster("c") or mine).uid) == (None, theirs.uid)
    events, _ = audit_of(location)
    assert rebuild_tables(events) == tables_of(location)


def test_a_name_of_another_project_is_not_found_and_the_project_is_named(location: Location) -> None:
    with Store(location, project="lab") as lab:
        lab.open_cluster("c", "")
    with Store(location) as store, pytest.raises(NotFoundError) as raised:
        find_cluster(store, "c")
    assert "project lab has one" in raised.value.why and raised.value.next_step == "the same with: ORCH_PROJECT=lab"


def test_the_index_of_names_is_that_of_the_definition(location: Location) -> None:
    with Store(location) as store:
        found = inspect(store._database.engine).get_indexes("clusters")  # there is no other way in
    assert {str(one["name"]) for one in found} == {index.name for index in clusters.indexes}


def test_the_lease_of_the_default_project_has_the_bare_name(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    with Store(database) as store, Store(database, project="lab") as lab:
        assert isinstance(store.acquire("cluster:c", "launch"), Lease)
        assert not LeaseKeeper(store, "c", "test", Listener()).try_hold()
        with LeaseKeeper(lab, "c", "test", Listener()) as keeper:
            assert keeper.try_hold() and keeper.lease.name == "cluster:lab/c"
