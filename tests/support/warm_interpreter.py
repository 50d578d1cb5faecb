"""Run `orch` in processes that are forked from an interpreter which has imported it already.

A new interpreter spends more time on imports than most commands on their work. `WarmPopen` is a `subprocess.Popen`
whose process is forked from a server of this test process: it has its own pid, signals, folder, environment and exit
status. Its parent is the server. What a new interpreter reads at its start (PYTHON*, the locale, the time zone) must
be as it was for the server: `can_fork` compares it.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).with_name("warm_server.py")
_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "OPENBLAS_", "OMP_", "MALLOC_", "GRPC_")


def can_fork(env: Mapping[str, str]) -> bool:
    """Return whether a process with this environment may be forked: nothing that is read at the start differs."""
    return _select_start_variables(env) == _select_start_variables(os.environ)


def _select_start_variables(env: Mapping[str, str]) -> dict[str, str]:
    # PYTHONUNBUFFERED is left out by `Orch.env`, and the server starts without it.
    return {name: env[name] for name in env if name.startswith(_READ_AT_START) and name != "PYTHONUNBUFFERED"}


class Server:
    """The interpreter that is forked; it ends when this object's socket is closed, also by the end of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
        with far:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(far.fileno())],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                env=env,
            )

    def fork(
        self, entry: str, words: Sequence[str], env: Mapping[str, str], folder: Path, streams: tuple[int, int, int]
    ) -> tuple[int, socket.socket]:
        """Start a process that calls `main` of the module `entry`; return its pid and the socket of its wait status."""
        near, far = socket.socketpair()
        mask = os.umask(0)
        os.umask(mask)
        ignored = [number for number in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(number) is signal.SIG_IGN]
        request: dict[str, object] = {"entry": entry, "words": words, "env": dict(env), "folder": str(folder)}
        request |= {"umask": mask, "ignored": ignored}
        blob = os.memfd_create("request")
        try:
            os.write(blob, json.dumps(request).encode())
            os.lseek(blob, 0, os.SEEK_SET)
            with far, self._lock:
                socket.send_fds(self._socket, [b"fork"], [blob, *streams, far.fileno()])
        finally:
            os.close(blob)
        answer = near.recv(64)
        assert answer, "the warm interpreter has ended: its error is above"
        return int(answer), near


@functools.cache
def start_server() -> Server:
    """Return the server of this process."""
    return Server()


class WarmPopen(subprocess.Popen[str]):
    """A process of `orch`, used as any Popen; `args` are the words after `orch`.

    Overrides what Popen calls to start and to wait for its process (CPython's subprocess.py, 3.11 to 3.14).
    """

    _status: socket.socket

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        entry: str = "orchestrator.__main__",
        **streams: int | IO[Any] | None,
    ) -> None:
        self._request = (entry, tuple(words), env, cwd)
        super().__init__(("orch", *words), env=env, cwd=cwd, text=True, **streams)  # type: ignore[call-overload]  # stdin …

    def _execute_child(self, *inner: Any) -> None:
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = inner[10:16]
        streams = tuple(own if given == -1 else given for given, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2)))
        try:
            self.pid, self._status = start_server().fork(*self._request, streams)  # type: ignore[arg-type]  # three of them
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]  # of Popen

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return the pid and the wait status, or (0, 0) while the process runs and WNOHANG was given."""
        timeout = 0 if flags & os.WNOHANG else None
        if not select.select([self._status], [], [], timeout)[0]:
            return 0, 0
        answer = self._status.recv(64)
        assert answer, "the warm interpreter has ended before its process"
        self._status.close()
        return self.pid, int(answer)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]  # of Popen
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]  # of Popen
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]  # of Popen
        return self.returncode


def run_warm(
    words: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float, stdin: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does with captured output."""
    pipe = subprocess.PIPE
    with WarmPopen(words, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
