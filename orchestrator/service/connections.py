"""Connections that send nothing are closed, and only so many are open, so that no one can exhaust them."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # within which a request has to come completely, from the first byte of the connection on
MOST_CONNECTIONS = 2000
_OTHER_FILES = 200  # of the process: the store, logs, the engine's connections to hosts


def choose_connection_limit() -> int:
    """Return how many connections may be open. The limit of open files is raised as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MOST_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(20, min(MOST_CONNECTIONS, soft - _OTHER_FILES))


def limit_connections(most: int) -> type[LimitedProtocol]:
    """Return the protocol of a server with at most so many connections."""

    class OfServer(LimitedProtocol):
        most_connections = most

    return OfServer


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a limit of connections, and a time within which the head of a request has to come."""

    most_connections = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept a connection, or end it where there are too many."""
        super().connection_made(transport)
        self._timer: Any = None
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
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
