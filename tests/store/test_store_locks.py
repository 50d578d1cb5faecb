"""Looking at the file must not drop the locks that this process holds on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.store.read import Reader
from orchestrator.store.store import Store

WRITE_AND_LEAVE = """
import sys
from pathlib import Path
from orchestrator.store.store import Store
with Store(Path(sys.argv[1])) as store:
    store.event("c", "remark", "from another process")
"""


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
