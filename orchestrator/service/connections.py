"""Connections that send nothing are closed, and only so many are open, of one network a part: no one exhausts them."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.open_files import raise_open_files_limit
from orchestrator.service.entrance import name_network

HEADER_SECONDS = 10.0  # within which a request has to come completely, from the first byte of the connection on
MOST_CONNECTIONS = 2000
OF_NETWORK = 4  # a network has at most this part of them
MOST_HANDSHAKES = 100  # that are not complete: TLS connections that are not yet counted
_COLLECT_SECONDS = 1.0  # between two searches for handshakes that ended: each takes some 50 ms
_OTHER_FILES = 300  # of the process: the store, logs, the engine's connections to hosts


def choose_connection_limit() -> int:
    """Return how many connections may be open. The limit of open files is raised as far as the system lets us."""
    return max(20, min(MOST_CONNECTIONS, raise_open_files_limit() - _OTHER_FILES))


class Handshakes:
    """The TLS connections of a server whose handshake is not complete."""

    def __init__(self) -> None:
        self._begun: WeakKeyDictionary[H11Protocol, float] = WeakKeyDictionary()
        self._collected = 0.0

    def begin(self, protocol: H11Protocol, now: float) -> None:
        """Count a handshake. Raises ConnectionRefusedError where too many are not complete."""
        if len(self._begun) >= MOST_HANDSHAKES:
            self._forget_ended(now)
        if len(self._begun) >= MOST_HANDSHAKES:
            raise ConnectionRefusedError("too many handshakes")
        self._begun[protocol] = now

    def end(self, protocol: H11Protocol) -> None:
        """Forget a handshake that is complete."""
        self._begun.pop(protocol, None)

    def _forget_ended(self, now: float) -> None:
        """Forget those that failed, or whose caller left: asyncio drops their protocol without a word to it."""
        for old in [one for one, began in self._begun.items() if now - began > HEADER_SECONDS]:
            self.end(old)  # asyncio has ended it: see server.py
        if now - self._collected > _COLLECT_SECONDS:
            self._collected = now
            gc.collect()  # what was dropped is in cycles


def limit_connections(most: int, *, sees_callers: bool) -> type[LimitedProtocol]:
    """Return the protocol of a server with at most so many connections.

    Args:
        most: At a time.
        sees_callers: Whether no proxy stands before it: then a network has at most a quarter of them.
    """

    class OfServer(LimitedProtocol):
        most_connections = most
        most_of_network = max(10, most // OF_NETWORK) if sees_callers else most
        handshakes: ClassVar[Handshakes] = Handshakes()
        networks: ClassVar[Counter[str]] = Counter()

    return OfServer


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a limit of connections, and a time within which the head of a request has to come."""

    most_connections = MOST_CONNECTIONS
    most_of_network = MOST_CONNECTIONS
    handshakes: ClassVar[Handshakes] = Handshakes()  # of one server: see `limit_connections`
    networks: ClassVar[Counter[str]] = Counter()  # how many connections each has; of one server as well

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Begin a connection. With TLS, it is counted from here on, and exists after its handshake alone.

        Raises:
            ConnectionRefusedError: Too many handshakes are not complete; asyncio ends the connection then.
        """
        super().__init__(*args, **kwargs)
        if not self.config.is_ssl:
            return
        self.handshakes.begin(self, self.loop.time())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept a connection, or end it where there are too many."""
        super().connection_made(transport)
        self.handshakes.end(self)
        self._timer: Any = None
        self._network = name_network(self.client[0]) if self.client is not None else ""
        self.networks[self._network] += 1
        if len(self.connections) > self.most_connections or self.networks[self._network] > self.most_of_network:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        self.networks[self._network] -= 1
        if not self.networks[self._network]:
            del self.networks[self._network]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. From the first byte after an answer, the time of the next request runs."""
        super().data_received(data)
        if self._is_at_work:
            self._stop_timer()
        elif self._timer is None:
            self._expect_request()

    @property
    def _is_at_work(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, which its type does not say
        return bool(cycle and not cycle.response_complete)

    def _expect_request(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close_if_silent)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_silent(self) -> None:
        self._timer = None
        if not self._is_at_work:
            self.transport.close()
