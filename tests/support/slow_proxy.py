"""A TCP relay to a far server: it keeps each answer back for a while, and the network in between can fail."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass(kw_only=True)
class SlowProxy:
    """A relay on loopback to the loopback port `target`.

    seconds: from a request to its answer, more. requests: how often something was sent to the server; whoever waits
    for each answer makes as many round trips.
    """

    port: int
    target: int
    seconds: float
    requests: int = 0
    _passing: threading.Event = field(default_factory=_set_event)
    _closing: threading.Event = field(default_factory=threading.Event)
    _open: list[socket.socket] = field(default_factory=list[socket.socket])

    def hold(self, seconds: float) -> None:
        """Pass nothing on for a while, as a network that loses every packet; nothing is lost for good."""
        self._passing.clear()
        time.sleep(seconds)
        self._passing.set()

    def cut(self) -> None:
        """End every connection that there is."""
        opened, self._open = self._open, []
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                client, _ = listener.accept()
                self._connect(client)

    def end(self) -> None:
        self._closing.set()
        self._passing.set()
        self.cut()

    def _connect(self, client: socket.socket) -> None:
        client.settimeout(None)
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            raise
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(each)
        threading.Thread(target=self._relay, args=(client, server), kwargs={"asking": True}, daemon=True).start()
        threading.Thread(target=self._relay, args=(server, client), kwargs={"asking": False}, daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, *, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if asking:
                    self.requests += 1
                    time.sleep(self.seconds)
                self._passing.wait()
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def slow_proxy(target: int, seconds: float) -> Iterator[SlowProxy]:
    """A relay that serves until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        proxy = SlowProxy(port=int(listener.getsockname()[1]), target=target, seconds=seconds)
        server = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        server.start()
        try:
            yield proxy
        finally:
            proxy.end()
            server.join()
