"""A connection over the standard input and output of another program, as with ssh's ProxyCommand."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from typing import IO

from orchestrator.hosts import Failure, HostAddress, proxy_argv
from orchestrator.open_files import is_exhaustion
from orchestrator.remote.failures import HostFailure, describe_error

_END_SECONDS = 0.5  # seconds that a program which closed the connection has to end and report its error
_TAIL = 4096  # bytes of its standard error that are read
_LONGEST_LINE = 300  # characters of it that are reported


class ProxySocket(socket.socket):
    """Our end of the connection. The program and its children end, at the latest, when this is closed.

    Attributes:
        heard: whether a byte has come from the host.
        error_line: the program's last line of standard error, known once this is closed.
    """

    def __init__(self, near: socket.socket, process: subprocess.Popen[bytes], program: str, errors: IO[bytes]) -> None:
        super().__init__(fileno=near.detach())
        self.heard = False
        self.error_line = ""
        self._process, self._program, self._errors = process, program, errors
        self._hung_up = self._let_go = False  # which side ended it first: the program, or orch
        self._end_reason: str | None = None
        self._ending = threading.Lock()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        try:
            block = super().recv(bufsize, flags)
        except ConnectionResetError:  # it ended without reading all our bytes
            block = b""
        self.heard = self.heard or bool(block)
        self._hung_up = self._hung_up or not (block or self._let_go)
        return block

    def shutdown(self, how: int, /) -> None:
        self._let_go = True  # an end of file from here on is our own
        super().shutdown(how)

    def close(self) -> None:
        self._end()
        super().close()

    def end_reason(self) -> str:
        """Return in one line why the program ended the connection; "" if it has not, or if orch ended it."""
        if not self._hung_up and self._end_reason is None:
            return ""
        self._end()
        return self._end_reason or ""

    def _end(self) -> None:
        with self._ending:
            if self._end_reason is not None:
                return
            by_itself = self._hung_up and self._ends_within(_END_SECONDS)
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):  # its process group: it may have started others
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self.error_line = self._last_line()
            self._end_reason = self._describe_end(by_itself=by_itself) if self._hung_up else ""
            self._errors.close()

    def _last_line(self) -> str:
        handle = self._errors.fileno()
        tail = os.pread(handle, _TAIL, max(0, os.fstat(handle).st_size - _TAIL)).decode("utf-8", "replace")
        lines = ("".join(c for c in line if c.isprintable()).strip() for line in reversed(tail.splitlines()))
        return next((line[:_LONGEST_LINE] for line in lines if line), "")

    def _ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _describe_end(self, *, by_itself: bool) -> str:
        code = self._process.returncode
        how = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"
        what = f"{self._program} {how if by_itself else 'closed the connection'}"
        return f"{what}: {self.error_line}" if self.error_line else what


def start_proxy(address: HostAddress) -> ProxySocket:
    """Start the address's proxy command. Raises HostFailure when it cannot be started.

    It gets its own session, so that Ctrl-C reaches orch and not the program that carries the connection.
    """
    argv = proxy_argv(address)
    near, far = socket.socketpair()
    end = far.fileno()
    # A file and not a pipe, since a full pipe would stop the program.
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the socket closes it
    try:
        process = subprocess.Popen(argv, stdin=end, stdout=end, stderr=errors, start_new_session=True)
    except OSError as error:
        near.close()
        errors.close()
        if is_exhaustion(error):
            raise
        detail = f"{argv[0]}, which leads to {address.alias}, cannot be started: {describe_error(error)}"
        raise HostFailure(Failure.UNREACHABLE, detail) from error
    finally:
        far.close()
    return ProxySocket(near, process, os.path.basename(argv[0]), errors)  # noqa: PTH119 - a name, not a path
