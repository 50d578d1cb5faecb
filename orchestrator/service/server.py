"""Runs the HTTP server on this computer, until a signal or the end of the engine beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette

from orchestrator.clock import SteadyClock
from orchestrator.cloud_access import read_cloud_access
from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.errors import UserError
from orchestrator.paths import Paths
from orchestrator.project import read_project
from orchestrator.service.address import Address, find_folder, note_address
from orchestrator.service.application import build_application
from orchestrator.service.connections import HEADER_SECONDS, choose_connection_limit, limit_connections
from orchestrator.service.entrance import Entrance
from orchestrator.service.gate import Gate
from orchestrator.service.host_board import HostBoard
from orchestrator.service.member_rules import MemberRules
from orchestrator.service.oidc_settings import OidcSettings
from orchestrator.service.site import Site
from orchestrator.service.streams import Streams
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at

_MOST_ACCEPTED = (
    100  # at a time, before connections above the limit are ended: fewer than the files kept free for others
)
_SHUTDOWN_SECONDS = 3  # streams stay open for ever otherwise


def serve_pages(
    paths: Paths,
    entrance: Entrance,
    version: str,
    on_start: Callable[[Address, str], None],
    stop: threading.Event,
    wake_engine: Callable[[], None] = lambda: None,
    hosts: HostBoard | None = None,
    member_rules: MemberRules | None = None,
    provider: OidcSettings | None = None,
    files: str = "",
) -> None:
    """Serve API and page until a signal, or until `stop` is set.

    Args:
        paths: The folders of this installation.
        entrance: Where it listens, and by which names it is called.
        version: The version of orch.
        on_start: Called with the address and the secret of a link, when the server answers.
        stop: Set when the engine beside it has failed.
        wake_engine: Called after each order, where no engine works beside it.
        hosts: Where the engine beside it keeps what it observes of hosts.
        member_rules: What tasks of members may use of this computer; None for nothing.
        provider: The identity provider by which people sign in.
        files: The bucket in which all servers of the team keep files that members send; "" for this computer's disk.

    Raises:
        OrchError: The bucket cannot be written.
        UserError: Others could read along, or the port is taken.
    """
    entrance.check()
    site, gate = open_site(paths, wake_engine, hosts, member_rules, provider, files)
    with _listen(entrance.host, entrance.port) as listening:
        address = Address.of(entrance, listening.getsockname()[1])
        application, streams = build_application(site, gate, entrance, address.port, version, provider)
        config = _configure(application, entrance)
        server = _Server(config, lambda: on_start(address, gate.make_link()), stop, streams)
        # uvicorn ends in order, and then sends itself the signal that ended it: the default would skip what follows.
        before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        try:
            with note_address(find_folder(paths), address):
                server.run(sockets=[listening])
        finally:
            signal.signal(signal.SIGTERM, before)


def open_site(
    paths: Paths,
    wake_engine: Callable[[], None] = lambda: None,
    hosts: HostBoard | None = None,
    member_rules: MemberRules | None = None,
    provider: OidcSettings | None = None,
    files: str = "",
) -> tuple[Site, Gate]:
    """Return what is served of an installation, and who may enter. The arguments are those of `serve_pages`."""
    location, project = store_location(os.environ, paths), read_project(os.environ)
    with open_reader_at(location, project) as store:
        member, is_new = store.member, store.installation() is None
    if is_new:  # its id is in plans, which must not change by themselves
        open_store(paths, real_services(paths), "serve").close()
    site = Site(
        location=location,
        project=project,
        access=read_cloud_access(os.environ),
        wake_engine=wake_engine,
        hosts=hosts or HostBoard(),
        member_rules=member_rules or MemberRules(),
        files=files,
        now=lambda: SteadyClock(paths.state).now(),  # the clock of the records, see read_record_time
    )
    if files:
        site.open_bucket(files, project).check_access(write=True)
    gate = Gate(
        member=member,
        token_file=find_folder(paths) / "token",
        open_reader=site.open_reader,
        open_store=site.open_store,
        provider=provider.name if provider is not None else "",
    )
    gate.read_token()
    return site, gate


def _configure(application: Starlette, entrance: Entrance) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=limit_connections(choose_connection_limit(), sees_callers=not entrance.behind_proxy),
        loop="asyncio",  # uvloop is no requirement: where another package brings it, the same is to run as elsewhere
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        backlog=_MOST_ACCEPTED,
        h11_max_incomplete_event_size=65_536,
        lifespan="off",
        proxy_headers=False,  # nothing that a proxy says of its caller is believed
        ssl_certfile=entrance.certificate,
        ssl_keyfile=entrance.key,
    )


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
        self, config: uvicorn.Config, on_start: Callable[[], None], stop: threading.Event, streams: Streams
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._stop = stop
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:  # uvicorn leaves it at the minute of asyncio, and has no setting for it
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=HEADER_SECONDS)
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()  # else every stream is waited for until the limit
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_set()
