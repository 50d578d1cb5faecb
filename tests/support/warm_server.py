"""The interpreter from which `warm_interpreter` forks: it imports orch, and waits for requests on the socket in argv.

It runs nothing of orch, has no threads and changes no signal: a forked process starts as a new interpreter does.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

# What most commands import sooner or later. A module that reads its environment or starts a thread has no place here:
# tests/infrastructure/test_warm_interpreter.py.
MODULES = (
    "orchestrator.__main__",
    "orchestrator.cli.app",
    "orchestrator.cli.failures",
    "orchestrator.engine.loop.drive",
    "orchestrator.engine.preparation",
    "orchestrator.providers.local.provider",
    "orchestrator.remote.fleet",
    "orchestrator.store.store",
    "orchestrator.task.parse",
    "asyncio",
    "fabric",
    "jinja2",
    "paramiko",
    "pydantic",
    "sqlalchemy",
)


def main(number: int) -> dict[str, Any]:
    """Serve requests until the socket is closed; return the request in a forked process."""
    server = socket.socket(fileno=number)
    os.set_inheritable(number, False)
    selector = selectors.DefaultSelector()
    selector.register(server, selectors.EVENT_READ)
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        for key, _ in selector.select():
            if key.fileobj is not server:
                _report_end(selector, key)
                continue
            message, fds, _, _ = socket.recv_fds(server, 64, 8)
            if not message:
                os._exit(0)
            blob, stdin, stdout, stderr, status = fds
            with io.FileIO(blob) as file:
                request = json.load(file)
            pid = os.fork()
            if pid == 0:
                selector.close()
                return {**request, "streams": (stdin, stdout, stderr)}
            for fd in (stdin, stdout, stderr):
                os.close(fd)
            os.write(status, str(pid).encode())
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _report_end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, status = key.data
    _, code = os.waitpid(pid, 0)
    selector.unregister(key.fileobj)
    os.close(key.fd)
    with suppress(BrokenPipeError):  # the test did not wait for it
        os.write(status, str(code).encode())
    os.close(status)


def become(request: dict[str, Any]) -> None:
    """Give this process the streams, environment, folder and arguments of a request."""
    for target, fd in enumerate(request["streams"]):
        os.dup2(fd, target)
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2:
            with suppress(OSError):  # the listing's own
                os.close(fd)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    folder = str(Path.cwd())
    sys.argv = [str(Path(importlib.import_module("orchestrator").__path__[0]) / "__main__.py"), *request["words"]]
    sys.path[0] = folder
    errors = {"stdin": sys.stdin.errors, "stdout": sys.stdout.errors, "stderr": "backslashreplace"}
    for fd, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        old = getattr(sys, name)
        raw = io.FileIO(fd, mode, closefd=False)
        buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        line_buffering = name == "stderr" or buffer.isatty()
        stream = io.TextIOWrapper(buffer, old.encoding, errors[name], line_buffering=line_buffering)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    request = main(int(sys.argv[1]))
    run = importlib.import_module(request["entry"]).main
    become(request)
    sys.exit(run())
