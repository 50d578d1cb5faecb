"""HTTP relay to an S3 server that forwards requests and then reports that they failed."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Relay:
    """A relay that can lose responses.

    Attributes:
        lose: Whether each request is forwarded but answered with 403.
        writes: Number of PUT requests forwarded.
    """

    url: str = ""
    lose: bool = False
    writes: int = 0


@contextmanager
def relay_that_loses_answers(target: str) -> Iterator[Relay]:
    relay = Relay()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            headers.setdefault("Content-Type", "application/octet-stream")  # else urllib says it is a form
            request = urllib.request.Request(target + self.path, body or None, headers, method=self.command)
            try:
                with urllib.request.urlopen(request) as answer:
                    status, found, data = answer.status, answer.headers, answer.read()
            except urllib.error.HTTPError as error:
                status, found, data = error.code, error.headers, error.read()
            relay.writes += self.command == "PUT"
            if relay.lose:
                status, data = 403, b""
            self.send_response(status)
            for name, value in found.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = _pass_on  # noqa: N815  # the names that the library calls

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    relay.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
