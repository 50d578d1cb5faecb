"""A TCP relay that keeps each answer back for a while, as a far store does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def slow_proxy(target: int, seconds: float) -> Iterator[int]:
    """The port of a relay on loopback to the loopback port `target`. seconds: from a request to its answer, more."""
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        server = threading.Thread(target=_serve, args=(listener, target, seconds, closing), daemon=True)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            closing.set()
            server.join()


def _serve(listener: socket.socket, target: int, seconds: float, closing: threading.Event) -> None:
    while not closing.is_set():
        with contextlib.suppress(TimeoutError, OSError):
            client, _ = listener.accept()
            client.settimeout(None)
            server = socket.create_connection(("127.0.0.1", target))
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_relay, args=(client, server, seconds), daemon=True).start()
            threading.Thread(target=_relay, args=(server, client, 0.0), daemon=True).start()


def _relay(source: socket.socket, sink: socket.socket, seconds: float) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            time.sleep(seconds)
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
