"""A limit of processor time for what one request computes. Loops over a request's content ask whether it is used up.

A thread cannot be ended from outside, so the code that computes ends itself: at each value, document, problem and
candidate, between which a bounded amount is computed.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from orchestrator.errors import OrchError


class ComputingLimitError(OrchError):
    """A request needs more processor time than it may use."""

    code = "too-much-computing"


@dataclass(frozen=True, slots=True)
class _Limit:
    seconds: float
    end: float  # of the thread's own clock


# Belongs to one request, as the acting member does (acting.py). Threads that a request starts have no limit.
_LIMIT: ContextVar[_Limit | None] = ContextVar("computing_limit", default=None)


@contextmanager
def limit_computing(seconds: float) -> Generator[None]:
    """Let this thread compute for so many seconds of a processor until the end of the block."""
    token = _LIMIT.set(_Limit(seconds, time.thread_time() + seconds))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check_computing() -> None:
    """Return while the limit of this request is not reached, or where there is none.

    Raises:
        ComputingLimitError: It is reached.
    """
    limit = _LIMIT.get()
    if limit is not None and time.thread_time() > limit.end:
        raise ComputingLimitError(
            f"this needs more than {limit.seconds:g} s of a processor, and was ended",
            "other members wait for it meanwhile",
            "name fewer machines, tasks or values in the task file",
        )
