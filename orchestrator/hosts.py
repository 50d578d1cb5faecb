"""A host as the rest of the program sees it: where it is, which key it must show, how a command on it ended.

Pure values, shared by the planner, the providers and the SSH layer.
"""

from __future__ import annotations

import re
import shlex
import signal as signals
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostAddress:
    """How to reach one host over SSH.

    alias: the name its key is pinned under (lower case, unique for the resource's life, never an address:
    addresses are reused by other machines). host_key: "ssh-ed25519 AAAA…", or None for a user's own host,
    whose key is accepted once and kept in `known_hosts`. internal_ip: how its peers reach it.
    proxy: the words of a command whose input and output are the connection, as ssh's ProxyCommand; %h, %p and %r in
    them are host, port and user, %% is a percent sign; () for none. Raises ValueError with both proxy and jump.
    """

    rank: int
    alias: str
    host: str
    port: int
    user: str
    identity_file: Path
    known_hosts: Path
    internal_ip: str
    host_key: str | None = None
    jump: HostAddress | None = None
    proxy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.proxy and self.jump is not None:
            raise ValueError(f"{self.alias} has both a proxy command and a jump host")

    @property
    def label(self) -> str:
        """`head` or `worker3`: the name in log prefixes and tables."""
        return "head" if self.rank == 0 else f"worker{self.rank}"


class Failure(StrEnum):
    """Why a command has no exit status of its own. The words are stable: they stand in `-o json`."""

    REFUSED = "refused"  # the port answered with a reset: no sshd there
    UNREACHABLE = "unreachable"  # nothing answered within the deadline
    AUTH = "auth"  # the host refused our key
    IDENTITY = "identity-mismatch"  # the host presented another key than the pinned one
    LOST = "lost"  # the connection broke midway
    FROZEN = "frozen"  # connected, but no answer to keepalives within the deadline
    TIMEOUT = "timeout"  # the command ran longer than its own limit
    STOPPED = "stopped"  # ended by us because another host failed


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """How a command ended on one host. Exactly one of exit_code, signal and failure is set."""

    rank: int
    host: str
    exit_code: int | None = None
    signal: str | None = None  # without the SIG prefix, as SSH reports it: "SEGV"
    failure: Failure | None = None
    seconds: float = 0.0
    attempts: int = 1
    last_line: str = ""  # last line of its output (stderr if any), for the table
    detail: str = ""  # the library's words for a failure
    log: str = ""  # path or bucket address of the whole log, when one is kept

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def status(self) -> int | None:
        """The exit status a shell would show; None when the host was lost before it had one."""
        if self.exit_code is not None:
            return self.exit_code
        if self.signal is not None:
            number = getattr(signals, f"SIG{self.signal}", None)
            return 128 + int(number) if number is not None else 255
        return None

    @property
    def verdict(self) -> str:
        """`exit 3`, `signal SEGV` or the failure's word."""
        if self.exit_code is not None:
            return f"exit {self.exit_code}"
        return f"signal {self.signal}" if self.signal else str(self.failure or "unknown")


class JobPhase(StrEnum):
    """State of a detached job on one host, a function of its folder alone."""

    ABSENT = "absent"  # no folder: never started here
    RUNNING = "running"  # its lock is held
    FINISHED = "finished"  # it left an exit status
    LOST = "lost"  # neither lock nor status: killed hard, or the host rebooted


@dataclass(frozen=True, slots=True)
class HostJob:
    """What one host says of one job. exit_code: a shell's view, 128 + n for signal n; None unless FINISHED.

    The last three come from the program's heartbeat files and are None when it writes none (docs/limits.md). The
    slowest process of the host counts. step: the smallest. beat_age: seconds since the oldest of their last heartbeats,
    by the host's own clock. doing: what that process said it does: "starting", "training" ...
    """

    rank: int
    phase: JobPhase
    exit_code: int | None = None
    log_bytes: int = 0
    last_line: str = ""
    step: int | None = None
    beat_age: float | None = None
    doing: str | None = None


def ssh_argv(address: HostAddress, *command: str, interactive: bool = False) -> list[str]:
    """The plain OpenSSH command that reaches this host with the same trust as ours; safe to paste after quoting."""
    argv = ["ssh", "-p", str(address.port), "-o", "IdentitiesOnly=yes", "-o", f"HostKeyAlias={address.alias}"]
    argv += ["-o", f'IdentityFile="{_no_tokens(address.identity_file)}"']
    argv += ["-o", f'UserKnownHostsFile="{_no_tokens(address.known_hosts)}"']
    strict = "yes" if address.host_key else "accept-new"
    argv += [
        "-o",
        f"StrictHostKeyChecking={strict}",
        "-o",
        "ServerAliveInterval=5",
        "-o",
        "ServerAliveCountMax=3",
    ]
    if address.jump is not None:
        argv += ["-o", "ProxyCommand=" + _through(address.jump)]
    if address.proxy:
        argv += ["-o", "ProxyCommand=" + shlex.join(address.proxy)]
    if interactive:
        argv.append("-t")
    return [*argv, f"{address.user}@{address.host}", *(["--", *command] if command else [])]


def _no_tokens(path: Path) -> str:
    """A path as ssh takes it literally: % begins a token there (ssh_config(5), TOKENS)."""
    return str(path).replace("%", "%%")


def proxy_argv(address: HostAddress) -> list[str]:
    """The words of its proxy command with their tokens filled in. Raises ValueError for a token that is not known."""
    known = {"%h": address.host, "%p": str(address.port), "%r": address.user, "%%": "%"}

    def value(token: re.Match[str]) -> str:
        if token.group() not in known:
            raise ValueError(f"'{token.group()}' is not known in a proxy command; %h, %p, %r and %% are")
        return known[token.group()]

    return [re.sub(r"%.?", value, word, flags=re.DOTALL) for word in address.proxy]


def _through(jump: HostAddress) -> str:
    """A proxy command that goes through `jump`. Its own words are doubled in %: the outer ssh reads them first."""
    *words, target = (word.replace("%", "%%") for word in ssh_argv(jump))
    return shlex.join([*words, "-W", "%h:%p", target])
