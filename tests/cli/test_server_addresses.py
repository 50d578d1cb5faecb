"""Two servers behind different addresses: every command works on the cluster that the other one made.

Their folders are hidden from each other, and each works in a separate network namespace. PostgreSQL is 5 ms away; the
cloud's API and the hosts see the address of the server that calls. Where namespaces cannot be made, these tests are
skipped with the reason.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.few_zones import few_zones
from support.namespaces import TeamNetwork, missing_for_namespaces, team_network
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server
from support.proof import report
from support.servers import make_servers_key, name_server
from support.slow_proxy import SlowProxy, slow_proxy

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit
from orchestrator.store.leases import LEASE_SECONDS

WHY_NOT = missing_for_namespaces()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(580),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

MEMBERS = ("ann", "bob")
ROUND_TRIP = 0.005
TAKE_OVER = LEASE_SECONDS + 120.0  # a loaded computer's engine needs half a minute to begin
SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
RESOURCES = {
    "aws": "{accelerators: 'H100:1', infra: aws/us-east-1}",
    "gcp": "{accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}",
}
TASK = 'name: two\nresources: %s\nrun: |\n  echo from-the-job\n  echo "$ORCH_JOB" >>%s\n  sleep 600\n'
# An engine as each server has one: `orch serve` itself allows one on a computer.
ENGINE = """
from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.engine.unattended.engine import UnattendedEngine
from orchestrator.engine.services import real_services
from orchestrator.paths import load_paths
UnattendedEngine(where=load_paths(), services=real_services(load_paths()), narrators=EngineLog).run(until_idle=True)
"""
# What the other server's user types, what it prints, and how many machines exist after it.
CROSSWISE: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (("status",), "two", 1),
    (("status", "two"), "two", 1),
    (("queue", "two"), "1", 1),
    (("events", "two"), "launch", 1),
    (("exec", "two", "--", "echo", "hello"), "hello", 1),
    (("logs", "two", "1"), "from-the-job", 1),
    (("ssh", "two", "0", "--", "echo there"), "there", 1),
    (("cp", "file", "two:file"), "", 1),
    (("cp", "two:file", "back"), "", 1),
    (("reap", "--dry-run"), "", 1),
    (("recover",), "", 1),
    (("cancel", "two", "--force"), "", 1),
    (("watch", "two", "--yes"), "no job that is not over", 1),
    (("exec", "two", "-d", "--", "sleep", "1"), "", 1),
    (("stop", "two", "--yes", "--force"), "", 1),
    (("start", "two", "--yes", "--force"), "", 1),
    (("exec", "two", "--", "cat", "file"), "content", 1),
    (("down", "two", "--yes", "--force"), "", 0),
    (("runs",), "two", 0),
    (("status",), "", 0),
)
REFUSED = (
    ("launch", "two.yaml", "-c", "two", "--yes"),
    ("down", "two"),
    ("stop", "two"),
    ("cancel", "two"),
    ("start", "two"),
)


@dataclass
class Team:
    """Two computers, the cloud that both have credentials of, the store's server, and the networks between them."""

    computers: dict[str, Orch]
    cloud: SimulatedAws | SimulatedGoogle
    server: PostgresServer
    proxy: SlowProxy
    network: TeamNetwork
    starts: Path
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def start_engine(self, name: str) -> int:
        """Start an engine on the computer of this member; return its process."""
        orch = self.computers[name]
        with (orch.folder / "engine.log").open("ab") as log:
            command = [*orch.before, sys.executable, "-c", ENGINE]
            self.engines.append(subprocess.Popen(command, env=orch.env, cwd=orch.folder, stdout=log, stderr=log))
        return self.engines[-1].pid

    def driver(self) -> int:
        """Return the process that holds the job's watch lease; 0 when none does."""
        jobs = json.loads(self.computers["bob"].ok("queue", "two", "--all", "-o", "json"))["jobs"]
        found = re.search(r"process (\d+) on", jobs[0]["driven_by"] or "")
        return int(found[1]) if found else 0

    def living(self) -> list[str]:
        with self.cloud.cloud.open() as cloud:
            return [look.name for look in cloud.live()]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.fixture(params=["aws", "gcp"])
