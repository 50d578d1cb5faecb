"""Real sshd hosts behind the instances: reached where the API says, with the keys of the user-data."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ec2_support import Ec2, efa, scenario, tags

from orch_fronts.aws.ec2.machines import PORT_TAG
from orch_fronts.aws.server import AwsServer
from orch_fronts.ending import end_hosts
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.aws.userdata import render
from orchestrator.providers.local.layout import SlicePaths
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import LocalBodies, body_name
from orchestrator.simulator.clock import ManualClock


@pytest.fixture
def ec2(tmp_path: Path) -> Iterator[Ec2]:
    clock, bodies = ManualClock(), LocalBodies(tmp_path / "sim")
    access = InMemory(scenario(), clock)
    with AwsServer(access, bodies) as server:
        yield Ec2(server, access, clock)
    end_hosts(bodies, "this test")


def launched(ec2: Ec2, folder: Path, count: int, **more: Any) -> list[HostAddress]:
    """Running instances, at the addresses that a client reads, with their keys pinned."""
    user, pairs = make_host_key(), [make_host_key() for _ in range(count)]
    (folder / "id").touch(mode=0o600)
    (folder / "id").write_text(user[0])
    data = render(f"{user[1]} somebody", [private for private, _ in pairs])
    named = {"TagSpecifications": tags("instance", Name="c-1"), "InstanceInitiatedShutdownBehavior": "terminate"}
    shown = ec2.running(count, UserData=data, **named, **more)
    hosts = [
        HostAddress(
            rank=rank,
            alias=f"c-1-{rank}",
            host=one["PrivateIpAddress"],
            port=int(next(tag["Value"] for tag in one["Tags"] if tag["Key"] == PORT_TAG)),
            user=getpass.getuser(),
            identity_file=folder / "id",
            known_hosts=folder / "known_hosts",
            internal_ip=one["PrivateIpAddress"],
            host_key=pairs[rank][1],
        )
        for rank, one in enumerate(shown)
    ]
    write_known_hosts(folder / "known_hosts", hosts)
    return hosts


def on_host(host: HostAddress, command: str) -> subprocess.CompletedProcess[str]:
    argv = ssh_argv(host, command)
    argv[1:1] = ["-F", "none", "-o", "BatchMode=yes"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def until(ec2: Ec2, states: Sequence[str]) -> None:
    """Real processes end in real time."""
    deadline = time.monotonic() + 20
    while ec2.states() != list(states) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ec2.states() == list(states)


def test_instances_are_reached_at_the_address_and_the_port_that_they_show(ec2: Ec2, tmp_path: Path) -> None:
    hosts = launched(ec2, tmp_path, 2, NetworkInterfaces=efa(4))
    homes = [on_host(host, "pwd").stdout.strip() for host in hosts]
    assert [Path(home).parent.name for home in homes] == ["0", "1"], "the order of their launch"
    first = ec2.look()[0]
    assert first["PrivateIpAddress"].startswith("127.")
    assert "PublicIpAddress" not in first
    address = ec2.api.allocate_address()["AllocationId"]
    eni = first["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.api.associate_address(AllocationId=address, NetworkInterfaceId=eni)
    assert ec2.look()[0]["PublicIpAddress"] == first["PrivateIpAddress"]
    ec2.terminate(*(one["InstanceId"] for one in ec2.look()))
    ec2.clock.advance(21)
    assert ec2.states() == ["terminated"] * 2
    assert on_host(hosts[0], "true").returncode == 255
    assert ec2.cloud.live() == ()


def test_a_host_that_shuts_itself_down_is_a_terminated_instance(ec2: Ec2, tmp_path: Path) -> None:
    hosts = launched(ec2, tmp_path, 2)
    body = SlicePaths(tmp_path / "sim" / "local" / body_name(ec2.cloud.live()[0]))
    os.kill(int(body.host(1).guard.read_text().split()[0]), signal.SIGKILL)
    until(ec2, ["running", "shutting-down"])
    ec2.clock.advance(21)
    until(ec2, ["running", "terminated"])
    assert ec2.look()[1]["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert on_host(hosts[0], "true").returncode == 0, "the other one goes on"
