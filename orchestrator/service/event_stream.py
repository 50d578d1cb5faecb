"""Events of the audit as a stream: one poller of the store for all who listen.

The id of a message is the number of the event. A client that comes back with `Last-Event-ID` misses nothing, and gets
nothing twice. A client that reads too slowly is closed, never skipped: it comes back with its last id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from anyio import to_thread

from orchestrator.errors import OrchError
from orchestrator.service.site import Site
from orchestrator.store.records import EventRecord

POLL_SECONDS = 0.25
ALIVE_SECONDS = 15.0  # a comment, so that proxies keep the connection
LIFE_SECONDS = 15 * 60.0  # then the client comes back, and is checked again
MOST_LISTENERS = 1000
_MOST_WAITING = 60  # pages for one listener: 15 s, or more
_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Page:
    """Events that were read together, as messages: made once for all listeners."""

    numbers: tuple[int, ...]
    messages: tuple[str, ...]

    @classmethod
    def of(cls, events: Sequence[EventRecord]) -> _Page:
        return cls(tuple(event.seq for event in events), tuple(map(format_message, events)))

    def after(self, last: int) -> str:
        """Return the messages past a number."""
        return "".join(text for seq, text in zip(self.numbers, self.messages, strict=True) if seq > last)


@dataclass(eq=False, slots=True)
class _Listener:
    queue: asyncio.Queue[_Page | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))


@dataclass(kw_only=True)
class EventHub:
    """Polls the store while there are listeners. Used in the event loop alone."""

    site: Site
    _listeners: set[_Listener] = field(default_factory=set[_Listener])
    _poller: asyncio.Task[None] | None = None
    _seen: int = 0

    @property
    def full(self) -> bool:
        """Whether no further listener is taken."""
        return len(self._listeners) >= MOST_LISTENERS

    async def listen(self, after: int | None) -> AsyncGenerator[str]:
        """Yield messages: those after a number first, then each event as it happens.

        Args:
            after: The last event that the client has; None for events from now on.
        """
        listener = _Listener()
        self._listeners.add(listener)
        loop = asyncio.get_running_loop()
        end = loop.time() + LIFE_SECONDS
        try:
            if not self._is_polling:
                self._start(await to_thread.run_sync(self._read_head))
            begun = self._seen  # later events come by the queue; a listener from now on reads nothing itself
            last = begun if after is None else after
            yield "retry: 1000\n\n"
            while last < begun and (events := await to_thread.run_sync(self._read_page, last)):
                yield _Page.of(events).after(last)
                last = events[-1].seq
            while (left := end - loop.time()) > 0:
                try:
                    async with asyncio.timeout(min(ALIVE_SECONDS, left)):
                        found = await listener.queue.get()
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                if found is None:
                    return
                if found.numbers[-1] > last:
                    yield found.after(last)
                    last = found.numbers[-1]
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End all streams; their clients come back to the next server."""
        for listener in self._listeners:
            _drop(listener)

    @property
    def _is_polling(self) -> bool:
        return self._poller is not None and not self._poller.done()

    def _start(self, head: int) -> None:
        if not self._is_polling:
            self._seen = head
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        try:
            await self._poll_while_listened()
        finally:  # whatever ended it: a client that comes back misses nothing, and one that waits here would
            for listener in self._listeners:
                _drop(listener)

    async def _poll_while_listened(self) -> None:
        while self._listeners:
            await asyncio.sleep(POLL_SECONDS)
            try:
                events = await to_thread.run_sync(self._read_page, self._seen)
            except OrchError:  # the store is away: the next poll tries again, and nothing is lost
                continue
            if not events:
                continue
            self._seen, page = events[-1].seq, _Page.of(events)
            for listener in list(self._listeners):
                try:
                    listener.queue.put_nowait(page)
                except asyncio.QueueFull:
                    self._listeners.discard(listener)
                    _drop(listener)

    def _read_head(self) -> int:
        with self.site.open_reader() as store:
            return store.head().seq

    def _read_page(self, after: int) -> tuple[EventRecord, ...]:
        with self.site.open_reader() as store:
            return store.events_after(after, _PAGE)


def _drop(listener: _Listener) -> None:
    """Empty the queue of a listener and end its stream."""
    while not listener.queue.empty():
        listener.queue.get_nowait()
    listener.queue.put_nowait(None)


def format_message(event: EventRecord) -> str:
    """Return one event as a message of the stream: its number, and what a page needs to know of it."""
    data = json.dumps({"seq": event.seq, "cluster": event.cluster, "kind": event.kind, "what": event.what})
    return f"id: {event.seq}\ndata: {data}\n\n"
