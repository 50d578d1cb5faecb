"""A store that the first release left in the middle of its work is opened, migrated and driven to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.store_v1 import put_v1

from orchestrator.store.read import open_reader_at
from orchestrator.store.replay import rebuild_tables, verify_chain

pytestmark = [pytest.mark.slow, pytest.mark.promise("P8")]


def test_what_the_first_release_left_is_brought_to_its_end(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    orch.state.mkdir(parents=True)
    put_v1(orch.state / "orch.db")
    before = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert [cluster["name"] for cluster in before] == ["busy", "going", "starting"]  # read as it is, not changed

    try:
        watched = orch("watch", "starting")  # killed before its create: the same slice is made now
        assert watched.returncode == 0, watched.stderr
        down = orch("down", "going", "starting")
        assert down.returncode == 0, down.stderr
    finally:
        orch("down", "starting")
    after = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert [cluster["name"] for cluster in after] == ["busy"]  # on a provider that this release does not serve

    with open_reader_at(orch.state / "orch.db") as reader:
        events = tuple(reader.all_events())
        assert verify_chain(events, reader.head()) is None
        tables = rebuild_tables(events)
        starting = next(row for row in tables["clusters"].values() if row["name"] == "starting")
        intents = [row for row in tables["intents"].values() if row["cluster_uid"] == starting["uid"]]
        assert [(row["name"], row["state"]) for row in intents] == [("starting-1", "gone")]
