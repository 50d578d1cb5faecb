"""The service inside a program: the calls of a client without a server that others could reach."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from orchestrator.client.http import Client
from orchestrator.engine.unattended.handover import start_engine
from orchestrator.paths import Paths, load_paths
from orchestrator.service.application import build_application
from orchestrator.service.entrance import Entrance
from orchestrator.service.server import open_site

_PORT = 80  # in the name alone: it listens on no port
_POLL_SECONDS = 0.005


@contextmanager
def open_in_process(paths: Paths | None = None) -> Generator[Client]:
    """Yield a client of the store that commands of this computer use (ORCH_STORE, ORCH_HOME).

    What is ordered is carried out by the unattended engine, which starts by itself, as after `orch launch --detach`.

    Args:
        paths: The folders of the installation; None for the usual ones.

    Raises:
        OrchError: The store cannot be opened.
    """
    from orchestrator import __version__

    site, gate = open_site(paths or load_paths(), wake_engine=_leave_to_engine)
    application, streams = build_application(site, gate, Entrance(), _PORT, __version__)
    server = uvicorn.Server(
        uvicorn.Config(application, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    )
    with tempfile.TemporaryDirectory(prefix="orch-") as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder) / "service"  # mkdtemp lets this user alone in
        listening.bind(str(path))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="the service", daemon=True)
        thread.start()
        try:
            _wait_for(lambda: server.started or not thread.is_alive())
            with Client("http://localhost", gate.read_token(), socket_path=path) as client:
                yield client
        finally:
            streams.close()
            server.should_exit = True
            thread.join()


def _leave_to_engine() -> None:
    start_engine()


def _wait_for(is_true: Callable[[], bool]) -> None:
    while not is_true():
        time.sleep(_POLL_SECONDS)
