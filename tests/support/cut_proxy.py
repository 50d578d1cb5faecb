"""A TCP relay that loses the connection at a chosen word: before it is passed on, or instead of its answer."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class CutProxy:
    """arm(): from the next bytes that hold `word` on, the connection they came on is lost. Others are relayed."""

    port: int
    target: int
    cuts: int = 0
    _word: bytes = b""
    _after: bool = False
    _times: int = 1
    _closing: threading.Event = field(default_factory=threading.Event)

    def arm(self, word: bytes, *, after: bool, times: int = 1) -> None:
        """after: the word reaches the server and is answered, and the answer is lost. times: how many connections."""
        self._after, self._times = after, times
        self._word = word

    def serve(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                client, _ = listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            client.settimeout(10)
            while not self._closing.is_set():
                ready, _, _ = select.select([client, server], [], [], 0.2)
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client and self._word and self._word in data:
                        self.cuts += 1
                        self._times -= 1
                        if not self._times:
                            self._word = b""
                        if self._after:
                            server.sendall(data)
                            server.recv(65536)  # the answer: it is done now
                        return
                    (server if source is client else client).sendall(data)


@contextlib.contextmanager
def cut_proxy(target: int) -> Iterator[CutProxy]:
    """A relay on a free loopback port to the loopback port `target`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        proxy = CutProxy(listener.getsockname()[1], target)
        server = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        server.start()
        try:
            yield proxy
        finally:
            proxy._closing.set()
            server.join()
