"""Pretend AWS services at one free port of the loopback, for boto3, the `aws` command and the hosts' programs.

with AwsServer(InMemory(scenario, clock)) as server:
    ec2 = boto3.client("ec2", endpoint_url=server.url, region_name="us-east-1")

Which service is meant stands in the signature: Credential=KEY/20261120/us-east-1/ec2/aws4_request. Signatures are not
checked.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from orchestrator.simulator.access import Access
from orchestrator.simulator.aws.calls import Admits, AwsAnswer, AwsCall, AwsRefusal, Front, needs_of
from orchestrator.simulator.aws.ec2.front import Ec2Front
from orchestrator.simulator.aws.refusals import in_form
from orchestrator.simulator.bodies import Bodies, NoBodies
from orchestrator.simulator.pump import Pump

_IDLE_SECONDS = 30.0  # a connection that says nothing for so long is closed
_LONGEST_BODY = 256 * 1024 * 1024  # bytes; parts of an upload come whole
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_FORM = "application/x-www-form-urlencoded"


class AwsServer:
    """Serves while the block lasts. What went wrong inside, and no client asked for, is raised at its end.

    EC2 is there; fronts: other services by their name in the signature, such as "ssm". bodies: what stands behind the
    instances; with real hosts the cloud goes on while nobody asks. guard: says who may do what; None lets all pass.
    cut: a call without an answer (rule time_out_may_have_acted) breaks its connection; else it is 503.
    """

    def __init__(
        self,
        access: Access,
        bodies: Bodies | None = None,
        *,
        port: int = 0,
        cut: bool = False,
        fronts: Mapping[str, Front] = MappingProxyType({}),
        guard: Admits | None = None,
    ) -> None:
        self.errors: list[BaseException] = []
        self.requests: list[AwsCall] = []
        self.cut = cut
        self.guard = guard
        bodies = bodies or NoBodies()
        self.ec2 = Ec2Front(access, bodies)
        self._fronts: Mapping[str, Front] = {"ec2": self.ec2, **fronts}
        self._pump = None if isinstance(bodies, NoBodies) else Pump(self.ec2)
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.aws = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="pretend aws", daemon=True)

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, call: AwsCall) -> AwsAnswer:
        """Raises AwsRefusal."""
        front = self._fronts.get(call.service)
        if front is None:
            raise AwsRefusal("UnknownService", f"there is no pretend service {call.service!r}", 404)
        if self.guard is not None:
            self.guard.admit(call, needs_of(front, call))
        return front.handle(call)

    def __enter__(self) -> AwsServer:
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


def call_of(method: str, target: str, headers: Mapping[str, str], body: bytes) -> AwsCall:
    """headers: by lower-case name. A request without a signature is for s3: public objects need none."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    scope = _SCOPE.search(headers.get("authorization", "") or f"Credential={query.get('X-Amz-Credential', '')}")
    service, region = (scope["service"], scope["region"]) if scope else ("s3", "us-east-1")
    operation, params = "", cast(dict[str, Any], {})
    target_header = headers.get("x-amz-target", "")
    if target_header:
        operation = target_header.rpartition(".")[2]
        with suppress(ValueError):
            params = json.loads(body or b"{}")
    elif service != "s3":
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100_000))
        params = {**query, **form} if headers.get("content-type", "").startswith(_FORM) or not body else query
        operation = str(params.get("Action", ""))
    return AwsCall(service, region, method, parts.path, query, headers, body, operation, params)


class _Http(ThreadingHTTPServer):
    """Knows its open connections: a client keeps them, and they must not outlive the server."""

    daemon_threads = True
    block_on_close = False
    aws: AwsServer

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

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are kept in `AwsServer.requests`."""
        del format, args

    def _serve(self) -> None:
        aws = cast(_Http, self.server).aws
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _LONGEST_BODY or "transfer-encoding" in headers:
            self.close_connection = True  # the body is not read
            self._send(AwsAnswer(413))
            return
        call = call_of(self.command, self.path, headers, self.rfile.read(int(length)))
        aws.requests.append(call)
        try:
            answer = aws.answer(call)
        except AwsRefusal as refusal:
            if aws.cut and not refusal.answered:
                self.close_connection = True
                return
            answer = in_form(call.service, refusal)
        except Exception as error:  # a fault of the simulator, or a cloud where nothing may change: raised at the end
            aws.errors.append(error)
            answer = in_form(call.service, AwsRefusal("InternalError", f"{type(error).__name__}: {error}", 500))
        try:
            self._send(answer)
        except OSError:
            self.close_connection = True  # the client has gone

    def _send(self, answer: AwsAnswer) -> None:
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
