"""Events of the audit as a stream, and the progress of engines: one poller of the store for all who listen.

Progress has messages of another type, which a browser's `onmessage` does not get, and no id: a program that comes back
names the number of the last one (`progress`), and may get some twice.

The id of a message is the number of the event. A client that comes back with `Last-Event-ID` misses nothing, and gets
nothing twice. A client that reads too slowly is closed, never skipped: it comes back with its last id.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from anyio import to_thread

from orchestrator.errors import OrchError
from orchestrator.project import split_name
from orchestrator.service.site import Site
from orchestrator.store.read_events import ProgressRecord
from orchestrator.store.records import EventRecord

POLL_SECONDS = 0.25
ALIVE_SECONDS = 15.0  # a comment, so that proxies keep the connection
LIFE_SECONDS = 15 * 60.0  # then the client comes back, and is checked again
MOST_LISTENERS = 1000
MOST_OF_MEMBER = 100  # pages and programs of one
_MOST_WAITING = 60  # pages for one listener: 15 s, or more
_PAGE = 500
_OVERTAKEN = 64  # numbers of progress below the newest that may be committed after it


@dataclass(frozen=True, slots=True)
class _Page:
    """Events that were read together, as messages: made once for all listeners.

    Attributes:
        shown: Of events that are of no cluster, such as bills: the numbers of those that a project may see. A project
            that is missing here was not asked for.
    """

    numbers: tuple[int, ...]
    projects: tuple[str, ...]  # "" for events that are of no cluster
    messages: tuple[str, ...]
    shown: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    _complete: dict[str, bytes] = field(default_factory=dict[str, bytes])  # all messages, by the listener's project

    @classmethod
    def of(cls, events: Sequence[EventRecord]) -> _Page:
        projects = tuple(split_name(event.cluster)[0] if event.cluster else "" for event in events)
        return cls(tuple(event.seq for event in events), projects, tuple(map(format_message, events)))

    def after(self, last: int, only_project: str) -> bytes:
        """Return the messages past a number, of one project or of all."""
        if last >= self.numbers[0] or self.list_missing((only_project,)):
            return self._encode(last, only_project)
        if only_project not in self._complete:
            self._complete[only_project] = self._encode(last, only_project)
        return self._complete[only_project]

    def _encode(self, last: int, only_project: str) -> bytes:
        found = zip(self.numbers, self.projects, self.messages, strict=True)
        own = self.shown.get(only_project, frozenset())
        return "".join(
            text
            for seq, project, text in found
            if seq > last and (only_project in ("", project) or (not project and seq in own))
        ).encode()

    def list_missing(self, projects: Iterable[str]) -> list[str]:
        """Return the projects of which it is not known yet which events of no cluster they may see."""
        if all(self.projects):
            return []
        return [one for one in dict.fromkeys(projects) if one and one not in self.shown]


@dataclass(frozen=True, slots=True)
class _ProgressPage:
    """Progress that was read together, as messages."""

    projects: tuple[str, ...]
    messages: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[ProgressRecord]) -> _ProgressPage:
        return cls(tuple(split_name(row.cluster)[0] for row in rows), tuple(map(format_progress, rows)))

    def encode(self, only_project: str) -> bytes:
        """Return the messages of one project or of all."""
        pairs = zip(self.projects, self.messages, strict=True)
        return "".join(text for project, text in pairs if only_project in ("", project)).encode()


_Sent: TypeAlias = _Page | _ProgressPage | bytes


class BusyStreamsError(OrchError):
    """Too many streams are open, of the member or of all."""

    code = "streams-busy"


@dataclass(eq=False, slots=True)
class _Listener:
    only_project: str
    member: str
    queue: asyncio.Queue[_Sent | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))


@dataclass(kw_only=True)
class EventHub:
    """Polls the store while there are listeners. Used in the event loop alone."""

    site: Site
    _listeners: set[_Listener] = field(default_factory=set[_Listener])
    _poller: asyncio.Task[None] | None = None
    _seen: int = 0
    _newest: int = 0  # number of progress
    _sent: deque[int] = field(default_factory=lambda: deque(maxlen=2 * _PAGE))  # numbers of progress

    def check_room(self, member: str) -> None:
        """Raise BusyStreamsError where no further listener of a member is taken."""
        if sum(one.member == member for one in self._listeners) >= MOST_OF_MEMBER:
            raise BusyStreamsError(f"you have {MOST_OF_MEMBER} streams open", "", "close other pages of this server")
        if len(self._listeners) >= MOST_LISTENERS:
            raise BusyStreamsError("too many streams are open", "", "close other pages of this server")

    async def listen(
        self, after: int | None, only_project: str = "", member: str = "", progress: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield messages: those after a number first, then each event as it happens.

        Args:
            after: The last event that the client has; None for events from now on.
            only_project: The only one whose events are sent, with the bills of its slices; "" for all events.
            member: Who listens.
            progress: The last progress that the client has; None for progress from now on.
        """
        listener = _Listener(only_project, member)
        self._listeners.add(listener)
        loop = asyncio.get_running_loop()
        end = loop.time() + LIFE_SECONDS
        try:
            yield b"retry: 1000\n\n"
            if not self._is_polling:
                self._start(*await to_thread.run_sync(self._read_head))
            begun = self._seen  # later events come by the queue; a listener from now on reads nothing itself
            last = begun if after is None else after
            yield b"id: %d\n\n" % last  # so that a client that is cut off before an event misses none
            while last < begun and (page := await to_thread.run_sync(self._read_page, last, (only_project,))):
                yield page.after(last, only_project)
                last = page.numbers[-1]
            if progress is not None and (missed := await to_thread.run_sync(self._read_progress, progress)):
                yield missed.encode(only_project)
            while loop.time() < end:
                match await listener.queue.get():
                    case None:
                        return
                    case bytes() as comment:
                        yield comment
                    case _ProgressPage() as fresh:
                        if messages := fresh.encode(only_project):
                            yield messages
                    case page:
                        if messages := page.after(last, only_project):
                            yield messages
                        last = max(last, page.numbers[-1])
        except OrchError:  # the store is away: the client comes back with its last event
            return
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End all streams; their clients come back to the next server."""
        for listener in self._listeners:
            _drop(listener)

    @property
    def _is_polling(self) -> bool:
        return self._poller is not None and not self._poller.done()

    def _start(self, head: int, fresh: Sequence[int]) -> None:
        if not self._is_polling:
            self._seen, self._newest = head, max(fresh, default=0)
            self._sent.extend(fresh)
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        try:
            await self._poll_while_listened()
        finally:  # whatever ended it: a client that comes back misses nothing, and one that waits here would
            for listener in self._listeners:
                _drop(listener)

    async def _poll_while_listened(self) -> None:
        loop = asyncio.get_running_loop()
        alive = loop.time() + ALIVE_SECONDS
        while self._listeners:
            await asyncio.sleep(POLL_SECONDS)
            if loop.time() >= alive:  # one timer for all: one a listener costs a tenth of each event
                alive = loop.time() + ALIVE_SECONDS
                self._send(b": alive\n\n")
            try:
                if (fresh := await to_thread.run_sync(self._read_new_progress)) is not None:
                    self._send(fresh)
                page = await to_thread.run_sync(self._read_page, self._seen, self._list_projects())
                while page and (missing := page.list_missing(self._list_projects())):  # who came meanwhile
                    await to_thread.run_sync(self._add_shown, page, missing)
            except OrchError:  # the store is away: the next poll tries again, and nothing is lost
                continue
            if page is None:
                continue
            self._seen = page.numbers[-1]
            self._send(page)

    def _send(self, what: _Sent) -> None:
        """Hand events or a comment to all listeners. One whose queue is full reads too slowly, and is closed."""
        for listener in list(self._listeners):
            try:
                listener.queue.put_nowait(what)
            except asyncio.QueueFull:
                self._listeners.discard(listener)
                _drop(listener)

    def _read_head(self) -> tuple[int, list[int]]:
        """Return the number of the newest event, and those of the newest progress."""
        with self.site.open_reader() as store:
            fresh = store.progress_after(store.newest_progress() - _OVERTAKEN, _PAGE)
            return store.head().seq, [row.number for row in fresh]

    def _read_new_progress(self) -> _ProgressPage | None:
        """Return the progress that was not sent yet; None for none. A lower number may come after a higher one."""
        with self.site.open_reader() as store:
            rows = store.progress_after(self._newest - _OVERTAKEN, _PAGE)
        rows = tuple(row for row in rows if row.number > self._newest or row.number not in self._sent)
        self._sent.extend(row.number for row in rows)
        self._newest = max([self._newest, *(row.number for row in rows)])
        return _ProgressPage.of(rows) if rows else None

    def _read_progress(self, after: int) -> _ProgressPage | None:
        with self.site.open_reader() as store:
            rows = store.progress_after(after, _PAGE)
        return _ProgressPage.of(rows) if rows else None

    def _list_projects(self) -> tuple[str, ...]:
        """Return the projects that listeners are limited to."""
        return tuple(one.only_project for one in self._listeners)

    def _read_page(self, after: int, projects: Sequence[str]) -> _Page | None:
        """Return the events past a number, with what some projects may see of them; None where there are none."""
        with self.site.open_reader() as store:
            events = store.events_after(after, _PAGE)
        if not events:
            return None
        page = _Page.of(events)
        self._add_shown(page, page.list_missing(projects))
        return page

    def _add_shown(self, page: _Page, projects: Sequence[str]) -> None:
        for project in projects:
            with self.site.open_reader(only_project=project) as store:
                page.shown[project] = frozenset(one.seq for one in store.events_after(page.numbers[0] - 1, _PAGE))


def _drop(listener: _Listener) -> None:
    """Empty the queue of a listener and end its stream."""
    while not listener.queue.empty():
        listener.queue.get_nowait()
    listener.queue.put_nowait(None)


def format_message(event: EventRecord) -> str:
    """Return one event as a message of the stream: its number, and what a page needs to know of it."""
    data = json.dumps({"seq": event.seq, "cluster": event.cluster, "kind": event.kind, "what": event.what})
    return f"id: {event.seq}\ndata: {data}\n\n"


def format_progress(row: ProgressRecord) -> str:
    """Return one thing that an engine did as a message of the stream."""
    head = {"number": row.number, "cluster": row.cluster, "kind": "progress", "what": ""}
    return f"event: progress\ndata: {json.dumps({**head, 'progress': json.loads(row.document)})}\n\n"
