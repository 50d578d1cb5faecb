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


def open_team(tmp_path: Path, server: PostgresServer) -> tuple[Orch, Orch, str]:
    """Return the orch of the owner of a store, that of the member ann, and a bucket."""
    address = server.new_store()
    for name in ("owner", "ann"):
        (tmp_path / name).mkdir()
    owner = Orch(tmp_path / "owner", {"ORCH_STORE": address})
    ann = Orch(tmp_path / "ann", {"ORCH_STORE": server.new_member("ann", address)})
    return owner, ann, (tmp_path / "bucket").as_uri()


def test_a_member_is_refused_what_only_the_owner_of_the_tables_may_do(tmp_path: Path, server: PostgresServer) -> None:
    owner, ann, bucket = open_team(tmp_path, server)
    server.new_login("bob", owner.more["ORCH_STORE"])
    owner.ok("store", "backup", "--to", bucket)
    for words in (
        ("grant", "bob"), ("grant", "bob", "--revoke"), ("moved", "--yes"), ("copied", "--yes"), ("restored", "--yes"),
        ("restore", bucket, "--replace", "--yes"),
    ):  # fmt: skip
        for more in ((), ("--dry-run",)):
            refused = ann("store", *words, *more)
            assert refused.returncode == 4, (words, more, refused.stdout, refused.stderr)
            assert "they belong to 'orch', and this login is 'ann'" in refused.stderr, refused.stderr
            assert "export ORCH_STORE=postgresql://orch@127.0.0.1" in refused.stderr, refused.stderr
    assert "bob" not in owner.ok("events", "-o", "json"), "nothing is on record that was not done"
    owner.ok("store", "grant", "bob")


def test_a_member_makes_backups_and_each_of_them_once(tmp_path: Path, server: PostgresServer) -> None:
    owner, ann, bucket = open_team(tmp_path, server)
    done = ann("store", "backup", "--to", bucket)
    assert done.returncode == 0, done.stderr
    assert bucket in ann.ok("store")
    ann.ok("config", "set", "store.backup", bucket)
    (ann.folder / "mine.yaml").write_text('name: mine\nresources: {infra: "local:1"}\nrun: echo hello\n')
    launched = ann("launch", "mine.yaml", "--yes")
    assert "not copied" not in launched.stderr, launched.stderr
    ann.ok("down", "mine")
    assert "last backup   none" not in owner.ok("store")


def test_a_member_without_a_right_makes_no_backup_until_the_owner_grants_again(
    tmp_path: Path, server: PostgresServer
) -> None:
    owner, ann, bucket = open_team(tmp_path, server)
    schema = owner.more["ORCH_STORE"].rpartition("%3D")[2]
    server.sql(f"DROP FUNCTION {schema}.orch_note_backup(text)")
    refused = ann("store", "backup", "--to", bucket)
    assert refused.returncode == 4, refused.stderr
    assert "orch store grant ann" in refused.stderr, refused.stderr
    assert not (tmp_path / "bucket").exists(), "no copy that nothing records"
    owner.ok("store", "grant", "ann")
    ann.ok("store", "backup", "--to", bucket)
    assert bucket in ann.ok("store")
