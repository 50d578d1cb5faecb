"""P9: no backup replaces a store with which an orch works, and what had the store open cannot change it any more."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.orch_process import Orch, until

from orchestrator.errors import OrchError
from orchestrator.store.store import Store

pytestmark = [pytest.mark.promise("P9"), pytest.mark.slow, pytest.mark.timeout(300)]

TASK = 'name: mine\nresources: {infra: "local:1"}\nrun: touch "$MARK"; sleep 600\n'


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """Yield an orch whose engine drives a job, and which was backed up before."""
    (tmp_path / "task.yaml").write_text(TASK)
    orch = Orch(tmp_path, {"MARK": str(tmp_path / "mark")})
    with Store(orch.state / "orch.db") as store:
        store.event("", "remark", "before the backup")
    orch.ok("store", "backup", "--to", bucket(orch))
    orch.ok("launch", "task.yaml", "--detach", "--env", "MARK")
    until("the program runs", (tmp_path / "mark").exists)
    yield orch
    stop_engines(orch)
    orch("down", "mine", "--yes")


def bucket(orch: Orch) -> str:
    return (orch.folder / "bucket").as_uri()


def stop_engines(orch: Orch) -> None:
    for process in orch.engines():
        os.kill(process, signal.SIGTERM)
    until("no engine works", lambda: not orch.engines(), 40)


def test_a_store_with_which_an_engine_works_is_not_replaced(orch: Orch) -> None:
    (engine,) = orch.engines()
    for more in (("--dry-run",), ("--yes",)):
        refused = orch("store", "restore", bucket(orch), "--replace", *more)
        assert refused.returncode == 6, refused.stderr
        assert f"in use by process {engine}" in refused.stderr, refused.stderr
        assert f"kill {engine}" in refused.stderr, refused.stderr
    assert list(orch.state.glob("orch.db.*")) == [], "nothing was done"

    with Store(orch.state / "orch.db") as waiting:  # a command that has opened the store, without a lease
        stop_engines(orch)
        orch.ok("down", "mine", "--yes")
        replaced = orch("store", "restore", bucket(orch), "--replace", "--yes")
        assert replaced.returncode == 0, replaced.stderr
        with pytest.raises(OrchError, match="replaced by a backup") as caught:
            waiting.acquire("cluster:late", "launch")
        assert caught.value.next_step.startswith("repeat the command")
        with pytest.raises(OrchError, match="replaced by a backup"):
            waiting.open_cluster("late", "")
    (kept,) = orch.state.glob("orch.db.replaced-*[0-9]")
    with closing(sqlite3.connect(kept)) as raw:
        assert raw.execute("SELECT name FROM clusters").fetchall() == [("mine",)]
    assert "mine" not in orch.ok("events", "-o", "json")
    orch.ok("events", "--verify")
    orch.ok("store", "restore", str(kept), "--replace", "--yes")  # and back again
    assert '"mine"' in orch.ok("events", "-o", "json")
