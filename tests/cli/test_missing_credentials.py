"""Without credentials nothing is asked for, nothing is recorded, and no command waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.orch_process import Orch

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASKS = {
    "aws": 'name: two\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: echo done\n',
    "gcp": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: echo done\n",
}


@dataclass(frozen=True)
class World:
    """own: with credentials of the cloud. without: the same computer without any."""

    own: Orch
    without: Orch
    cloud: SimulatedAws | SimulatedGoogle

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]


@pytest.fixture(params=["aws", "gcp"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "two.yaml").write_text(TASKS[request.param])
    with SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place) as cloud:
        # No endpoint leads to the simulated cloud, and an empty HOME has no credentials of the real one.
        without = Orch(tmp_path, {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"})
        made = World(Orch(tmp_path, dict(cloud.env)), without, cloud)
        if request.param == "aws":
            made.own.ok("config", "set", "aws.instance_profile", "orch-host")
        made.own.ok("launch", "two.yaml", "--yes")
        yield made
        made.own("down", "two")
        assert made.living() == []


@pytest.mark.parametrize("words", [("down", "two"), ("stop", "two"), ("exec", "two", "--", "true")])
def test_a_command_without_credentials_fails_at_once_and_records_nothing(world: World, words: tuple[str, ...]) -> None:
    before = json.loads(world.own.ok("events", "-o", "json"))["events"]
    began = time.monotonic()
    done = world.without(*words)
    assert done.returncode == Exit.PERMISSION, done.stderr
    assert "there are no" in done.stderr and "credentials" in done.stderr
    assert time.monotonic() - began < 30
    assert json.loads(world.own.ok("events", "-o", "json"))["events"] == before
    assert len(world.living()) == 1