def team(request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer) -> Iterator[Team]:
    with ExitStack() as stack:
        place = tmp_path / "cloud"
        place.mkdir()
        (place / "scenario.toml").write_text(SCENARIO + few_zones(request.param))
        cloud = stack.enter_context(SimulatedAws(place) if request.param == "aws" else SimulatedGoogle(place))
        proxy = stack.enter_context(slow_proxy(server.port, ROUND_TRIP))
        network = stack.enter_context(team_network(*MEMBERS))
        store, key = server.new_store(port=proxy.port), make_servers_key(tmp_path)
        computers: dict[str, Orch] = {}
        for name in MEMBERS:
            (tmp_path / name).mkdir()
        for name, other in zip(MEMBERS, reversed(MEMBERS), strict=True):
            folder = tmp_path / name
            (folder / "two.yaml").write_text(TASK % (RESOURCES[request.param], tmp_path / "starts"))
            (folder / "file").write_text("content")
            before = (*network.enter(name), *hide(tmp_path / other))
            computers[name] = Orch(folder, {**cloud.env, **name_server(store, key, name)}, before)
            if request.param == "aws":
                computers[name].ok("config", "set", "aws.instance_profile", "orch-host")
        made = Team(computers, cloud, server, proxy, network, tmp_path / "starts")
        yield made
        for engine in made.engines:
            engine.kill()
            engine.wait()
        computers["ann"]("down", "two", "--yes", "--force")
        assert made.living() == []


@pytest.mark.promise("P7")
def test_engines_at_two_addresses_take_over_from_each_other(team: Team) -> None:
    """One is killed and one is frozen: one machine, one start of the program."""
    team.computers["ann"].ok("launch", "two.yaml", "--detach", "--yes")
    until("the job runs", team.starts.exists)
    until("an engine drives it", lambda: team.driver() != 0)
    first = team.driver()
    second = team.start_engine("bob")
    os.kill(first, signal.SIGKILL)
    until("bob's engine drives the job of the killed one", lambda: team.driver() == second, TAKE_OVER)
    third = team.start_engine("ann")
    os.kill(second, signal.SIGSTOP)
    try:
        until("ann's engine drives the job of the frozen one", lambda: team.driver() == third, TAKE_OVER)
    finally:
        os.kill(second, signal.SIGCONT)
    assert len(team.living()) == 1
    team.computers["bob"].ok("down", "two", "--yes", "--force")
    assert team.living() == []
    (started,) = team.starts.read_text().split()  # one line: the program was started once
    assert re.fullmatch(r"[0-9a-f]{8}-1-a1", started), "the program was started again"
    report(
        "two servers behind different addresses: engines killed and frozen",
        {"histories": 1, "take-overs": 2},
    )


def hide(folder: Path) -> tuple[str, ...]:
    """Return what is put before a command to hide a folder from it; the process keeps its number."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o ro none "{folder}" && exec "$@"', "sh")


@pytest.mark.promise("P1")
@pytest.mark.parametrize("owner", MEMBERS)
def test_every_command_works_on_a_cluster_of_the_server_at_the_other_address(team: Team, owner: str) -> None:
    (other,) = set(MEMBERS) - {owner}
    team.computers[owner].ok("launch", "two.yaml", "--detach", "--yes")
    for words in REFUSED:
        refused = team.computers[other](*words)
        assert refused.returncode == Exit.CONFLICT, (words, refused.stderr)
        assert f"cluster 'two' belongs to {owner}" in refused.stderr
    for words, printed, machines in CROSSWISE:
        began = time.monotonic()
        came = team.computers[other](*words, timeout=300)
        print(f"{other}: {words}: exit {came.returncode}, {time.monotonic() - began:.1f} s", flush=True)
        assert came.returncode == (Exit.NOT_FOUND if words[0] == "watch" else 0), (words, came.stdout, came.stderr)
        assert printed in came.stdout + came.stderr, (words, came.stdout, came.stderr)
        assert len(team.living()) == machines, words
    report("two servers behind different addresses: every command on the other's cluster", {"commands": len(CROSSWISE)})
