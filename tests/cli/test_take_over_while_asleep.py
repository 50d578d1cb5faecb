"""A computer that slept while another one took its machines over and ended them rents no others."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from support.heard import listening
from support.orch_process import Orch

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASK = "name: two\nresources: {accelerators: tpu-v5e-1, infra: gcp/us-west4/us-west4-a}\nrun: echo begun; sleep 600\n"


def sleep_for(orch: Orch, seconds: float) -> None:
    """Move what the store notes with its time into the past, as if the computer had slept since."""
    with sqlite3.connect(orch.state / "orch.db") as store:
        assert store.execute("UPDATE clusters SET last_seen = last_seen - ?", (seconds,)).rowcount == 1
        assert store.execute("UPDATE intents SET since = since - ?", (seconds,)).rowcount == 1
        assert store.execute("UPDATE jobs SET created = created - ?", (seconds,)).rowcount == 1
    store.close()


@pytest.mark.promise("P5")
def test_machines_that_another_one_took_over_and_ended_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    for name in ("ann", "bob", "cloud"):
        (tmp_path / name).mkdir()
    (tmp_path / "cloud/scenario.toml").write_text(SCENARIO)
    with SimulatedGoogle(tmp_path / "cloud") as google:
        ann, bob = (Orch(tmp_path / name, dict(google.env)) for name in ("ann", "bob"))
        (ann.folder / "two.yaml").write_text(TASK)
        with listening(ann) as start:
            first = start("launch", "two.yaml", "--yes")
            first.until("begun")
            first.process.kill()
            first.status()
        shutil.copytree(ann.state / "keys", bob.state / "keys")
        assert bob("recover", "two", "--take-over", "--yes").returncode == 0
        bob.ok("down", "two")
        sleep_for(ann, 3 * 3600.0)
        done = ann("watch", "two", timeout=400)
        assert done.returncode == Exit.HOST_LOST, done.stderr
        assert "the machines of 'two' are absent, and orch looked at them last at" in done.stderr, done.stderr
        assert "next: if they were not ended on purpose: orch launch … -c two" in done.stderr, done.stderr
        with google.cloud.open() as cloud:
            assert list(cloud.live()) == [], "no others were rented"
        assert json.loads(ann.ok("status", "-o", "json"))["clusters"] == []
