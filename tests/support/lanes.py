"""How much one test run tries: the short lane takes a share in turn, the full lane takes everything.

ORCH_EVERY_POINT=1 selects the full lane. ORCH_DAY=N repeats the shares of another day: each run prints its number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")

FULL = bool(os.environ.get("ORCH_EVERY_POINT"))
TURN_DAYS = 8  # every slow test runs at least once in so many days
STACK_DAYS = 5  # the tests of a stack run at least once in so many days: scripts/due.py


def spread(cases: Iterable[Any]) -> list[Any]:
    """Return parameters that different workers may take: the other tests of a file stay together on one."""
    apart = pytest.mark.xdist_group("apart")
    return [pytest.param(case, id=getattr(case, "name", str(case)), marks=apart) for case in cases]


def today() -> int:
    """Return the number of days since 1970, or ORCH_DAY."""
    return int(os.environ.get("ORCH_DAY") or time.time() // 86_400)


def by_lane(short: _T, full: _T) -> _T:
    """Return what applies to the lane of this run."""
    return full if FULL else short


def share_of(items: Sequence[_T], count: int, day: int | None = None) -> list[_T]:
    """Return all items in the full lane, else `count` of them, in order.

    Consecutive days take consecutive shares, so that every item is taken within len(items) / count days.
    """
    if FULL or count >= len(items):
        return list(items)
    first = (today() if day is None else day) * count % len(items)
    chosen = {(first + offset) % len(items) for offset in range(count)}
    return [item for number, item in enumerate(items) if number in chosen]


def in_turn(items: Sequence[_T]) -> list[_T]:
    """Return what is tried today of all slow and rotating tests: every `TURN_DAYS`th, the next ones tomorrow.

    Neighbours fall on different days, so that each day takes as much time, and a little of every file.
    """
    return list(items) if FULL else list(items[today() % TURN_DAYS :: TURN_DAYS])


def one_of_group(files: Sequence[_T]) -> list[_T]:
    """Return the file of a group that is tried today."""
    return share_of(files, 1)


def quarter_of_stack(items: Sequence[_T]) -> list[_T]:
    """Return what is tried today of the rotating tests of one file of a stack.

    A turn has as many days as the stack has between its runs: other shares would never have theirs.
    """
    return share_of(items, -(-len(items) // 4), today() // STACK_DAYS)
