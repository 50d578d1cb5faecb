"""Values about one host: its address, its pinned key, and the result of a command on it.

Pure values, shared by the planner, the providers and the SSH layer.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
import shlex
import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

CONNECT_SECONDS = 20.0  # until a host that accepts a connection of ssh has ended the handshake (ConnectTimeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSsh:
    """How a person's own SSH logs in to one of their machines; the names in brackets are those of ssh_config(5).

    Attributes:
        keys: Key files in the order in which they are tried (IdentityFile); of a public key the agent has the private
            half.
        certificates: Certificates of these keys (CertificateFile).
        named: Whether the person named the keys, instead of ssh's usual ones.
        only: Whether other keys of the agent are left untried (IdentitiesOnly).
        agent: Socket of the agent (IdentityAgent); "" for that of the environment, "none" for none.
        known_hosts: Files with the keys of hosts, which are consulted first (UserKnownHostsFile, GlobalKnownHostsFile).
        known_as: The host's name in them.
        revoked: Files with keys that are refused (RevokedHostKeys).
        strict: Whether a host without a key there is refused (StrictHostKeyChecking).
    """

    keys: tuple[Path, ...] = ()
    certificates: tuple[Path, ...] = ()
    named: bool = False
    only: bool = False
    agent: str = ""
    known_hosts: tuple[Path, ...] = ()
    known_as: str = ""
    revoked: tuple[Path, ...] = ()
    strict: bool = False


NO_STORAGE = "no-storage"
"""What a program reports that ends as it cannot use its bucket (trainer/heartbeat.py)."""
_PATHS = ("keys", "certificates", "known_hosts", "revoked")  # fields of OwnSsh


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The version and the owner that a command presents to a host, which refuses all but its own and the newest.

    See remote/fence.py.

    Attributes:
        epoch: 1 for who created the host; each take-over raises it. 0 for a person's own machine: it has no owner, and
            compares the version alone.
        installation: Id of the store that has the host on record.
        owner: Who that is, for messages; other characters than letters, digits, ".", "_", "@" and "-" are replaced.
    """

    epoch: int
    installation: str
    owner: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", re.sub(r"[^A-Za-z0-9._@-]", "-", self.owner)[:128] or "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """The SSH address of one host. A proxy command and a jump host exclude each other (ValueError).

    Attributes:
        alias: The name under which its key is pinned: lower case, unique for the life of the slice, never an IP
            address, because addresses are reused by other machines.
        internal_ip: Address for its peers.
        host_key: "ssh-ed25519 AAAA…"; None for a user's own host, whose key is accepted once and kept in `known_hosts`.
        proxy: Words of a command whose input and output are the connection, as ssh's ProxyCommand; %h, %p and %r stand
            for host, port and user, %% for a percent sign; () for none.
        own: How its owner logs in; None for a host that orch made, where `identity_file` is the only key.
        fence: What each command presents to it; None for a host that compares nothing. Not part of the address: it is
            neither stored nor compared.
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
    own: OwnSsh | None = None
    fence: Fence | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.proxy and self.jump is not None:
            raise ValueError(f"{self.alias} has both a proxy command and a jump host")

    @property
    def hops(self) -> tuple[HostAddress, ...]:
        """This host, and the jump hosts before it."""
        return (self, *(self.jump.hops if self.jump is not None else ()))

    @property
    def pin_name(self) -> str:
        """The name under which a person's own machine is pinned: the user, and the host as their known_hosts names it.

        "" for a host that orch made.
        """
        if self.own is None:
            return ""
        return f"{quote(self.user, safe='')}@{quote(self.own.known_as, safe='[]:')}"

    @property
    def label(self) -> str:
        """The name in log prefixes and tables: `head` or `worker3`."""
        return "head" if self.rank == 0 else f"worker{self.rank}"


class PinReason(StrEnum):
    """Why the key of a person's own machine was pinned; the cause in its event."""

    FIRST = "the first key that the machine presented"
    KNOWN = "known_hosts has this key"
    NAMED = "its fingerprint was named"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPin:
    """The key that a person's own machine has to present. It outlives clusters.

    Attributes:
        name: See HostAddress.pin_name.
        kind: Such as "ssh-ed25519".
        key: Base64 of the key in SSH wire format.
        since: Epoch seconds.
        actor: Who accepted it, as user@computer:process.
        job: The job in which it was accepted without a confirmation; "" when it is confirmed, or no job was open.
    """

    name: str
    kind: str
    key: str
    since: float = 0.0
    actor: str = ""
    job: str = ""

    def __str__(self) -> str:
        return describe_key(self.kind, binascii.a2b_base64(self.key))


