"""A server that answers every connection with some bytes, and then with others again and again."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class EndlessServer:
    """sent: Bytes of the repeated answers, over all connections. connections: How many there were."""

    port: int
    sent: int = 0
    connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, *, sent: int = 0, connections: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.connections += connections


@contextmanager
def endless_server(
    first: bytes, again: bytes, pause: float = 0.05, *, tls: ssl.SSLContext | None = None
) -> Generator[EndlessServer]:
    """Answer so until the end of the block, or until the other side hangs up; `pause` is between two answers."""
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        server.count(connections=1)
        with connection:
            try:
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                connection.sendall(first)
                while not over.wait(pause):
                    connection.sendall(again)
                    server.count(sent=len(again))
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True, name="the test's server").start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = EndlessServer(listening.getsockname()[1])
        threading.Thread(target=accept, daemon=True, name="the test's server").start()
        try:
            yield server
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
