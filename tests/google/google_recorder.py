"""A server on this computer that takes any request of the TPU API, answers that the work has begun, and notes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. query: without how the answer should look, which is no part of what is asked for."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True)
class Recorder:
    url: str = ""
    seen: list[Seen] = field(default_factory=list[Seen])

    def take(self) -> list[Seen]:
        found, self.seen = self.seen, []
        return found


@contextmanager
def recorder() -> Generator[Recorder]:
    notes = Recorder()

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _take(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items() if key not in ("alt", "$alt")}
            notes.seen.append(Seen(self.command, parts.path, query, json.loads(raw) if raw.strip() else {}))
            place = (
                parts.path.split("/nodes")[0]
                .split("/queuedResources")[0]
                .removeprefix("/v2/")
                .removeprefix("/v2alpha1/")
            )
            answer = json.dumps({"name": f"{place}/operations/op-1", "done": False}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self._take()

        def do_POST(self) -> None:
            self._take()

        def do_DELETE(self) -> None:
            self._take()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    notes.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield notes
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
