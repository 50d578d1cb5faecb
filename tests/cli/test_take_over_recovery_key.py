"""Machines that are taken over and admit no key of this computer: the recovery key opens them, and lets it in."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.postgres import postgres_server

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit
from orchestrator.remote.keys import make_host_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASKS = {
    "aws": 'name: two\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: echo done\n',
    "gcp": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: echo done\n",
}


@dataclass(frozen=True)
class Lost:
    """ann's computer is lost; bob has the recovery key of her machines, and another store."""

    bob: Orch
    key: Path

    def take_over(self) -> str:
        """Return what the command said."""
        done = self.bob("recover", "two", "--take-over", "--yes", timeout=360)
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture(params=["gcp-file", "aws-file", "gcp-server"])
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lost]:
    kind, _, store = request.param.partition("-")
    private, public = make_host_key()
    key = tmp_path / "recovery"
    key.write_text(private)
    key.chmod(0o600)
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    with ExitStack() as stack:
        cloud = stack.enter_context(SimulatedAws(place) if kind == "aws" else SimulatedGoogle(place))
        shared = {}
        if store == "server":
            shared = {"ORCH_STORE": stack.enter_context(postgres_server()).new_store()}
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
        ann, bob = Orch(tmp_path / "ann", dict(cloud.env)), Orch(tmp_path / "bob", dict(cloud.env) | shared)
        (ann.folder / "two.yaml").write_text(TASKS[kind])
        ann.ok("config", "set", "ssh.recovery_key", public)
        if kind == "aws":
            ann.ok("config", "set", "aws.instance_profile", "orch-host")
        ann.ok("launch", "two.yaml", "--yes")
        shutil.rmtree(ann.state)
        yield Lost(bob, key)
        bob.ok("down", "two", "--yes")


@pytest.mark.promise("P5")
def test_a_recovery_key_lets_the_computer_in_that_took_the_machines_over(lost: Lost) -> None:
    opens = "orch exec two --identity KEY -- true"
    assert opens in lost.take_over()
    for words in (("ssh", "two", "--", "true"), ("cp", "two:file", "file"), ("exec", "two", "--", "true")):
        began = time.monotonic()
        refused = lost.bob(*words)
        assert refused.returncode == Exit.PERMISSION, (words, refused.stderr)
        assert "error[permission]" in refused.stderr and opens in refused.stderr, refused.stderr
        assert time.monotonic() - began < 60, "no process lets this computer in, which is known"
    as_json = json.loads(lost.bob("exec", "two", "-o", "json", "--", "true").stdout)
    assert (as_json["status"], as_json["error"]["code"]) == (Exit.PERMISSION, "permission")
    assert json.loads(lost.bob.ok("queue", "two", "-o", "json"))["jobs"] == []
    lost.bob.ok("exec", "two", "--identity", str(lost.key), "--", "true")
    assert "now with its own" in lost.bob.ok("exec", "two", "--", "echo now with its own")
    assert "now with its own" in lost.bob.ok("logs", "two", "2")
