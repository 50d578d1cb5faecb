"""The network of a team of tests: an own address each, cables that can be cut, and nothing left of a killed run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.end_leftovers import delete_networks, network_lead, output_of
from support.namespaces import TeamNetwork, missing_for_namespaces, team_network
from support.orch_process import until

WHY_NOT = missing_for_namespaces()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

CALL = "import socket, sys; socket.create_connection(('127.9.8.7', int(sys.argv[1])), 1).recv(1)"
KILLED = """
import os, signal, sys
from support.namespaces import team_network
with team_network("ann", "bob") as network:
    print(network.bridge, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def call(network: TeamNetwork, name: str, port: int) -> int:
    command = [*network.enter(name), sys.executable, "-c", CALL, str(port)]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode


def test_members_reach_a_loopback_address_each_from_an_own_address() -> None:
    seen: list[str] = []

    def answer(listener: socket.socket) -> None:
        while True:
            try:
                connection, (address, _) = listener.accept()
            except OSError:
                return
            seen.append(address)
            connection.sendall(b"!")
            connection.close()

    with socket.create_server(("127.9.8.7", 0)) as listener, team_network("ann", "bob") as network:
        port = int(listener.getsockname()[1])
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        assert [call(network, name, port) for name in ("ann", "bob")] == [0, 0]
        assert seen == [network.members[name].address for name in ("ann", "bob")]
        network.cut("ann")
        assert [call(network, name, port) for name in ("ann", "bob")] == [1, 0]
        network.restore("ann")
        until("the bridge forwards to it again", lambda: call(network, "ann", port) == 0)
        listener.shutdown(socket.SHUT_RDWR)
    assert not left_of(network.bridge[:-1])


def test_the_network_of_a_killed_run_is_deleted() -> None:
    mark = f"{time.time_ns():x}"[-8:]
    environment = {**os.environ, "PYTEST_RUN_MARK": mark, "PYTHONPATH": str(Path(__file__).parents[1])}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False
    )
    assert killed.stdout.startswith(network_lead(mark)) and len(left_of(network_lead(mark))) >= 3, killed.stderr
    delete_networks(network_lead(mark))
    assert not left_of(network_lead(mark))


def left_of(lead: str) -> list[str]:
    lines = output_of("ip", "netns", "list") + output_of("ip", "-brief", "link")
    return [line for line in lines if line.startswith(lead)]
