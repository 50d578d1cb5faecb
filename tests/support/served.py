"""A server on this computer that answers each request with what a function says, in JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Handle: TypeAlias = Callable[[str, str, bytes], tuple[int, dict[str, Any]]]  # of method, target and body


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. query: without how the answer should look, which is no part of what is asked for."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


@contextmanager
def served(handle: Handle) -> Generator[str]:
    """The address of a server that answers with `handle`; an answer 0 breaks the connection."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                code, answer = handle(self.command, self.path, raw)
            if code == 0:
                self.close_connection = True
                return
            data = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the name is the library's
        do_PUT = do_GET  # noqa: N815 - the name is the library's
        do_PATCH = do_GET  # noqa: N815 - the name is the library's
        do_DELETE = do_GET  # noqa: N815 - the name is the library's

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
