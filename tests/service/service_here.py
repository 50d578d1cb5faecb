"""The real service over a store, in this process: its pages show what a board of the caller has."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from orchestrator.cloud_access import CloudAccess
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.service.application import build_application
from orchestrator.service.entrance import Entrance
from orchestrator.service.gate import Gate
from orchestrator.service.host_board import HostBoard
from orchestrator.service.site import Site
from orchestrator.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A server of this process."""

    port: int
    gate: Gate
    end: Callable[[], None]


@contextlib.contextmanager
def serve_here(database: Path, board: HostBoard, *, provider: str = "") -> Generator[Shown]:
    """Serve a store in this process, so that the pages show what the board has; `provider` is a name on its buttons."""
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    site = Site(location=database, project=DEFAULT_PROJECT, access=CloudAccess(), hosts=board)
    gate = Gate(
        member="ada", token_file=database.parent / "token", open_reader=site.open_reader,
        open_store=lambda doing: Store(database, doing=doing), provider=provider,
    )  # fmt: skip
    gate.read_token()
    application, streams = build_application(site, gate, Entrance(), port, "0.2.0")
    config = uvicorn.Config(application, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()

    def end() -> None:
        streams.close()
        server.should_exit = True
        thread.join()
        listening.close()

    try:
        while not server.started:
            time.sleep(0.05)
        yield Shown(port=port, gate=gate, end=end)
    finally:
        end()
