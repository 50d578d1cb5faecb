"""P9: a backup decides what orch does here, so a bucket that others write to is restored only with consent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from test_store_put_back import kill_engines

pytestmark = [pytest.mark.promise("P9"), pytest.mark.slow, pytest.mark.timeout(300)]

TASK = 'name: evil\nresources: {infra: "local:1"}\nrun: echo run >> "$MARKS"; sleep 600\n'


@pytest.fixture
def attacker(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "attacker").mkdir()
    (tmp_path / "attacker" / "evil.yaml").write_text(TASK)
    one = Orch(tmp_path / "attacker", {"MARKS": str(tmp_path / "marks")})
    yield one
    kill_engines(one)
    one("down", "evil", "--yes")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Orch]:
    (tmp_path / "victim").mkdir()
    one = Orch(tmp_path / "victim", {"MARKS": str(tmp_path / "marks")})
    yield one
    kill_engines(one)
    one("down", "evil", "--yes")


def test_a_hostile_backup_needs_consent_and_starts_nothing(attacker: Orch, victim: Orch, tmp_path: Path) -> None:
    bucket = (tmp_path / "bucket").as_uri()
    attacker.ok("launch", "evil.yaml", "--detach", "--env", "MARKS")
    ran = tmp_path / "marks"
    until("the program runs at the attacker", ran.exists)
    kill_engines(attacker)
    made = attacker("store", "backup", "--to", bucket)
    assert made.returncode == 0, made.stderr

    refused = victim("store", "restore", bucket)
    assert refused.returncode == 2, refused.stderr
    assert not (victim.state / "orch.db").exists()
    (digest,) = re.findall(r"sha256:[0-9a-f]{64}", made.stderr)
    for shown in (
        f"digest: {digest}",
        "1 cluster, 1 job, 0 pipelines",
        f"orch store restore {bucket} --expect sha256:",
    ):
        assert shown in refused.stderr, refused.stderr

    other = victim("store", "restore", bucket, "--expect", f"sha256:{'0' * 64}")
    assert other.returncode != 0 and "not the expected one" in other.stderr, other.stderr
    assert victim("store", "restore", bucket, "--expect", digest[:20]).returncode == 2
    assert not (victim.state / "orch.db").exists()

    victim.ok("store", "restore", bucket, "--expect", digest)
    victim.ok("serve", "--engine-only", "--until-idle", timeout=45)
    assert ran.read_text().splitlines() == ["run"]
