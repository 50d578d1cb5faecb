"""Comparison of orchestrator.remote with OpenSSH, pdsh and rsync on real sshd hosts of this machine.

    python scripts/bench/remote.py --hosts 64 [--rounds 5] [--only fanout,stream,sync] [--quick]

All tools take turns within each round, so that other load affects all of them. The sshd side also runs on this
machine and is part of every wall time. CPU time is the client's with its children, in milliseconds per host.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context import print_context

from orchestrator.hosts import HostAddress
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.output import LinePrinter, prefix_for
from orchestrator.remote.sync import sync_tree
from orchestrator.remote.tree import read_tree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support.sshd import Farm, Sshd, sshd_farm  # the tests' real sshd hosts, which are not a package

LINES = 10_000
FILES = 2_000
TREE_BYTES = 50_000_000
SYNC_HOSTS = 32
NEEDS = {"fanout": "ssh", "stream": "pdsh", "sync": "rsync"}


@dataclass
class Tool:
    """One tool with the seconds and client CPU milliseconds of each round."""

    name: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measure(self, work: Callable[[], None]) -> None:
        before, began = _cpu(), time.perf_counter()
        work()
        self.wall.append(time.perf_counter() - began)
        self.cpu.append((_cpu() - before) * 1000)

    @property
    def seconds(self) -> float:
        return statistics.median(self.wall)

    def row(self, hosts: int, against: Tool) -> str:
        cpu = statistics.median(self.cpu) / hosts
        return f"| {self.name} | {self.seconds:.3f} | {self.seconds / against.seconds:.2f} | {cpu:.2f} |"


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def ssh_options(host: HostAddress) -> list[str]:
    """Return tuned options of plain ssh: no config files, no agent, one key, the fast algorithms."""
    settings = {
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "BatchMode": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
        "PreferredAuthentications": "publickey",
        "Ciphers": "aes128-gcm@openssh.com",
        "KexAlgorithms": "curve25519-sha256",
        "HostKeyAlgorithms": "ssh-ed25519",
        "Compression": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    return ["-F", "none", "-p", str(host.port), "-i", str(host.identity_file), *options]


def all_of(commands: Sequence[list[str]], quiet: bool = True) -> None:
    target = subprocess.DEVNULL if quiet else None
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=target) for command in commands]
    codes = [process.wait() for process in running]
    assert not any(codes), codes


def openssh(farm: Farm, command: str) -> None:
    all_of([["ssh", *ssh_options(host), f"{host.user}@{host.host}", command] for host in farm.addresses])


def fanout(farm: Farm, rounds: int) -> list[bool]:
    count = len(farm.addresses)
    cold, warm, plain = Tool("orch, cold"), Tool("orch, warm"), Tool("OpenSSH processes, tuned options")
    for _ in range(rounds):
        plain.measure(lambda: openssh(farm, "true"))
        with Fleet(farm.addresses) as fleet:
            cold.measure(lambda: _ok(fleet))
            _ok(fleet)
            for _ in range(3):
                warm.measure(lambda: _ok(fleet))
    print(f"\nA trivial command on {count} hosts\n")
    print("| tool | wall s | x OpenSSH | client CPU ms/host |\n| --- | --- | --- | --- |")
    for tool in (plain, cold, warm):
        print(tool.row(count, plain))
    return [
        _target("cold wall / OpenSSH", cold.seconds / plain.seconds, 0.75),
        _target("warm wall / own cold", warm.seconds / cold.seconds, 0.2),
        _target("cold CPU ms/host", statistics.median(cold.cpu) / count, 4.0),
        _target("warm CPU ms/host", statistics.median(warm.cpu) / count, 1.0),
    ]


def _ok(fleet: Fleet) -> None:
    result = fleet.run("true", timeout=60)
    assert result.ok, result.failed


def stream(farm: Farm, rounds: int, folder: Path) -> list[bool]:
    count = len(farm.addresses)
    for host in farm.hosts:
        line = f"{host.address.internal_ip} step %d loss 2.71828 tokens/s 123456 grad 0.5 lr 3e-4 {'x' * 20}\n"
        (host.home / "lines").write_bytes(b"".join((line % number).encode() for number in range(LINES)))
    ours, theirs = Tool("orch, warm"), Tool("pdsh")
    for _ in range(rounds):
        with Fleet(farm.addresses) as fleet:
            _ok(fleet)
            ours.measure(lambda: _collect(fleet, folder / "ours"))
        theirs.measure(lambda: _pdsh(farm, folder / "theirs"))
    for host in farm.hosts:
        name = prefix_for(host.address)
        mine = [line.removeprefix(name) for line in (folder / "ours").open("rb") if line.startswith(name)]
        assert b"".join(mine) == (host.home / "lines").read_bytes(), "lines differ"
    print(f"\n{LINES} lines from each of {count} hosts, prefixed, into one file\n")
    print("| tool | wall s | x pdsh | client CPU ms/host |\n| --- | --- | --- | --- |")
    for tool in (theirs, ours):
        print(tool.row(count, theirs))
    return [_target("wall / pdsh (byte exact)", ours.seconds / theirs.seconds, 0.2)]


def _collect(fleet: Fleet, target: Path) -> None:
    with target.open("wb") as file:
        printer = LinePrinter(file)
        result = fleet.run("cat $HOME/lines", timeout=600, on_output=printer, keep=0)
        printer.close()
    assert result.ok, result.failed


def _pdsh(farm: Farm, target: Path) -> None:
    options = [option for option in ssh_options(farm.addresses[0]) if option not in ("-F", "none")]
    environment = {**os.environ, "PDSH_SSH_ARGS": " ".join(["-F none", "-2 -l%u %h", *options])}
    hosts = ",".join(host.host for host in farm.addresses)
    command = ["pdsh", "-R", "ssh", "-f", str(len(farm.addresses)), "-w", hosts, "cat $HOME/lines"]
    with target.open("wb") as file:
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, check=True)


def tree_sync(farm: Farm, rounds: int, folder: Path) -> list[bool]:
    source = folder / "tree"
    make_tree(source)
    hosts = farm.hosts[:SYNC_HOSTS]
    addresses = [host.address for host in hosts]
    steps = ("first", "one file changed", "nothing changed")
    cold = {step: Tool(f"orch, {step}") for step in steps}
    warm = {step: Tool(f"orch, {step}, connections open before") for step in steps[1:]}
    theirs = {step: Tool(f"rsync per host, {step}") for step in steps}
    for number in range(rounds):
        for host in hosts:
            for name in ("ours", ".orch", "theirs"):
                shutil.rmtree(host.home / name, ignore_errors=True)
        for step in steps:
            _change(source, step, number * 2)
            turns = [
                lambda: theirs[step].measure(lambda: _rsync(hosts, source)),  # noqa: B023  # called immediately
                lambda: cold[step].measure(lambda: _cold_sync(addresses, source)),  # noqa: B023  # called immediately
            ]
            for turn in reversed(turns) if number % 2 else turns:
                turn()
        with Fleet(addresses) as fleet:
            _ok(fleet)
            for step in steps[1:]:
                _change(source, step, number * 2 + 1)
                warm[step].measure(lambda: _sync(fleet, source))
                _rsync(hosts, source)
    for host in hosts:
        subprocess.run(["diff", "-r", str(host.home / "ours"), str(source)], check=True)
    print(f"\n{FILES} files, {TREE_BYTES / 1e6:.0f} MB, to {len(hosts)} hosts; reading the tree included\n")
    print("| tool | wall s | x rsync | client CPU ms/host |\n| --- | --- | --- | --- |")
    for step in steps:
        for tool in (theirs[step], cold[step], *([warm[step]] if step in warm else [])):
            print(tool.row(len(hosts), theirs[step]))
    changed = steps[1]
    return [
        _target("first: wall / rsync", cold["first"].seconds / theirs["first"].seconds, 1.0),
        _target("one file changed: wall / rsync", cold[changed].seconds / theirs[changed].seconds, 0.5),
        _target(
            "one file changed, connections open: wall / rsync", warm[changed].seconds / theirs[changed].seconds, 0.5
        ),
    ]


def _change(source: Path, step: str, number: int) -> None:
    if step == "one file changed":
        (source / "pkg7" / "module_107.py").write_text(f"changed = {number}\n" * 100)


def make_tree(root: Path) -> None:
    """Make text that compresses like source code, in 100 folders, from random words."""
    dice = random.Random(7)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz_", k=dice.randrange(2, 12))) for _ in range(4000)]
    for number in range(FILES):
        path = root / f"pkg{number % 100}" / f"module_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines: list[str] = []
        size = 0
        while size < TREE_BYTES // FILES:
            line = "    " * dice.randrange(4) + " ".join(dice.choices(words, k=8))
            lines.append(line)
            size += len(line) + 1
        path.write_text("\n".join(lines) + "\n")


def _cold_sync(addresses: Sequence[HostAddress], source: Path) -> None:
    with Fleet(addresses) as fleet:
        _sync(fleet, source)


def _sync(fleet: Fleet, source: Path) -> None:
    result = sync_tree(fleet, read_tree(source), "ours")
    assert result.result.ok, result.result.failed


def _rsync(hosts: Sequence[Sshd], source: Path) -> None:
    commands: list[list[str]] = []
    for host in hosts:
        shell = " ".join(["ssh", *ssh_options(host.address)])
        target = f"{host.address.user}@{host.address.host}:{host.home}/theirs/"
        commands.append(["rsync", "-a", "--delete", "-e", shell, f"{source}/", target])
    all_of(commands)


def _has_tool(part: str) -> bool:
    if shutil.which(NEEDS[part]):
        return True
    print(f"skipped: {part}: {NEEDS[part]} is not installed")
    return False


def _target(what: str, value: float, limit: float) -> bool:
    print(f"{'ok  ' if value <= limit else 'MISS'} {what}: {value:.2f} (target <= {limit:g})")
    return value <= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="fanout,stream,sync")
    parser.add_argument("--quick", action="store_true", help="two hosts, one round, few lines and files")
    options = parser.parse_args()
    if options.quick:
        global LINES, FILES, TREE_BYTES
        options.hosts, options.rounds = 2, 1
        LINES, FILES, TREE_BYTES = 100, 120, 200_000
    print_context(quick=options.quick)
    chosen = [name for name in options.only.split(",") if _has_tool(name)]
    memory = Path("/dev/shm")  # where there is one: a disk that writes back would time itself, not the tools
    met: list[bool] = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        place = Path(folder)
        with sshd_farm(place / "farm", options.hosts, one_port=True) as farm:
            if "fanout" in chosen:
                met += fanout(farm, options.rounds)
            if "stream" in chosen:
                met += stream(farm, options.rounds, place)
            if "sync" in chosen:
                met += tree_sync(farm, max(1, options.rounds // 2), place)
    return 0 if options.quick or all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
