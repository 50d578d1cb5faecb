"""Requests that are held until a job has more output: one poller for all of them, and no thread for any.

What is polled is the size of files of this computer, and now and then the store for jobs that ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from anyio import to_thread

from orchestrator.errors import OrchError
from orchestrator.service.event_stream import BusyStreamsError
from orchestrator.service.output_marks import OutputMark, measure_output, read_state
from orchestrator.service.site import Site

MOST_SECONDS = 20  # that a request is held
MOST_OF_MEMBER = 100  # requests that are held, of one
MOST_HELD = 1000
_POLL_SECONDS = 0.1
_STORE_POLLS = 5  # polls of files for one of the store


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    mark: OutputMark
    member: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(kw_only=True)
class OutputWaits:
    """The requests that are held. Used in the event loop alone."""

    site: Site
    _held: set[_Held] = field(default_factory=set[_Held])
    _poller: asyncio.Task[None] | None = None
    _closed: bool = False

    async def wait(self, mark: OutputMark, seconds: float, member: str) -> bool:
        """Return whether something is another than it was, within some seconds.

        Raises:
            BusyStreamsError: Too many requests are held, of the member or of all.
        """
        if self._closed:
            return False
        if len(self._held) >= MOST_HELD or sum(one.member == member for one in self._held) >= MOST_OF_MEMBER:
            raise BusyStreamsError("too much output is followed", "", "end other commands that follow output")
        held = _Held(mark=mark, member=member)
        self._held.add(held)
        try:
            if self._poller is None or self._poller.done():
                self._poller = asyncio.create_task(self._poll())
            async with asyncio.timeout(seconds):
                await held.changed.wait()
        except TimeoutError:
            return False
        finally:
            self._held.discard(held)
        return not self._closed

    def close(self) -> None:
        """Answer all requests; their clients come back to the next server."""
        self._closed = True
        self._wake(self._held)

    async def _poll(self) -> None:
        polls = 0
        try:
            while self._held:
                await asyncio.sleep(_POLL_SECONDS)
                polls += 1
                held = list(self._held)
                changed = await to_thread.run_sync(self._find_larger, {one.mark for one in held})
                if polls % _STORE_POLLS == 0:
                    try:
                        changed |= await to_thread.run_sync(self._find_other_states, {one.mark for one in held})
                    except OrchError:  # the store is away: the next request reports that
                        changed |= {one.mark for one in held}
                self._wake(one for one in held if one.mark in changed)
        finally:  # whatever ended it: who waits here asks again
            self._wake(self._held)

    @staticmethod
    def _wake(held: Iterable[_Held]) -> None:
        for one in held:
            one.changed.set()

    def _find_larger(self, marks: set[OutputMark]) -> set[OutputMark]:
        sizes = {job: measure_output(job, self.site.copies) for job in {mark.job for mark in marks}}
        return {mark for mark in marks if sizes[mark.job] != mark.sizes}

    def _find_other_states(self, marks: set[OutputMark]) -> set[OutputMark]:
        numbers: dict[str, list[int]] = {}
        for uid, number in {mark.job for mark in marks}:
            numbers.setdefault(uid, []).append(number)
        with self.site.open_reader() as store:
            records = store.clusters_by_uid(list(numbers))
            jobs = {(uid, job.id): job for uid, record in records.items() for job in store.jobs(record)}
        return {mark for mark in marks if mark.job not in jobs or read_state(jobs[mark.job]) != mark.state}
