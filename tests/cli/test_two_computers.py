"""Two computers of one team: two state folders that share nothing but the store and the clouds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch, until
from support.postgres import postgres_server

import orchestrator
from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit
from orchestrator.remote.keys import make_host_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMAS = Path(orchestrator.__file__).parent / "cli" / "data"
SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
ADMITTED = 'cat "${ORCH_ADMIT%/*}"/admitted/*'  # the keys that the host of a simulated cloud got from the team
TASKS = {
    "aws": 'name: two\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: sleep 600\n',
    "gcp": "name: two\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: sleep 600\n",
}


@dataclass(frozen=True)
class Team:
    """ann, bob: two members with a login and a computer each. cloud: the one that both have credentials of."""

    ann: Orch
    bob: Orch
    cloud: SimulatedAws | SimulatedGoogle

    def of_one_person(self) -> Team:
        """Both computers are ann's."""
        login = {"ORCH_STORE": self.ann.more["ORCH_STORE"]}
        return replace(self, bob=replace(self.bob, more={**self.bob.more, **login}))

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]


@pytest.fixture(params=["aws", "gcp"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Team]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server())
        store = server.new_store()
        place = tmp_path / "cloud"
        place.mkdir()
        (place / "scenario.toml").write_text(SCENARIO)
        cloud = stack.enter_context(SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place))
        computers: list[Orch] = []
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "two.yaml").write_text(TASKS[request.param])
            address = server.new_member(name, store)
            computers.append(Orch(tmp_path / name, {**cloud.env, "ORCH_STORE": address}))
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
    team = team.of_one_person()
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    (team.bob.folder / "file").write_text("content")
    for words in (("logs", "two"), ("ssh", "two", "--", "true"), ("cp", "file", "two:file")):
        team.bob.ok(*words)  # the first of them makes this computer's key, and waits until the hosts admit it
    began = time.monotonic()
    assert "hello" in team.bob.ok("exec", "two", "--", "echo", "hello")
    assert time.monotonic() - began < 60
    assert "from ann" not in team.bob.ok("logs", "two")
    assert "there" in team.bob.ok("ssh", "two", "0", "--", "echo there")
    team.bob.ok("cp", "file", "two:file")
    assert team.ann.ok("exec", "two", "--no-prefix", "--", "cat", "file") == "content\n"
    team.bob.ok("cancel", "two")
    team.bob.ok("down", "two")


@pytest.mark.parametrize(
    "first", [("logs", "two"), ("ssh", "two", "0", "--", "echo from ann"), ("cp", "two:from", "from")]
)
def test_the_first_command_of_a_new_computer_may_be_any_that_connects(team: Team, first: tuple[str, ...]) -> None:
    task = team.ann.folder / "two.yaml"
    task.write_text(task.read_text().replace("sleep 600", "echo from ann; echo from ann >from; cp from ~; sleep 600"))
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    done = team.bob(*first)
    assert done.returncode == 0, done.stderr
    copied = team.bob.folder / "from"
    assert "from ann" in (copied.read_text() if copied.exists() else done.stdout)


def test_without_a_driver_the_error_names_the_command_that_lets_a_new_computer_in(team: Team) -> None:
    task = team.ann.folder / "two.yaml"
    task.write_text(task.read_text().replace("sleep 600", "echo from ann"))
    team.ann.ok("launch", "two.yaml", "--yes")
    refused = team.bob("logs", "two")
    assert refused.returncode == Exit.PERMISSION, refused.stderr
    assert "no process drives the cluster now" in refused.stderr
    assert "orch exec two -- true" in refused.stderr
    team.ann.ok("exec", "two", "--", "true")
    assert "from ann" in team.bob.ok("logs", "two", "1")


def test_another_member_needs_force_to_change_a_cluster(team: Team) -> None:
    ann, bob = team.ann, team.bob
    ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert "OWNER" in bob.ok("status") and "OWNER" not in ann.ok("status")
    launch = ("launch", "two.yaml", "-c", "two", "--yes")
    for words in (launch, ("down", "two"), ("stop", "two"), ("start", "two"), ("cancel", "two")):
        done = bob(*words)
        assert done.returncode == Exit.CONFLICT, (words, done.stderr)
        assert "cluster 'two' belongs to ann" in done.stderr
        assert ("-c two-bob" if words[0] == "launch" else "--force") in done.stderr
    assert len(team.living()) == 1
    bob.ok("down", "two", "--force")
    assert team.living() == []
    found = json.loads(ann.ok("events", "two", "-o", "json"))["events"]
    (forced,) = [one for one in found if one["kind"] == "force"]
    assert forced["what"] == "bob gave down --force for the cluster of ann" and forced["actor"].startswith("bob@")
    assert {one["seq"] for one in json.loads(ann.ok("events", "two", "--owner", "bob", "-o", "json"))["events"]} == {
        one["seq"] for one in found if one["actor"].startswith("bob@")
    }


