"""Receivers of notifications on this computer: a web server and a mail server."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebReceiver:
    """Answers with the first of `answers` that is left, then with 200: a status, or a status and its headers.

    before_answer: called after a message has arrived and before it is answered.
    drip: bytes of an answer that never ends, one a tenth of a second.
    """

    posts: list[Post] = field(default_factory=list[Post])
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list[tuple[int, dict[str, str]]])
    before_answer: Callable[[], None] = lambda: None
    drip: bool = False
    url: str = ""

    def ids(self) -> list[str]:
        return [post.headers["webhook-id"] for post in self.posts]


@contextmanager
def web_receiver() -> Generator[WebReceiver]:
    receiver = WebReceiver()
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            receiver.before_answer()
            while receiver.drip and not ended.wait(0.1):
                self.wfile.write(b"H")
                self.wfile.flush()
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok" if status == 200 else b"the receiver's own words")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass
class MailReceiver:
    """mails: what was accepted, as bytes. refuse: the answer to the next mails, "" to accept them."""

    port: int = 0
    mails: list[bytes] = field(default_factory=list[bytes])
    logins: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    refuse: str = ""
    delay: float = 0.0

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.delay:
            time.sleep(self.delay)
        if self.refuse:
            return self.refuse
        self.mails.append(envelope.content)
        return "250 accepted"


@contextmanager
def mail_receiver(
    *, certificate: tuple[Path, Path] | None = None, tls: bool = False, password: bytes = b""
) -> Generator[MailReceiver]:
    """A mail server with STARTTLS or TLS, if it has a certificate; with a password it requires a login."""
    receiver = MailReceiver()
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)

    def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        receiver.logins.append((data.login, data.password))
        return AuthResult(success=data.password == password, handled=False)

    receiver.port = _find_free_port()  # the library connects to the port that it was given
    controller = Controller(
        receiver, hostname="127.0.0.1", port=receiver.port, ssl_context=context if tls else None,
        tls_context=None if tls else context, require_starttls=context is not None and not tls,
        auth_required=bool(password), auth_require_tls=context is not None and not tls,
        authenticator=authenticate,
    )  # fmt: skip
    controller.start()
    try:
        yield receiver
    finally:
        controller.stop()


def _find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)], check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
