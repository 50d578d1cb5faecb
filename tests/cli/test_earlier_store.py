"""P8: every command refuses a store from before version 1, and machines that are on record there stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.store_versions import dump_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.promise("P8")]

TASK = 'name: mine\nresources: {infra: "local:1"}\nrun: echo $$ > "$MARK"; sleep 300\n'


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """Yield an orch whose cluster `mine` runs a program, and whose engine was killed."""
    (tmp_path / "task.yaml").write_text(TASK)
    orch = Orch(tmp_path, {"MARK": str(tmp_path / "mark")})
    orch.ok("launch", "task.yaml", "--yes", "--detach", "--env", "MARK")
    until("the program runs", lambda: (tmp_path / "mark").exists() and (tmp_path / "mark").read_text() != "")
    orch.kill_engines()
    yield orch
    orch("down", "mine", "--yes")


def exchange(orch: Orch, *statements: str) -> None:
    with closing(sqlite3.connect(orch.state / "orch.db")) as store, store:
        for statement in statements:
            store.execute(statement)


def test_no_command_uses_an_earlier_store_or_ends_what_is_in_it(orch: Orch) -> None:
    program = Path("/proc", Path(orch.more["MARK"]).read_text().strip())
    exchange(orch, "UPDATE meta SET value = '8' WHERE key = 'version'", "INSERT INTO meta VALUES ('schema', '4')")
    before = dump_rows(orch.state / "orch.db")
    for words in (
        *("status", "runs", "store", "store upgrade", "store restored", "events --verify", "down mine --yes", "reap"),
        *("launch task.yaml --yes", "recover mine", "exec mine -- true", "watch mine", "logs mine", "stop mine"),
    ):
        done = orch(*words.split())
        assert done.returncode != 0, words
        assert "has tables of the old version 8, and this orch uses version 1: it changes nothing" in done.stderr, (
            words, done.stderr,
        )  # fmt: skip
        assert "open there: mine; orch of commit" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert dump_rows(orch.state / "orch.db") == before
    assert program.exists(), "the program on its machine still runs"
    exchange(orch, "UPDATE meta SET value = '1' WHERE key = 'version'", "DELETE FROM meta WHERE key = 'schema'")
    orch.ok("down", "mine", "--yes")
    until("the program is ended", lambda: not program.exists())
