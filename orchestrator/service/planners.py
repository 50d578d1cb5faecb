"""The threads that compute: few at a time, one for each member, and each for some seconds of a processor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, Lock, to_thread

from orchestrator.computing_limit import limit_computing
from orchestrator.errors import OrchError

PLANNERS = 2  # at a time: each takes a processor, for seconds
COMPUTING_SECONDS = 5.0  # of a processor for one request; a plan of some machines takes a tenth of a second
MOST_OF_MEMBER = 5  # requests that compute or wait
_Result = TypeVar("_Result")


class BusyPlannerError(OrchError):
    """A member has sent too many requests that compute."""

    code = "planner-busy"


@dataclass(kw_only=True)
class _Queue:
    """The requests of one member."""

    lock: Lock = field(default_factory=Lock)
    length: int = 0


@dataclass(kw_only=True)
class Planners:
    """The planners of a service; used in its event loop alone. A member's requests are computed one after the other."""

    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PLANNERS))
    _queues: dict[str, _Queue] = field(default_factory=dict[str, _Queue])

    async def run(self, member: str, function: Callable[[], _Result]) -> _Result:
        """Run a function in a planner, and return its result.

        Raises:
            BusyPlannerError: The member has too many requests that wait.
            ComputingLimitError: It computes for too long.
        """
        queue = self._queues.setdefault(member, _Queue())
        if queue.length >= MOST_OF_MEMBER:
            why = "they are computed one after the other"
            raise BusyPlannerError(f"{MOST_OF_MEMBER} of your plans are not ready yet", why, "wait for them")
        queue.length += 1
        try:
            async with queue.lock:
                return await to_thread.run_sync(_compute, function, limiter=self.limiter)
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[member]


@dataclass(kw_only=True)
class MemberShares:
    """How many of the threads for ordinary requests a member has at a time; used in the event loop alone.

    Who sends many requests waits for own ones, and others for a few of them.
    """

    most: int
    _limiters: WeakValueDictionary[str, CapacityLimiter] = field(
        default_factory=WeakValueDictionary[str, CapacityLimiter]
    )

    def of(self, member: str) -> CapacityLimiter:
        """Return the limiter of a member, which exists as long as a request has it."""
        limiter = self._limiters.get(member)
        if limiter is None:
            limiter = self._limiters[member] = CapacityLimiter(self.most)
        return limiter


def _compute(function: Callable[[], _Result]) -> _Result:
    with limit_computing(COMPUTING_SECONDS):
        return function()
