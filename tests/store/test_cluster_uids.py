"""The end of a cluster's uid: known before there is a record, and different where two could meet in one account."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orchestrator.computer import identify_place
from orchestrator.engine.state.names import plan_slice_stem, slice_stem
from orchestrator.paths import load_paths
from orchestrator.store.leases import Lease
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.uids import derive_uid_end


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    return load_paths().database


def planned(database: Path, name: str = "mine") -> str:
    with open_reader_at(database) as reader:
        return plan_slice_stem(reader, name)


def test_the_digits_follow_from_place_project_name_and_ordinal() -> None:
    text = b"here\x00default\x00mine\x000"
    first = derive_uid_end("here", "default", "mine", 0)
    assert first == hashlib.sha256(text).hexdigest()[:6]
    others = [("there", "default", "mine", 0), ("here", "other", "mine", 0), ("here", "default", "yours", 0)]
    assert len({first, derive_uid_end("here", "default", "mine", 1), *(derive_uid_end(*one) for one in others)}) == 5


def test_a_place_is_a_computer_a_person_and_a_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = identify_place(tmp_path)
    assert identify_place(tmp_path) == here != identify_place(tmp_path / "other")
    monkeypatch.setenv("LOGNAME", "bob")
    assert identify_place(tmp_path) != here


def test_a_plan_shows_the_name_that_the_record_gets(database: Path) -> None:
    database.parent.mkdir(parents=True)
    seen: list[str] = []
    for _ in range(3):
        before = planned(database)
        with Store(database) as store:
            record = store.open_cluster("mine", "")
            lease = store.acquire("cluster:mine", "test")
            assert before == planned(database) == slice_stem("mine", record.uid) == f"mine-{record.uid[-6:]}"
            assert len(record.uid) == 16
            assert isinstance(lease, Lease)
            store.close_cluster(lease, record)
            store.release(lease)
        seen.append(record.uid)
    assert len({uid[-6:] for uid in seen}) == len({uid[:10] for uid in seen}) == 3


def test_a_long_name_is_cut_in_the_names_of_slices_alone() -> None:
    name = "a" * 30 + "-b-" + "c" * 7
    assert slice_stem(name, "0123456789abcdef") == "a" * 30 + "-b-abcdef"
    assert len(slice_stem("x" * 40, "0123456789abcdef")) == 40
