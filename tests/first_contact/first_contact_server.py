"""A loopback server that answers every request with the bytes of one entry, and the clients that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from xml.sax.saxutils import escape

from first_contact_corpus import Entry

GOOGLE_TYPE = "type.googleapis.com/google.rpc."


class AnswerServer:
    """Serves the answer of one entry at a time."""

    def __init__(self) -> None:
        self.entry: Entry | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                assert outer.entry is not None
                body, kind = render_body(outer.entry)
                self.send_response(outer.entry.http or 400)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = _answer  # noqa: N815  # names of the base class

            def log_message(self, format: str, *args: object) -> None:  # name of the base class
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[AnswerServer]:
        thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def render_body(entry: Entry) -> tuple[bytes, str]:
    """Return the body in the vendor's form, and its content type."""
    code, text = escape(str(entry.code)), escape(entry.text)
    match entry.form:
        case "tpu" | "compute":
            return json.dumps({"error": _google_error(entry)}).encode(), "application/json; charset=UTF-8"
        case "refresh":
            return json.dumps({"error": entry.error, "error_description": entry.text}).encode(), "application/json"
        case "json":
            return json.dumps({"__type": entry.code, "message": entry.text}).encode(), "application/x-amz-json-1.1"
        case "ec2":
            inner = f"<Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors>"
            return f"<Response>{inner}<RequestID>0</RequestID></Response>".encode(), "text/xml"
        case "query":
            inner = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>"
            return f"<ErrorResponse>{inner}<RequestId>0</RequestId></ErrorResponse>".encode(), "text/xml"
        case _:
            return f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode(), "application/xml"


def _google_error(entry: Entry) -> dict[str, Any]:
    error: dict[str, Any] = {"code": entry.http, "message": entry.text}
    if entry.status:
        error["status"] = entry.status
    if entry.reason:
        error["errors"] = [{"message": entry.text, "domain": "global", "reason": entry.reason}]
    if entry.details:
        error["details"] = [
            {"@type": GOOGLE_TYPE + str(one["type"]), **{key: value for key, value in one.items() if key != "type"}}
            for one in entry.details
        ]
    return error