def test_the_machines_of_one_computer_are_ended_from_the_other(team: Team) -> None:
    team = team.of_one_person()
    team.ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert machines(team.ann) == machines(team.bob)
    assert "nothing" not in team.bob.ok("status", "two")
    said = team.bob("down", "two")
    assert said.returncode == 0, said.stderr
    assert team.living() == []
    assert json.loads(team.ann.ok("status", "-o", "json"))["clusters"] == []


def computers_of(orch: Orch) -> dict[str, dict[str, Any]]:
    """The computers of the team by member."""
    found = json.loads(orch.ok("team", "-o", "json"))
    jsonschema.validate(found, json.loads((SCHEMAS / "team.schema.json").read_text()))
    return {one["member"]: one for one in found["computers"]}


def key_of(orch: Orch) -> str:
    return " ".join((orch.state / "keys" / "id_ed25519.pub").read_text().split()[:2])


def test_a_removed_computer_is_refused_by_the_store_and_loses_its_key_on_the_hosts(team: Team) -> None:
    ann, bob = (
        replace(one, more={**one.more, "LOGNAME": name, "ORCH_PROJECT": "vision"})
        for one, name in ((team.ann, "ann"), (team.bob, "bob"))
    )
    in_other_project = replace(ann, more={**ann.more, "ORCH_PROJECT": "default"})
    bob("down", "nothing")  # joins
    ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert "hello" in bob.ok("exec", "two", "--", "echo", "hello")
    own = bob.ok("exec", "two", "--no-prefix", "--head", "--", "cat ~/.ssh/authorized_keys 2>/dev/null || true")
    assert "orch-computer-" not in own, "the person's own file was written"
    assert key_of(bob) in ann.ok("exec", "two", "--no-prefix", "--head", "--", ADMITTED)
    who = computers_of(ann)
    assert who["bob"]["removed"] is None
    said = ann.ok("team", "remove", "bob", "--dry-run")
    assert "two (" in said
    assert f"until {time.strftime('%Y-%m-%d', time.gmtime(time.time() + 14 * 86_400))}" in said
    assert "as long as its machines exist" in ann.ok("team", "remove", "ann", "--dry-run")
    assert computers_of(ann) == who
    removed = in_other_project("team", "remove", "bob", "--now", "--yes")
    assert removed.returncode == 0 and "vision/two: keys withdrawn\n" in removed.stderr, removed.stderr
    promised = [line for line in removed.stdout.splitlines() if line.startswith("  two (")]
    assert promised and all("until now, or 20" in line for line in promised), "no later day is promised"
    assert key_of(bob) not in ann.ok("ssh", "two", "0", "--", ADMITTED)
    refused = bob("exec", "two", "--", "true")
    assert refused.returncode == Exit.PERMISSION
    assert "was removed from the team" in refused.stderr
    assert f"orch team add {who['bob']['id']}" in refused.stderr
    assert bob("ssh", "two", "0", "--", "true").returncode != 0, "its key still opens the hosts"
    assert computers_of(bob)["bob"]["removed"] is not None
    ann.ok("team", "add", "bob")
    assert "hello" in bob.ok("exec", "two", "--", "echo", "hello")
    maker = bob("team", "remove", "ann", "--now", "--yes")
    assert "two: keys withdrawn, but the key that its machines were made with: orch down two" in maker.stderr
    bob.ok("team", "add", "ann")
    assert "bob removed" in ann.ok("events") and "bob added again" in ann.ok("events")
    ann.ok("events", "--verify")
    ann.ok("down", "two")


def test_a_removed_computer_stops_driving(team: Team) -> None:
    ann, bob = team.ann, team.bob
    bob.ok("launch", "two.yaml", "--detach", "--yes")
    ann.ok("team", "remove", "bob", "--yes")
    until("its engine ends", lambda: not bob.engines(), 60)
    events = json.loads(ann.ok("events", "-o", "json"))["events"]
    (removal,) = [one["seq"] for one in events if one["kind"] == "team" and "removed" in one["what"]]
    assert [one for one in events if one["seq"] > removal] == []
    ann.ok("team", "add", "bob")
    watch = bob.start("watch", "two")
    assert watch.stderr is not None and watch.stderr.readline(), "it drives the job"
    ann.ok("team", "remove", "bob", "--yes")
    said = watch.communicate(timeout=60)[1]
    assert watch.returncode == Exit.PERMISSION, said
    assert "was removed from the team" in said and f"orch team add {computers_of(ann)['bob']['id']}" in said
    (job,) = json.loads(ann.ok("queue", "two", "-o", "json"))["jobs"]
    assert job["state"] == "running", "the job is not ended with the computer"
    ann.ok("down", "two", "--force")


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
    new = replace(team.ann, more={**team.ann.more, "ORCH_HOME": str(tmp_path / "new")})
    assert new("ssh", "two", "0", "--", "true").returncode != 0
    assert "there" in new.ok("ssh", "two", "0", "--identity", str(key), "--", "echo there")
    assert "hello" in new.ok("exec", "two", "--identity", str(key), "--", "echo", "hello")
    assert "now with its own" in new.ok("exec", "two", "--", "echo", "now with its own")
