"""`orch store grant`: the owner of a team's store lets a login in, and the member works with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def test_a_granted_login_can_launch_exec_and_end_a_cluster_and_a_revoked_one_nothing(
    tmp_path: Path, server: PostgresServer
) -> None:
    address = server.new_store()
    for name in ("owner", "ann"):
        (tmp_path / name).mkdir()
    owner = Orch(tmp_path / "owner", {"ORCH_STORE": address})
    ann = Orch(tmp_path / "ann", {"ORCH_STORE": server.new_login("ann", address)})

    missing = owner("store", "grant", "absent-login")
    assert "has no login 'absent-login'" in missing.stderr
    shown = owner.ok("store", "grant", "ann", "--dry-run")
    assert 'GRANT EXECUTE ON FUNCTION "t1".orch_change(json) TO "ann";' in shown
    assert ann("status").returncode != 0
    owner.ok("store", "grant", "ann")
    try:
        (ann.folder / "mine.yaml").write_text('name: mine\nresources: {infra: "local:1"}\nrun: echo hello\n')
        ann.ok("launch", "mine.yaml", "--yes")
        assert "again" in ann.ok("exec", "mine", "--", "echo", "again")
        (cluster,) = json.loads(ann.ok("status", "-o", "json"))["clusters"]
        assert cluster["owner"] == "ann"
    finally:
        ann.ok("down", "mine")
    assert "ann@" in owner.ok("events", "mine", "-o", "json")
    owner.ok("events", "--verify")
    owner.ok("store", "grant", "ann", "--revoke")
    refused = ann("down", "mine")
    assert refused.returncode != 0
    assert "orch store grant" in refused.stderr
    assert "may not use the store any more" in owner.ok("events", "-o", "json")
