"""Events of a service as they happen, over a connection that comes back after it was cut. No event is missed."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

Event = dict[str, Any]  # `seq`, `cluster`, `kind` and `what`
_PATH = "/v1/events/stream"
_PAUSE_SECONDS = 1.0  # between two connections
_READY_SECONDS = 10.0  # that the beginning is waited for


class FollowedEvents:
    """The events of a service from now on, used as a context manager."""

    def __init__(self, connect: Callable[[], http.client.HTTPConnection], headers: Mapping[str, str]) -> None:
        """Prepare; nothing is sent.

        Args:
            connect: Makes a connection.
            headers: Those of each request; they may change meanwhile.
        """
        self._connect = connect
        self._headers = headers  # whose token may be renewed meanwhile
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True, name="events of the service")

    def __enter__(self) -> Self:
        """Begin. What happens after this is followed, or the service does not answer."""
        self._thread.start()
        self._begun.wait(_READY_SECONDS)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        connection = self._connection
        if connection is not None and isinstance(connection.sock, socket.socket):
            with contextlib.suppress(OSError):  # it is closed already
                connection.sock.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that came since; wait so long for the first one."""
        found: list[Event] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        return found

    def _follow(self) -> None:
        last = ""
        while not self._ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # it is tried again
                for number, event in self._read_messages(last):
                    last = number
                    if number:  # the first message of a stream may be without one
                        self._begun.set()
                    if event is not None:
                        self._events.put(event)
            self._begun.set()  # also without an answer: the next request reports that
            self._ended.wait(_PAUSE_SECONDS)

    def _read_messages(self, last: str) -> Iterator[tuple[str, Event | None]]:
        """Yield the number of the last event, and an event, for each message of one connection."""
        connection = self._connection = self._connect()
        try:
            connection.request("GET", _PATH, headers={**self._headers} | ({"Last-Event-ID": last} if last else {}))
            answer = connection.getresponse()
            if answer.status != 200:
                return
            event: Event | None = None
            while line := answer.readline(1_000_000):
                name, _, value = line.decode("utf-8", "replace").rstrip("\n").partition(": ")
                if name == "id":
                    last = value
                elif name == "data":
                    event = json.loads(value)
                elif not name:
                    yield last, event
                    event = None
        finally:
            connection.close()
