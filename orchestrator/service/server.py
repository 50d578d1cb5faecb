"""Runs the HTTP server on this computer, until a signal or the end of the engine beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import uvicorn

from orchestrator.cloud_access import read_cloud_access
from orchestrator.errors import UserError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.project import read_project
from orchestrator.service.address import Address, find_folder
from orchestrator.service.application import build_application
from orchestrator.service.event_stream import EventHub
from orchestrator.service.gate import Gate
from orchestrator.service.host_board import HostBoard
from orchestrator.service.site import Site
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at

THIS_COMPUTER = ("127.0.0.1", "localhost", "::1")
_SHUTDOWN_SECONDS = 3  # streams stay open for ever otherwise


def serve_pages(
    paths: Paths,
    host: str,
    port: int,
    version: str,
    on_start: Callable[[Address, str], None],
    stop: threading.Event,
    hosts: HostBoard | None = None,
) -> None:
    """Serve API and page until a signal, or until `stop` is set.

    Args:
        paths: The folders of this installation.
        host: The address to listen on, of this computer alone.
        port: The port; 0 for a free one.
        version: The version of orch.
        on_start: Called with the address and the secret of a link, when the server answers.
        stop: Set when the engine beside it has failed.
        hosts: Where the engine beside it keeps what it observes of hosts.

    Raises:
        UserError: The address is not of this computer alone, or the port is taken.
    """
    if host not in THIS_COMPUTER:
        raise UserError(
            f"the page is not served on {host}",
            "it has no TLS and one member, so it answers on this computer alone",
            f"from elsewhere: ssh -L {port}:127.0.0.1:{port} THIS-COMPUTER   then the link that orch serve prints",
        )
    location, project = store_location(os.environ, paths), read_project(os.environ)
    with open_reader_at(location, project) as store:
        member = store.member
    folder = find_folder(paths)
    gate = Gate(member=member, token_file=folder / "token")
    gate.read_token()
    with _listen(host, port) as listening:
        address = Address(host=host, port=listening.getsockname()[1])
        site = Site(
            location=location, project=project, access=read_cloud_access(os.environ), hosts=hosts or HostBoard()
        )
        application, streams = build_application(site, gate, address.port, version)
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, server_header=False, date_header=True,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS, h11_max_incomplete_event_size=65_536, lifespan="off",
        )  # fmt: skip
        server = _Server(config, lambda: on_start(address, gate.make_link()), stop, streams)
        # uvicorn ends in order, and then sends itself the signal that ended it: the default would skip what follows.
        before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        try:
            with _noted_address(folder / "address.json", address):
                server.run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _noted_address(file: Path, address: Address) -> Generator[None]:
    """Keep the address in a file for this computer's programs. A file that another server has written since stays."""
    content = json.dumps({"host": address.host, "port": address.port})
    make_private_folder(file.parent)
    write_whole(file, content)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            if file.read_text(encoding="utf-8") == content:
                file.unlink()


@contextlib.contextmanager
def _listen(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers immediately (TCP_NODELAY) only where the protocol is named.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise UserError(
                f"port {port} is taken", str(error.strerror), "orch serve --port 0   takes a free one"
            ) from error
        yield listening


class _Server(uvicorn.Server):
    """A server that says when it answers, and ends with the engine."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None], stop: threading.Event, streams: EventHub
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._stop = stop
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()  # else every stream is waited for until the limit
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_set()