def describe_key(kind: str, blob: bytes) -> str:
    """Return a key, given in SSH wire format, as people compare it: its fingerprint and its type."""
    return f"{fingerprint(blob)} ({kind})"


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a key as ssh prints it."""
    digest = binascii.b2a_base64(hashlib.sha256(blob).digest(), newline=False).decode("ascii").rstrip("=")
    return f"SHA256:{digest}"


_PUBLIC_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+={0,2})(?: [^\n]*)?")


def parse_public_key(text: str) -> str:
    """Return a public SSH key without options and comment, such as "ssh-ed25519 AAAA..."; "" for what is none."""
    found = _PUBLIC_KEY.fullmatch(text.strip())
    if found is None:
        return ""
    try:
        blob = binascii.a2b_base64(found[2])
    except binascii.Error:
        return ""
    kind = found[1].encode()
    return f"{found[1]} {found[2]}" if blob.startswith(len(kind).to_bytes(4) + kind) else ""


class Failure(StrEnum):
    """Why a command has no exit status. The values are stable and appear in `-o json`."""

    REFUSED = "refused"  # the port answered with a reset: no sshd there
    UNREACHABLE = "unreachable"  # nothing answered within the deadline
    AUTH = "auth"  # the host refused our key
    IDENTITY = "identity-mismatch"  # the host presented another key than the pinned one
    LOST = "lost"  # the connection broke midway
    FROZEN = "frozen"  # connected, but no answer to keepalives within the deadline
    TIMEOUT = "timeout"  # the command ran longer than its own limit
    STOPPED = "stopped"  # stopped by orch because another host failed
    TAKEN_OVER = "taken-over"  # another installation has taken the host over: nothing was run
    OTHER_VERSION = "other-version"  # the folder on the host is of another version of orch: nothing was run


class EndedBy(StrEnum):
    """Why orch, or the limits timer of a host, sent a job the signal that ended it.

    The host keeps it in the job's folder before the signal is sent, so that it is known where no orch was alive. It
    goes before the exit status: a program that saves on TERM may return 0. The values are stored on hosts.
    """

    LIMIT = "limit"  # a limit of time or money was reached
    CANCEL = "cancel"  # `orch cancel`, or the end of a session
    DOWN = "down"  # its cluster is taken down
    TAKEN_OVER = "taken-over"  # another computer has taken the run over
    RESTART = "restart"  # this attempt is over: a host failed or was lost, it hung, or the run moves to other machines
    UNKNOWN = "unknown"  # a reason that this orch does not know, or that a full disk did not keep

    @classmethod
    def parse(cls, word: str) -> EndedBy | None:
        """Return the reason that a host reports; None for "-", which means that no signal was recorded."""
        if word == "-":
            return None
        return cls(word) if word in set(cls) else cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOutcome:
    """The result of a command on one host. Exactly one of exit_code, signal and failure is set.

    Attributes:
        ended_by: Why orch, or the host's limits timer, ended it; None for a program that ended by itself.
        signal: Without the SIG prefix, as SSH reports it: "SEGV".
        last_line: Last line of its output (stderr if any), for the table.
        detail: The library's message for a failure.
        log: Path or bucket address of the complete log, when one is kept.
        remedy: What a person can do about a failure, where it knows more than its kind; or "".
    """

    rank: int
    host: str
    exit_code: int | None = None
    signal: str | None = None
    failure: Failure | None = None
    seconds: float = 0.0
    attempts: int = 1
    last_line: str = ""
    detail: str = ""
    log: str = ""
    remedy: str = ""
    ended_by: EndedBy | None = None

    @property
    def ok(self) -> bool:
        """Whether the command returned 0 by itself."""
        return self.exit_code == 0 and self.ended_by is None

    @property
    def status(self) -> int | None:
        """The exit status that a shell would show; None when the host was lost before."""
        if self.exit_code is not None:
            return self.exit_code
        if self.signal is not None:
            number = getattr(signals, f"SIG{self.signal}", None)
            return 128 + int(number) if number is not None else 255
        return None

    @property
    def verdict(self) -> str:
        """The result for people: `exit 3`, `signal SEGV`, `exit 0, ended by limit`, or the failure's value."""
        ended = f", ended by {self.ended_by}" if self.ended_by is not None else ""
        if self.exit_code is not None:
            return f"exit {self.exit_code}{ended}"
        return f"signal {self.signal}{ended}" if self.signal else str(self.failure or "unknown")


