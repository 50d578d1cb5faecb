"""Forward a port of this computer to a port of a host through OpenSSH, and connect again after a drop."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NoReturn

from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.host_ssh import prepare_ssh
from orchestrator.errors import ConflictError, HostError, IdentityMismatch, OrchError, UserError
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.retries import Backoff

THIS_COMPUTER = "127.0.0.1"
_READY = "orch-forward"
# The session ends when its input does: with this process, however that ends.
_REMOTE = f"echo {_READY}; exec cat >/dev/null"
_AGAIN = Backoff(first=1.0, longest=15.0)
_END_GRACE = 3.0  # seconds between TERM and KILL for ssh
_REFUSED = re.compile(r"open failed: .*(refused|timed out|unreachable|administratively prohibited)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """What is forwarded.

    Attributes:
        local: Port of this computer, on the loopback address alone.
        remote: Port of the host, where the program listens on localhost or on all addresses.
        again: The command that does the same, for messages; PORT in it is the local port.
        identity: File of the key to log in with; "" for ours.
    """

    cluster: str
    rank: int
    local: int
    remote: int
    again: str
    identity: str = ""


def refuse_taken_port(forward: Forward) -> None:
    """Raise an error for a local port that another program has, or that only root may open."""
    try:
        with _bind(forward.local):
            return
    except PermissionError as error:
        raise UserError(f"port {forward.local} may not be opened here", str(error), "take one above 1023") from error
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise _taken(forward) from error


def find_free_port(preferred: int) -> int:
    """Return the first free port of this computer from `preferred` on, or any."""
    for port in (*range(preferred, min(preferred + 20, 65536)), 0):
        with contextlib.suppress(OSError), _bind(port) as free:
            return int(free.getsockname()[1])
    raise OrchError("this computer has no free port", next_step="close what listens: ss -ltn")


def _bind(port: int) -> socket.socket:
    """Return a socket at a port, as ssh will open it."""
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((THIS_COMPUTER, port))
        found.listen()
    except BaseException:
        found.close()
        raise
    return found


def _taken(forward: Forward) -> ConflictError:
    other = find_free_port(forward.local + 1) if forward.local < 65535 else 0
    return ConflictError(
        f"port {forward.local} of this computer is taken",
        "another program listens on it",
        forward.again.replace("PORT", str(other)),
    )


def forward_until_interrupted(forward: Forward, connected: Callable[[HostAddress], None]) -> NoReturn:
    """Forward the port until Ctrl-C; a connection that drops is opened again.

    Args:
        forward: What.
        connected: Called when the port is open for the first time.

    Raises:
        KeyboardInterrupt: Ctrl-C, or this process is to end.
        OrchError: The first connection failed, or the host is no more.
    """
    if shutil.which("ssh") is None:
        raise OrchError("this computer has no ssh program", next_step="install the OpenSSH client")
    with _interrupted_by_signals():
        host, strict = prepare_ssh(forward.cluster, forward.rank, forward.identity)
        with _Session(host, forward, strict=strict) as session:
            if not session.wait_ready():
                raise session.explain()
            connected(host)
            session.wait_end()
            _report_loss(session)
        while True:
            _connect_again(forward)


def _connect_again(forward: Forward) -> None:
    """Connect, until it succeeds, and wait for the end of that connection.

    Raises:
        OrchError: The host is no more, or shows another key.
    """
    tries, shown = 0, ""
    while True:
        tries += 1
        time.sleep(_AGAIN.pause(tries, 1.0))
        host, strict = prepare_ssh(forward.cluster, forward.rank, forward.identity)  # a new host may have its rank
        with _Session(host, forward, strict=strict) as session:
            if session.wait_ready():
                write_stderr(f"connected again to {host.label} of '{forward.cluster}'")
                session.wait_end()
                _report_loss(session)
                return
            error = session.explain()
        if not isinstance(error, HostError) or isinstance(error, IdentityMismatch):
            raise error
        if error.why != shown:
            shown = error.why
            write_stderr(f"not yet{_because(shown)}; Ctrl-C ends it")


def _report_loss(session: _Session) -> None:
    write_stderr(f"the connection to {session.host.label} was lost{_because(session.last_line)}; connecting again")


def _because(line: str) -> str:
    return f" ({line})" if line else ""


@contextlib.contextmanager
def _interrupted_by_signals() -> Generator[None]:
    """Treat TERM and HUP as Ctrl-C, so that ssh ends with this process; and Ctrl-C where a script ignores it."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Session:
    """One run of ssh; a thread reads its messages."""

    def __init__(self, host: HostAddress, forward: Forward, *, strict: bool) -> None:
        argv = ssh_argv(host, _REMOTE, strict=strict)
        target = f"{THIS_COMPUTER}:{forward.local}:localhost:{forward.remote}"
        argv[1:1] = ["-T", "-o", "ExitOnForwardFailure=yes", "-L", target]
        pipe = subprocess.PIPE
        self.host, self.forward, self.last_line = host, forward, ""
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace")
        self._reader = threading.Thread(target=self._read_messages, daemon=True)
        self._reader.start()

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_END_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_GRACE)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def wait_ready(self) -> bool:
        """Wait until the port is open; False when ssh ended before."""
        return any(line.strip() == _READY for line in self._process.stdout or ())

    def wait_end(self) -> None:
        """Wait until ssh has ended, and its messages are read."""
        self._process.wait()
        self._reader.join(_END_GRACE)

    def explain(self) -> OrchError:
        """Return why ssh did not connect."""
        self.wait_end()
        name, why = f"{self.host.label} of '{self.forward.cluster}'", self.last_line
        step = f"orch status {self.forward.cluster}"
        if "already in use" in why or "forwarding listen port" in why or "local forwarding" in why:
            return _taken(self.forward)
        if "Host key verification failed" in why:
            return IdentityMismatch(
                f"{name} presented another key than the known one", why, f"orch status {self.forward.cluster}"
            )
        return HostError(f"cannot connect to {name}", why, step)

    def _read_messages(self) -> None:
        shown = False
        for line in map(str.strip, self._process.stderr or ()):
            if not _REFUSED.search(line):
                self.last_line = line or self.last_line
            elif not shown:
                shown = True
                why = line.rpartition("open failed: ")[2]
                write_stderr(f"nothing answers at port {self.forward.remote} of {self.host.label}: {why}")
