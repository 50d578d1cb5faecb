"""Looking at the file drops no lock that this process holds on it, and setting the clock ends no lease."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.store import Store

WRITE_AND_LEAVE = """
import sys
from pathlib import Path
from orchestrator.store.store import Store
with Store(Path(sys.argv[1])) as store:
    store.event("c", "remark", "from another process")
"""

TAKE = """
import sys
from pathlib import Path
from orchestrator.store.store import Store
with Store(Path(sys.argv[1])) as store:
    print(store.acquire("cluster c", "another"))
"""
SET = "import time\n_true = time.time\ntime.time = lambda: _true() + {seconds}\n"


def test_a_second_open_in_the_same_process_keeps_the_log_in_its_place(tmp_path: Path) -> None:
    """Who closes the database last removes its log. One who dropped our lock would take us for gone, and do it."""
    database = tmp_path / "orch.db"
    with Store(database) as store, store._database.reading() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM events").scalar() == 0
        with Reader(database) as reader:
            reader.clusters()
        with Store(database):
            pass
        subprocess.run([sys.executable, "-c", WRITE_AND_LEAVE, str(database)], check=True)
        assert database.with_name("orch.db-wal").exists(), "the other process took us for gone"
    with Store(database) as store:
        store.event("c", "remark", "and on")
    with Reader(database) as reader:
        assert [event.what for event in reader.events("c")] == ["from another process", "and on"]


@pytest.mark.parametrize("seconds", [2 * 86400, -2 * 86400])
def test_a_lease_of_a_living_process_is_not_over_when_the_clock_is_set(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(SET.format(seconds=seconds))
    with Store(tmp_path / "orch.db") as store:
        assert isinstance(store.acquire("cluster c", "work"), Lease)
        done = subprocess.run(
            [sys.executable, "-c", TAKE, str(tmp_path / "orch.db")],
            env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert done.stdout == f"process {os.getpid()} on {socket.gethostname()} (work)\n"
