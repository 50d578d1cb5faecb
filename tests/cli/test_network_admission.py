"""Two servers at two addresses: the firewall of a slice admits each before the first contact, and drops who leaves.

The hosts of the simulated cloud are closed by the kernel to every server whose address no rule admits
(support/slice_firewall.py). Where namespaces cannot be made, these tests are skipped with the reason.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from support.namespaces import TeamNetwork, missing_for_namespaces, team_network
from support.orch_process import Orch
from support.postgres import PostgresServer, postgres_server
from support.servers import make_servers_key, name_server
from support.slice_firewall import slice_firewall
from support.slow_proxy import slow_proxy

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2 import visit as aws
from orch_fronts.google.cloud import SimulatedGoogle
from orch_fronts.google.compute import visit as google

WHY_NOT = missing_for_namespaces()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

MEMBERS = ("ann", "bob")
SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
RESOURCES = {
    "aws": "{accelerators: 'H100:1', infra: aws/us-east-1}",
    "gcp-tpu": "{accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}",
    "gcp-compute": "{accelerators: tpu-v6e-8, infra: gcp/us-east5/us-east5-b}",
}
TASK = "name: two\nresources: %s\nrun: sleep 600\n"
# `orch`, killed at one point of an admission: after the record is written, or after the request is answered.
KILLED = """
import os, sys
from orchestrator.engine.loop.addresses import Gate
point, note = sys.argv.pop(1), Gate.note
def killed(gate, address, until, *, confirmed):
    if confirmed and point == "request":
        os._exit(137)
    note(gate, address, until, confirmed=confirmed)
    if not confirmed and point == "record":
        os._exit(137)
Gate.note = killed
from orchestrator.__main__ import main
sys.exit(main())
"""


@dataclass
class Team:
    """Two computers, the cloud that both have credentials of, and the networks between them."""

    computers: dict[str, Orch]
    cloud: SimulatedAws | SimulatedGoogle
    network: TeamNetwork

    @property
    def ann(self) -> Orch:
        return self.computers["ann"]

    @property
    def bob(self) -> Orch:
        return self.computers["bob"]

    def sources(self) -> set[str]:
        """Return what the firewall of the slice admits, as CIDR."""
        with self.cloud.cloud.open() as cloud:
            if isinstance(self.cloud, SimulatedAws):
                rules = [rule for group in aws.kept(cloud, "groups").values() for rule in group["ingress"]]
                return {rule["CidrIp"] for rule in rules if rule.get("FromPort") == 22 and "CidrIp" in rule}
            rules = [rule for name, rule in google.kept(cloud, "firewalls").items() if name.endswith("-ssh")]
            return {source for rule in rules for source in rule["sourceRanges"]}

    def on_record(self) -> set[str]:
        """Return the addresses that the store says are admitted, or about to be."""
        with psycopg.connect(self.ann.more["ORCH_STORE"]) as store:
            return {str(row[0]) for row in store.execute("SELECT address FROM admissions WHERE address <> ''")}

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]

    def address(self, name: str) -> str:
        return f"{self.network.members[name].address}/32"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.fixture(params=RESOURCES)
def team(request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer) -> Iterator[Team]:
    with ExitStack() as stack:
        place = tmp_path / "cloud"
        place.mkdir()
        (place / "scenario.toml").write_text(SCENARIO)
        cloud = stack.enter_context(SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place))
        network = stack.enter_context(team_network(*MEMBERS, "elsewhere"))
        proxy = stack.enter_context(slow_proxy(server.port, 0.0))  # the server admits connections of loopback alone
        store = server.new_store(port=proxy.port)
        computers: dict[str, Orch] = {}
        key = make_servers_key(tmp_path)
        for name in MEMBERS:
            (tmp_path / name).mkdir()
            (tmp_path / name / "two.yaml").write_text(TASK % RESOURCES[request.param])
            more = {**cloud.env, **name_server(store, key, name)}
            computers[name] = Orch(tmp_path / name, more, network.enter(name))
            if request.param == "aws":
                computers[name].ok("config", "set", "aws.instance_profile", "orch-host")
        made = Team(computers, cloud, network)
        stack.enter_context(slice_firewall(network, made.sources))
        yield made
        computers["ann"]("down", "two", "--yes", "--force")


def killed_at(orch: Orch, point: str, *words: str) -> int:
    """Return the exit status of a command that is killed at a point of the admission."""
    command = [*orch.before, sys.executable, "-c", KILLED, point, *words]
    return subprocess.run(command, env=orch.env, cwd=orch.folder, check=False, timeout=120).returncode


def test_the_second_server_is_admitted_before_contact(team: Team) -> None:
    ann, bob = team.ann, team.bob
    ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert team.sources() == {team.address("ann")}
    assert "there" in bob.ok("ssh", "two", "0", "--", "echo there")
    assert team.sources() == {team.address("ann"), team.address("bob")}
    assert "hello" in bob.ok("exec", "two", "--", "echo", "hello")
    ann.ok("down", "two", "--yes")
    assert team.on_record() == set(), "the record outlived the slice"


def test_a_killed_admission_is_completed_and_a_computer_that_moved_is_admitted_again(team: Team) -> None:
    ann, bob = team.ann, team.bob
    ann.ok("launch", "two.yaml", "--detach", "--yes")
    assert killed_at(bob, "record", "exec", "two", "--", "true") == 137
    assert team.sources() == {team.address("ann")}
    assert killed_at(bob, "request", "exec", "two", "--", "true") == 137
    assert team.sources() == {team.address("ann"), team.address("bob")}
    assert "hello" in bob.ok("exec", "two", "--", "echo", "hello")
    moved = replace(bob, before=team.network.enter("elsewhere"))
    assert "hello" in moved.ok("exec", "two", "--", "echo", "hello")
    assert team.sources() == {team.address("ann"), team.address("bob"), team.address("elsewhere")}
    assert len(team.living()) == 1, "a host that was not reached was replaced"
    with psycopg.connect(ann.more["ORCH_STORE"]) as store:
        store.execute("UPDATE admissions SET until = 1 WHERE address = %s", (team.address("elsewhere"),))
    ann.ok("exec", "two", "--", "true")
    assert team.sources() == {team.address("ann"), team.address("bob")}, "an expired address is still admitted"


def test_a_killed_create_leaves_no_address_that_is_not_on_record(team: Team) -> None:
    ann = team.ann
    assert killed_at(ann, "record", "launch", "two.yaml", "--yes") == 137
    assert team.sources() == set()
    assert team.on_record() == {team.address("ann")}
    assert killed_at(ann, "request", "launch", "two.yaml", "--yes") == 137
    assert team.sources() == {team.address("ann")}
    assert team.on_record() == {team.address("ann")}
    ann.ok("down", "two", "--yes")
    assert (team.sources(), team.living()) == (set(), [])
    assert team.on_record() == set()
