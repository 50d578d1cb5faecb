"""A relay in front of a service that counts the requests by method and path."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST) (/\S*) HTTP/1.1\r\n", re.MULTILINE)


@dataclass(kw_only=True)
class CountingRelay:
    """The relay. Requests are counted as their heads come, which clients send in one piece."""

    port: int
    to: int
    requests: Counter[str] = field(default_factory=Counter[str])

    def count(self, method: str, path: str) -> int:
        """Return how many requests with this method had a path that begins so."""
        return sum(number for request, number in self.requests.items() if request.startswith(f"{method} {path}"))

    def carry(self, near: socket.socket) -> None:
        """Carry one connection in both directions until either side ends it."""
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self.to)) as far:
            back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
            back.start()
            self._copy(near, far, count=True)
            back.join(30)

    def _copy(self, source: socket.socket, target: socket.socket, *, count: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if count:
                    self.requests.update(f"{one[0].decode()} {one[1].decode()}" for one in _REQUEST.findall(data))
                    data = data.replace(f"Host: 127.0.0.1:{self.port}".encode(), f"Host: 127.0.0.1:{self.to}".encode())
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def counting_relay(to: int) -> Generator[CountingRelay]:
    """Relay a free port to another one of this computer until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relay = CountingRelay(port=listening.getsockname()[1], to=to)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near = listening.accept()[0]
                    threading.Thread(target=relay.carry, args=(near,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield relay
        listening.shutdown(socket.SHUT_RDWR)
