"""P9: a person's store comes to a server by its backup, and the file that stays behind is only read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.promise("P9")]

TASK = """
name: mine
resources: {infra: "local:1"}
run: echo began >> "$MARK"; until [ -e "$MARK.go" ]; do sleep 0.1; done
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Orch]:
    """Yield the orch of a person, whose cluster `mine` runs a job, and whose engine was killed."""
    (tmp_path / "task.yaml").write_text(TASK)
    orch = Orch(tmp_path, {"MARK": str(tmp_path / "mark")})
    orch.ok("launch", "task.yaml", "--yes", "--detach", "--env", "MARK")
    until("the program runs", (tmp_path / "mark").exists)
    orch.kill_engines()
    yield orch
    orch("down", "mine", "--yes")


def test_a_backup_brings_a_running_job_to_a_server_and_the_file_changes_nothing_any_more(
    person: Orch, server: PostgresServer
) -> None:
    bucket = (person.folder / "bucket").as_uri()
    person.ok("store", "backup", "--to", bucket)
    team = Orch(person.folder, {**person.more, "ORCH_STORE": server.new_store()})
    restored = team("store", "restore", bucket, "--yes")
    assert restored.returncode == 0, restored.stderr
    assert "orch watch mine 1" in restored.stderr, restored.stderr

    refused = person("exec", "mine", "--", "true")
    assert refused.returncode == 1, refused.stderr
    assert "an older state of it was put back" in refused.stderr, refused.stderr

    (person.folder / "mark.go").touch()
    watched = team("watch", "mine", "1")
    assert watched.returncode == 0, watched.stderr
    assert (person.folder / "mark").read_text() == "began\n", "it ran on, and was not started again"
    assert team.ok("exec", "mine", "--", "echo", "hello").strip().endswith("hello")
    team.ok("down", "mine", "--yes", "--force")  # it belongs to the person, whatever the login of the database is
    assert json.loads(team.ok("status", "-o", "json"))["clusters"] == []
    assert not list(team.state.rglob("*.pid")), "a simulated machine is left"
    team.ok("events", "--verify")
