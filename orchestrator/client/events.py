"""Events and progress of a service as they happen, over a connection that comes back after it was cut."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, cast

Event = dict[str, Any]  # `cluster`, `kind` and `what`; of the kind PROGRESS also `number` and `progress`
PROGRESS = "progress"
_PATH = "/v1/events/stream"
_PAUSE_SECONDS = 1.0  # between two connections
_READY_SECONDS = 10.0  # that the beginning is waited for
_MOST_WAITING = 1000  # events that were not shown yet; then the service waits, or closes the stream, which comes back
_LONGEST_LINE = 64 << 10  # bytes; an event has some hundred
_REMEMBERED = 2000  # numbers of progress: a service sends some again to who comes back


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
        self._events: queue.Queue[Event] = queue.Queue(_MOST_WAITING)
        self._numbers: deque[int] = deque(maxlen=_REMEMBERED)  # of progress
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._socket: socket.socket | None = None  # which the connection forgets where the answer has no length
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
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that came since; wait so long for the first one."""
        found: list[Event] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while len(found) < _MOST_WAITING:  # more may come as fast as they are taken
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
                    if event is not None and self._is_new(event):
                        self._keep(event)
                    if self._ended.is_set():
                        return
            self._begun.set()  # also without an answer: the next request reports that
            self._ended.wait(_PAUSE_SECONDS)

    def _is_new(self, event: Event) -> bool:
        number = event.get("number")
        if event["kind"] != PROGRESS or not isinstance(number, int):
            return str(event["kind"]) != PROGRESS
        new = number not in self._numbers
        self._numbers.append(number)
        return new

    def _keep(self, event: Event) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put(event, timeout=_PAUSE_SECONDS)
                return

    def _read_messages(self, last: str) -> Iterator[tuple[str, Event | None]]:
        """Yield the number of the last event, and an event, for each message of one connection."""
        connection = self._connect()
        try:
            path = f"{_PATH}?progress={max(self._numbers)}" if self._numbers else _PATH
            connection.request("GET", path, headers={**self._headers} | ({"Last-Event-ID": last} if last else {}))
            self._socket = connection.sock
            answer = connection.getresponse()
            if answer.status != 200:
                return
            event: Event | None = None
            while line := answer.readline(_LONGEST_LINE):
                name, _, value = line.decode("utf-8", "replace").rstrip("\n").partition(": ")
                if name == "id":
                    last = value
                elif name == "data":
                    event = _parse_event(value)
                elif not name:
                    yield last, event
                    event = None
        finally:
            connection.close()


def _parse_event(text: str) -> Event | None:
    """Return an event, or None for anything else: what a service sends may be of another kind, or hostile."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    event = cast(Event, found)
    return event if all(isinstance(event.get(key), str) for key in ("cluster", "kind", "what")) else None
