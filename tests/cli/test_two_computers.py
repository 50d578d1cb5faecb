"""Two computers of servers: two state folders that share nothing but the store, the mounted key and the clouds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch
from support.postgres import postgres_server
from support.servers import make_servers_key, name_server

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit
from orchestrator.remote.keys import make_host_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
TASKS = {
    "aws": 'name: two\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: sleep 600\n',
    "gcp": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: sleep 600\n",
}


@dataclass(frozen=True)
class Team:
    """ann, bob: a computer each. cloud: the one that both have credentials of."""

    ann: Orch
    bob: Orch
    cloud: SimulatedAws | SimulatedGoogle

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]


@pytest.fixture(params=["aws", "gcp"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Team]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server())
        store, key = server.new_store(), make_servers_key(tmp_path)
        place = tmp_path / "cloud"
        place.mkdir()
        (place / "scenario.toml").write_text(SCENARIO)
        cloud = stack.enter_context(SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place))
        computers: list[Orch] = []
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "two.yaml").write_text(TASKS[request.param])
            computers.append(Orch(tmp_path / name, {**cloud.env, **name_server(store, key, name)}))
            if request.param == "aws":
                computers[-1].ok("config", "set", "aws.instance_profile", "orch-host")
        made = Team(*computers, cloud)
        yield made
        computers[0]("down", "two", "--force")
        assert made.living() == []


def machines(orch: Orch) -> dict[str, Any]:
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    return dict(found["machines"])


def test_every_command_of_the_other_computer_reaches_the_hosts(team: Team) -> None:
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    (team.bob.folder / "file").write_text("content")
    for words in (("logs", "two"), ("ssh", "two", "--", "true"), ("cp", "file", "two:file")):
        team.bob.ok(*words)
    began = time.monotonic()
    assert "hello" in team.bob.ok("exec", "two", "--", "echo", "hello")
    assert time.monotonic() - began < 60
    assert "there" in team.bob.ok("ssh", "two", "0", "--", "echo there")
    assert team.ann.ok("exec", "two", "--no-prefix", "--", "cat", "file") == "content\n"
    team.bob.ok("cancel", "two", "--force")
    team.bob.ok("down", "two", "--force")


def test_the_machines_of_one_computer_are_ended_from_the_other(team: Team) -> None:
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert machines(team.ann) == machines(team.bob)
    assert "nothing" not in team.bob.ok("status", "two")
    said = team.bob("down", "two", "--force")
    assert said.returncode == 0, said.stderr
    assert team.living() == []
    assert json.loads(team.ann.ok("status", "-o", "json"))["clusters"] == []


def test_an_engine_with_another_key_does_not_start_where_a_cluster_is_open(team: Team, tmp_path: Path) -> None:
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    (tmp_path / "other").mkdir()
    other = replace(team.bob, more={**team.bob.more, "ORCH_ENGINE_KEY": str(make_servers_key(tmp_path / "other"))})
    refused = other("serve", "--engine-only", "--until-idle")
    assert refused.returncode == Exit.CONFLICT, refused.stderr
    assert "this computer has another SSH key than the servers of the store" in refused.stderr
    assert "export ORCH_ENGINE_KEY=FILE" in refused.stderr
    said = other("exec", "two", "--", "true")
    assert said.returncode == Exit.PERMISSION and "orch exec two --identity KEY -- true" in said.stderr, said.stderr
    other.ok("down", "two", "--force")
    other.ok("serve", "--engine-only", "--until-idle")


def test_hosts_on_this_computer_are_refused_beside_another_server(team: Team) -> None:
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")  # its engine works from now on
    task = team.bob.folder / "local.yaml"
    task.write_text("name: here\nresources: {infra: local}\nrun: 'true'\n")
    refused = team.bob("launch", "local.yaml", "--yes")
    assert refused.returncode == Exit.USAGE, refused.stderr
    assert "`infra: local` does not work with several servers of one store" in refused.stderr
    assert team.bob("plan", "local.yaml").returncode != 0


def test_a_recovery_key_enters_after_the_computer_is_lost(team: Team, tmp_path: Path) -> None:
    private, public = make_host_key()
    key = tmp_path / "recovery"
    key.write_text(private)
    key.chmod(0o600)
    team.ann.ok("config", "set", "ssh.recovery_key", public)
    task = team.ann.folder / "two.yaml"
    task.write_text(task.read_text().replace("sleep 600", "'true'"))
    assert "admit also the recovery key" in team.ann("plan", "two.yaml").stderr
    team.ann.ok("launch", "two.yaml", "--yes")
    shutil.rmtree(team.ann.state)
    (tmp_path / "other").mkdir()
    own = {"ORCH_HOME": str(tmp_path / "new"), "ORCH_ENGINE_KEY": str(make_servers_key(tmp_path / "other"))}
    new = replace(team.ann, more={**team.ann.more, **own})
    assert new("ssh", "two", "0", "--", "true").returncode != 0
    assert "there" in new.ok("ssh", "two", "0", "--identity", str(key), "--", "echo there")
    assert "hello" in new.ok("exec", "two", "--identity", str(key), "--", "echo", "hello")
    assert "now with its own" in new.ok("exec", "two", "--", "echo", "now with its own")
