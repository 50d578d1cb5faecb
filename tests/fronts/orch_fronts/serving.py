"""HTTP server on the loopback that all simulated clouds share."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from orchestrator.cloud_access import SIMULATED
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.pump import Advanceable, Pump

LONGEST_UNPROVEN = 1024 * 1024  # bytes of a body that are read from a caller who has proven nothing
_IDLE_SECONDS = 30.0  # a connection without a request for so long is closed


def make_token() -> str:
    """Return a new credential of a simulated cloud; it cannot be guessed, nor taken for a real one."""
    return f"{SIMULATED}-{secrets.token_hex(16)}"


class ApiServer:
    """Server of a simulated cloud while a `with` block lasts; raises the first internal error at its end.

    Attributes:
        handler: Handler of one connection; it finds this object as `self.server.api`.
        cloud: Cloud that is advanced also without calls when there are real hosts (bodies) behind it.
    """

    def __init__(self, handler: type[ApiHandler], port: int, cloud: Advanceable, bodies: Bodies) -> None:
        self.errors: list[BaseException] = []
        self._pump = None if isinstance(bodies, NoBodies) else Pump(cloud)
        self._http = ApiHttp(("127.0.0.1", port), handler, self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name="simulated cloud", daemon=True
        )

    @property
    def url(self) -> str:
        """Return the URL, without a slash at its end."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        if self._pump is not None:
            self._pump.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pump is not None:
            self._pump.__exit__(kind, error, trace)
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()
        self._thread.join()
        if error is None and self.errors:
            raise self.errors[0]


class ApiHttp(ThreadingHTTPServer):
    """Server that tracks its open connections, which clients keep alive but which must not outlive it."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[ApiHandler], api: ApiServer) -> None:
        super().__init__(address, handler)
        self.api = api
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # else the client was killed, or has hung up
            super().handle_error(request, client_address)

    def hang_up(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):  # the client was quicker
                    each.shutdown(socket.SHUT_RDWR)


class ApiHandler(BaseHTTPRequestHandler):
    """Handler of one connection without log output; the servers record the requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each request of a kept connection waits 40 ms
    timeout = _IDLE_SECONDS

    @abstractmethod
    def serve(self) -> None:
        """Read the request, and answer it with `send`."""

    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, format: str, *args: Any) -> None:
        del format, args

    def skip_body(self, length: str) -> None:
        """Read the body of a request that is refused, so that the answer arrives; hang up after a long one."""
        self.close_connection = not length.isdecimal() or int(length) > LONGEST_UNPROVEN
        if not self.close_connection:
            self.rfile.read(int(length))

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a response; a client that has disconnected is no error."""
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:
            self.close_connection = True