class JobPhase(StrEnum):
    """State of a detached job on one host; it follows from the job's folder alone."""

    ABSENT = "absent"  # no folder: never started here
    RUNNING = "running"  # its lock is held
    FINISHED = "finished"  # it left an exit status
    LOST = "lost"  # neither lock nor status: killed with KILL, or the host rebooted


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipSample:
    """One chip, or one NeuronCore, by its vendor's tool. What the tool does not report is None.

    Attributes:
        name: Its number, as its tool has it.
        use: Share of the time that it computed, 0 to 1.
        used: Bytes of its memory in use.
        total: Bytes of its memory.
        temperature: In degrees Celsius.
        slowdown: The temperature at which it begins to slow down, as its tool reports it.
        power: In watts.
        errors: Errors of its memory that were not corrected, as its tool counts them.
    """

    name: str
    use: float | None = None
    used: int | None = None
    total: int | None = None
    temperature: float | None = None
    slowdown: float | None = None
    power: float | None = None
    errors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipReport:
    """The chips of one host.

    Attributes:
        age: Seconds since they were sampled, by the host's clock.
        chips: () where no tool reports any.
    """

    age: float
    chips: tuple[ChipSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """The state of one job on one host.

    Attributes:
        exit_code: As a shell shows it, 128 + n for signal n; None unless FINISHED. Of the process that failed first,
            where a launcher reports that.
        ended_by: Why orch, or the host's limits timer, ended it; None where no reason is recorded.
        step: The smallest step of its processes. This and the next two come from the program's heartbeat files, and are
            None where it writes none (docs/limits.md).
        beat_age: Seconds since the oldest of their last heartbeats, by the host's own clock.
        doing: What the slowest process reported: "starting", "training" ...; NO_STORAGE where any one did.
        last_line: Of its log; after a failure, the lines that look like errors.
        remedy: The next step that orch's script printed beside its error; or "".
        lost_peer: Whether it failed because a process on another host was gone.
        ran: Seconds for which it has run, by the host's uptime, which no setting moves; None where not known.
        chips: The host's chips, where they were asked for and are known.
    """

    rank: int
    phase: JobPhase
    exit_code: int | None = None
    ended_by: EndedBy | None = None
    log_bytes: int = 0
    last_line: str = ""
    step: int | None = None
    beat_age: float | None = None
    doing: str | None = None
    remedy: str = ""
    lost_peer: bool = False
    ran: float | None = None
    chips: ChipReport | None = None

    @property
    def bucketless(self) -> bool:
        """Whether its program ended as it cannot use its bucket, for a reason that does not pass."""
        return self.phase is JobPhase.FINISHED and self.exit_code != 0 and self.doing == NO_STORAGE


def hosts_to_json(hosts: Sequence[HostAddress]) -> str:
    """Return host addresses as JSON text."""
    return json.dumps([_as_json(host) for host in hosts], default=str)


def _as_json(host: HostAddress) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(host).items() if key != "fence"}
    return fields | {"jump": _as_json(host.jump) if host.jump is not None else None}


