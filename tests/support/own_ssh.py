"""A person with own machines: a home folder with keys and an SSH configuration, and a real agent."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from support.sshd import Farm

from orchestrator.hosts import HostAddress, hosts_from_json, hosts_to_json
from orchestrator.providers.hosts.machines import OwnHost
from orchestrator.providers.ssh_config import own_address
from orchestrator.remote.fleet import Fleet, FleetResult
from orchestrator.remote.identities import KeyRing

SECRET = "correct horse"


class Person:
    """A home folder with an `.ssh`, and what `orch` would do there."""

    def __init__(self, home: Path, farm: Farm) -> None:
        self.home, self.farm = home, farm
        self.ssh = home / ".ssh"
        self.ssh.mkdir(parents=True, mode=0o700)
        self.pins = home / "pins"
        self.questions: list[str] = []
        self.answers: list[str] = []

    def make_key(self, name: str, passphrase: str = "", *, authorized: bool = True) -> Path:
        path = self.ssh / name
        run_program("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", f"{name}@laptop", "-f", str(path))
        if authorized:
            for host in self.farm.hosts:
                with (host.folder / "authorized_keys").open("a") as file:
                    file.write(path.with_name(name + ".pub").read_text())
        return path

    def configure(self, text: str) -> None:
        (self.ssh / "config").write_text(text)

    def host(self, rank: int, **given: str) -> OwnHost:
        host = self.farm.hosts[rank]
        return replace(OwnHost(host=host.ip, port=host.port), **given)  # type: ignore[arg-type]  # texts only

    def address(self, host: OwnHost, rank: int = 0) -> HostAddress:
        found = own_address(host, rank=rank, name="mine-1", known_hosts=self.pins)
        assert hosts_from_json(hosts_to_json([found])) == (found,)
        return found

    def ring(self) -> KeyRing:
        def ask(question: str) -> str | None:
            self.questions.append(question)
            return self.answers.pop(0) if self.answers else None

        return KeyRing(ask)

    def run(self, *hosts: OwnHost, ring: KeyRing | None = None, command: str = "echo $HOME") -> FleetResult:
        addresses = [self.address(host, rank) for rank, host in enumerate(hosts)]
        with Fleet(addresses, deadline=10, keys=ring or self.ring()) as fleet:
            return fleet.run(command, timeout=60)


def run_program(*argv: str, env: dict[str, str] | None = None) -> str:
    whole = {**os.environ, **(env or {})}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=whole, stdin=subprocess.DEVNULL).stdout


@contextlib.contextmanager
def ssh_agent(folder: Path) -> Iterator[Callable[[Path], None]]:
    """Start a real ssh-agent with its socket at `folder/agent`; the function adds a key file to it."""
    socket, helper = folder / "agent", folder / "askpass"
    helper.write_text(f"#!/bin/sh\necho '{SECRET}'\n")
    helper.chmod(0o700)
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    while not socket.exists():
        assert process.poll() is None
    asking = {"SSH_AUTH_SOCK": str(socket), "SSH_ASKPASS": str(helper), "SSH_ASKPASS_REQUIRE": "force"}
    try:
        yield lambda path: print(run_program("ssh-add", "-q", str(path), env=asking))
    finally:
        process.terminate()
        process.wait(10)
