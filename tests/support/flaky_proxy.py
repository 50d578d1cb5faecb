"""HTTP relay to a bucket server (S3 or Cloud Storage) that fails as networks and services do.

A fault is chosen for each request: during an outage always the same kind, else one of several at random, with a seed.
Redirects and refusals of another region come from the server behind: orch_fronts/aws/s3.py.
"""

from __future__ import annotations

import http.client
import http.server
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit


class Fault(StrEnum):
    """What happens to a request."""

    BUSY = "503 before the effect"
    BROKEN = "500 before the effect"
    BUSY_AFTER = "503 after the effect"
    BROKEN_AFTER = "500 after the effect"
    LOST = "connection lost before the effect"
    LOST_AFTER = "connection lost after the effect, without an answer"
    CUT = "connection lost in the middle of the answer"
    SLOW = "the answer comes in small pieces"


STATUS = {Fault.BUSY: 503, Fault.BROKEN: 500, Fault.BUSY_AFTER: 503, Fault.BROKEN_AFTER: 500}
BEFORE = frozenset({Fault.BUSY, Fault.BROKEN, Fault.LOST})
SLOW_SECONDS = 0.2
# "Error responses" of the Amazon S3 API reference (2026); Cloud Storage's XML API has the same form.
TEXTS = {
    503: "<Code>SlowDown</Code><Message>Please reduce your request rate.</Message>",
    500: "<Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message>",
}


@dataclass
class FlakyProxy:
    """A relay; without faults it passes everything on.

    Attributes:
        seen: Requests, by fault ("" for none).
    """

    url: str
    target: str
    seen: Counter[str] = field(default_factory=Counter[str])
    _kinds: Sequence[Fault] = ()
    _share: float = 0.0
    _until: float = float("inf")
    _only: Callable[[str, str], bool] = lambda method, path: True
    _chance: random.Random = field(default_factory=random.Random)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(
        self,
        *kinds: Fault,
        share: float = 1.0,
        seconds: float = float("inf"),
        seed: int = 0,
        only: Callable[[str, str], bool] = lambda method, path: True,
    ) -> None:
        """Fail requests from now on.

        Args:
            kinds: One is chosen at random for each request.
            share: Of the requests, that fail.
            seconds: Until all is well again.
            seed: Of the choices.
            only: Whether a request with this method and path may fail.
        """
        with self._lock:
            self._kinds, self._share, self._only = kinds, share, only
            self._until = time.monotonic() + seconds
            self._chance = random.Random(seed)

    def recover(self) -> None:
        """Pass everything on again."""
        with self._lock:
            self._kinds = ()

    def choose(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request."""
        with self._lock:
            over = not self._kinds or time.monotonic() > self._until or not self._only(method, path)
            fault = None if over or self._chance.random() >= self._share else self._chance.choice(self._kinds)
            self.seen[fault or ""] += 1
            return fault

    @property
    def failed(self) -> int:
        """Number of requests with a fault."""
        return sum(count for fault, count in self.seen.items() if fault)


@contextmanager
def flaky_proxy(target: str) -> Iterator[FlakyProxy]:
    """Relay to the server at the URL `target` until the block ends."""

    class Handler(_Handler):
        proxy = FlakyProxy("", target)

    server = _Server(("127.0.0.1", 0), Handler)
    Handler.proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Handler.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients that disconnect are part of the tests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FlakyProxy

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.choose(self.command, self.path)
        if fault not in BEFORE:
            status, headers, data = self._forward(body)
        else:
            status, headers, data = 0, [], b""
        if fault in (Fault.LOST, Fault.LOST_AFTER):
            self.close_connection = True
            return
        if fault in STATUS:
            status, headers = STATUS[fault], [("Content-Type", "application/xml")]
            data = f"<Error>{TEXTS[status]}</Error>".encode()
        self._answer(status, headers, data, fault)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  # the names that the library calls

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.proxy.target).netloc, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault | None) -> None:
        self.send_response_only(status)
        size = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length":
                size = value  # of an answer to HEAD
            elif name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", size if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is Fault.CUT:
            self.close_connection = True
            data = data[: len(data) // 2]
        pieces = 4 if fault is Fault.SLOW else 1
        step = -(-len(data) // pieces) or 1
        for at in range(0, len(data), step):
            if at:
                time.sleep(SLOW_SECONDS / pieces)
            self.wfile.write(data[at : at + step])
            self.wfile.flush()