def hosts_from_json(text: str) -> tuple[HostAddress, ...]:
    """Return the addresses that `hosts_to_json` wrote.

    Raises:
        ValueError, TypeError, KeyError: The text is no such list.
    """
    return tuple(_host(data) for data in json.loads(text))


def _host(data: Mapping[str, Any]) -> HostAddress:
    own: Mapping[str, Any] | None = data["own"]
    changed: dict[str, Any] = {
        "identity_file": Path(data["identity_file"]),
        "known_hosts": Path(data["known_hosts"]),
        "jump": _host(data["jump"]) if data["jump"] else None,
        "proxy": tuple(data["proxy"]),
        "own": _own(own) if own else None,
    }
    return HostAddress(**{**data, **changed})


def _own(data: Mapping[str, Any]) -> OwnSsh:
    paths: dict[str, Any] = {name: tuple(map(Path, data[name])) for name in _PATHS}
    return OwnSsh(**{**data, **paths})


def ssh_argv(address: HostAddress, *command: str, interactive: bool = False, strict: bool = False) -> list[str]:
    """Return the OpenSSH command that reaches this host with the same pinned key; quote it before pasting.

    strict: Whether a host is refused whose key is not in `known_hosts` yet.
    """
    argv = ["ssh", "-p", str(address.port), "-F", "none"]
    for name, value in list_ssh_options(address, strict=strict):
        argv += ["-o", f"{name}={value}"]
    if interactive:
        argv.append("-t")
    return [*argv, f"{address.user}@{address.host}", *(["--", *command] if command else [])]


def list_ssh_options(address: HostAddress, *, strict: bool = False) -> list[tuple[str, str]]:
    """Return the options of ssh_config(5) that reach this host, without HostName, Port and User.

    strict: Whether a host is refused whose key is not in `known_hosts` yet.
    """
    options = [("HostKeyAlias", address.alias), *_identity_options(address)]
    options += [
        ("UserKnownHostsFile", f'"{_no_tokens(address.known_hosts)}"'),
        ("StrictHostKeyChecking", "yes" if strict or address.host_key else "accept-new"),
        ("ConnectTimeout", f"{CONNECT_SECONDS:.0f}"),
        ("ServerAliveInterval", "5"),
        ("ServerAliveCountMax", "3"),
    ]
    if address.jump is not None:
        options.append(("ProxyCommand", _through(address.jump, strict)))
    if address.proxy:
        options.append(("ProxyCommand", shlex.join(address.proxy)))
    return options


def _identity_options(address: HostAddress) -> list[tuple[str, str]]:
    own = address.own or OwnSsh(keys=(address.identity_file,), only=True)
    options = [("IdentityFile", f'"{_no_tokens(key)}"') for key in own.keys]
    options += [("CertificateFile", f'"{_no_tokens(path)}"') for path in own.certificates]
    options += [("IdentitiesOnly", "yes")] if own.only else []
    return [*options, *([("IdentityAgent", f'"{own.agent}"')] if own.agent else [])]


def _no_tokens(path: Path) -> str:
    """Return a path with % escaped, which begins a token for ssh (ssh_config(5), TOKENS)."""
    return str(path).replace("%", "%%")


def proxy_argv(address: HostAddress) -> list[str]:
    """Return the proxy command with its tokens filled in.

    Raises:
        ValueError: A token is not known.
    """
    known = {"%h": address.host, "%p": str(address.port), "%r": address.user, "%%": "%"}

    def value(token: re.Match[str]) -> str:
        if token.group() not in known:
            raise ValueError(f"'{token.group()}' is not known in a proxy command; %h, %p, %r and %% are")
        return known[token.group()]

    return [re.sub(r"%.?", value, word, flags=re.DOTALL) for word in address.proxy]


def _through(jump: HostAddress, strict: bool) -> str:
    """Return a proxy command through `jump`. Its % are doubled, because the outer ssh expands them first."""
    *words, target = (word.replace("%", "%%") for word in ssh_argv(jump, strict=strict))
    return shlex.join([*words, "-W", "%h:%p", target])
