"""The TPU API on a free port of the loopback, for the real clients of Google.

with TpuServer(InMemory(scenario, clock)) as server:
    client = TpuClient(transport="rest", client_options={"api_endpoint": server.url}, credentials=...)
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, cast

from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.google.api import TpuApi
from orchestrator.simulator.google.compute.front import PREFIX as COMPUTE
from orchestrator.simulator.google.compute.front import ComputeFront
from orchestrator.simulator.google.grants import Grants
from orchestrator.simulator.google.iam import Guard
from orchestrator.simulator.google.oslogin import PREFIX as OSLOGIN
from orchestrator.simulator.google.oslogin import OsLoginFront
from orchestrator.simulator.google.services import project_fronts
from orchestrator.simulator.google.status import DEADLINE_EXCEEDED, INTERNAL, Refusal
from orchestrator.simulator.pump import Pump

PROJECT = "local-project"  # what the provider takes on the loopback when no other is configured
_IDLE_SECONDS = 30.0  # a connection that says nothing for so long is closed
_LONGEST_BODY = 32 * 1024 * 1024  # bytes


class Front(Protocol):
    """Another service of Google at the same port."""

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        """target: path and query, with the prefix that it is served under. Raises Refusal."""
        ...


class TpuServer:
    """Serves while the block lasts. What went wrong inside, and no client asked for, is raised at its end.

    bodies: what stands behind the nodes; with real hosts the cloud goes on while nobody asks. project: the only one
    that there is. fronts: other services, by the beginning of their paths. grants: what the caller may do; by default
    what docs/iam/gcp-role.yaml grants, and a call beyond that is refused.
    cut: a call without an answer (rule time_out_may_have_acted) breaks its connection; else it is 504.
    """

    def __init__(
        self,
        access: Access,
        bodies: Bodies | None = None,
        *,
        project: str = PROJECT,
        port: int = 0,
        cut: bool = False,
        fronts: Mapping[str, Front] = MappingProxyType({}),
        grants: Grants | None = None,
    ) -> None:
        self.project = project
        self.errors: list[BaseException] = []
        self.requests: list[tuple[str, str, bytes]] = []
        self.cut = cut
        self.guard = Guard(grants)
        bodies = bodies or NoBodies()
        self._fronts: Mapping[str, Front] = {
            **project_fronts(project, self.guard.grants),
            COMPUTE: ComputeFront(access, bodies, project),
            OSLOGIN: OsLoginFront(),
            **fronts,
        }
        self.api = TpuApi(access, bodies, project)
        self._pump = None if isinstance(bodies, NoBodies) else Pump(self.api)
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.tpu = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="tpu api", daemon=True)

    def front_of(self, target: str) -> Front:
        """Whose path this is: that of another service, else the TPU API's."""
        found = [prefix for prefix in self._fronts if target.startswith(prefix)]
        return self._fronts[max(found, key=len)] if found else self.api

    @property
    def url(self) -> str:
        """Without a slash at its end; gcloud's override of the endpoint wants one."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> TpuServer:
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


class _Http(ThreadingHTTPServer):
    """Knows its open connections: a client keeps them, and they must not outlive the server."""

    daemon_threads = True
    block_on_close = False
    tpu: TpuServer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each request of a kept connection waits 40 ms
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are kept in `TpuServer.requests`."""
        del format, args

    def _serve(self) -> None:
        tpu = cast(_Http, self.server).tpu
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _LONGEST_BODY:
            self.close_connection = True
            self._send(413, {"error": {"code": 413, "message": "the body is too long", "status": "INVALID_ARGUMENT"}})
            return
        body = self.rfile.read(int(length))
        tpu.requests.append((self.command, self.path, body))
        status, retry_after = 200, 0
        try:
            tpu.guard.admit(self.command, self.path, body)
            answer = tpu.front_of(self.path).handle(self.command, self.path, body)
        except Refusal as refusal:
            if tpu.cut and refusal.canonical is DEADLINE_EXCEEDED:
                self.close_connection = True
                return
            status, answer, retry_after = refusal.canonical.http, refusal.to_json(), refusal.retry_after
        except Exception as error:  # a fault of the simulator, or a cloud where nothing may change: raised at the end
            tpu.errors.append(error)
            status, answer = 500, Refusal(INTERNAL, f"{type(error).__name__}: {error}").to_json()
        try:
            self._send(status, answer, retry_after)
        except OSError:
            self.close_connection = True  # the client has gone

    def _send(self, status: int, answer: dict[str, Any], retry_after: int = 0) -> None:
        payload = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(payload)))
        if retry_after:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(payload)
