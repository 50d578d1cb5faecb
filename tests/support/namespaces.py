"""Members of a team behind different addresses: a network namespace each, all on one bridge of this computer.

    with team_network("ann", "bob") as network:
        subprocess.run([*network.enter("ann"), "orch", "status"])
        network.cut("ann")

A namespace has no loopback interface. Its route for 127.0.0.0/8 leads over the bridge to this computer, where servers
and simulated hosts listen on loopback addresses: so they are reached as they stand, and see the member's own address.
The interfaces allow that with route_localnet (Documentation/networking/ip-sysctl.rst of Linux, read November 2026).
Addresses are of 198.18.0.0/15, which RFC 2544 sets aside for tests.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.end_leftovers import delete_networks, network_lead, output_of

PROGRAMS = ("ip", "nsenter", "unshare")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One namespace: its name, its address, and the end of its cable that is on the bridge."""

    namespace: str
    address: str
    cable: str


@dataclass(frozen=True, kw_only=True)
class TeamNetwork:
    """The bridge and the members on it."""

    bridge: str
    gateway: str
    members: dict[str, Member]

    def enter(self, name: str) -> tuple[str, ...]:
        """Return what is put before a command to run it as this member; the process keeps its number."""
        return ("nsenter", f"--net=/run/netns/{self.members[name].namespace}", "--")

    def cut(self, name: str) -> None:
        """Take the member's cable out: packets are lost, and no connection ends by itself."""
        _ip("link", "set", self.members[name].cable, "down")

    def restore(self, name: str) -> None:
        """Put the cable back."""
        _ip("link", "set", self.members[name].cable, "up")


def missing_for_namespaces() -> str:
    """Return why this computer cannot make namespaces; "" when it can."""
    if sys.platform != "linux":
        return "network namespaces exist on Linux only"
    if os.geteuid() != 0:
        return "network namespaces with cables between them need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} of iproute2 or util-linux missing"
    probe = f"{_base()}p"
    made = subprocess.run(["ip", "link", "add", probe, "type", "bridge"], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        _ip("link", "del", probe)
    return made.stderr.strip()


@contextlib.contextmanager
def team_network(*names: str) -> Iterator[TeamNetwork]:
    """Yield a network with these members; its namespaces, cables and bridge end with the block."""
    base, third = _base(), _free_network()
    network = TeamNetwork(
        bridge=f"{base}b",
        gateway=f"198.19.{third}.1",
        members={
            name: Member(namespace=f"{base}{number}", address=f"198.19.{third}.{number + 11}", cable=f"{base}{number}")
            for number, name in enumerate(names)
        },
    )
    try:
        _build(network)
        yield network
    finally:
        delete_networks(base)


def _base() -> str:
    """Return the beginning of one network's names: an interface's has at most 15 characters."""
    return network_lead(os.environ["PYTEST_RUN_MARK"]) + uuid.uuid4().hex[:4]


def _build(network: TeamNetwork) -> None:
    _ip("link", "add", network.bridge, "type", "bridge")
    _ip("addr", "add", f"{network.gateway}/24", "dev", network.bridge)
    _ip("link", "set", network.bridge, "up")
    Path(f"/proc/sys/net/ipv4/conf/{network.bridge}/route_localnet").write_text("1")
    for name, member in network.members.items():
        inside = ("-n", member.namespace)
        _ip("netns", "add", member.namespace)
        _ip("link", "add", member.cable, "type", "veth", "peer", "name", "eth0", "netns", member.namespace)
        _ip("link", "set", member.cable, "master", network.bridge, "up")
        _ip(*inside, "addr", "add", f"{member.address}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        allow = "echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet"
        subprocess.run([*network.enter(name), "sh", "-c", allow], check=True)
        _ip(*inside, "route", "add", "127.0.0.0/8", "via", network.gateway, "dev", "eth0", "src", member.address)


def _free_network() -> int:
    """Return the third number of a network that no other run on this computer uses."""
    used = {line.split()[3].split(".")[2] for line in output_of("ip", "-4", "-o", "addr") if " 198.19." in line}
    return random.choice([third for third in range(256) if str(third) not in used])


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
