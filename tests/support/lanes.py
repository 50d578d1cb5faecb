"""How much one test run tries: the short lane takes a share in turn, the full lane takes everything.

ORCH_EVERY_POINT=1 selects the full lane. ORCH_DAY=N repeats the shares of another day: each run prints its number.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")

FULL = bool(os.environ.get("ORCH_EVERY_POINT"))
FILE_DAYS = 8  # a file runs at least once in so many days
TURN_DAYS = 2 * FILE_DAYS  # every slow test, and every file of a costly folder, runs at least once in so many days
COSTLY = frozenset({"cli"})  # folders whose tests start many whole commands: half of the short lane's time
# Folders whose files run every day: pure code, whose tests are many and cheap, and what holds the project together.
# The files of the others start processes and servers, and take turns.
EVERY_DAY = frozenset({"catalog", "first_contact", "infrastructure", "plan", "summaries", "task", "values"})
_OWN_TURNS = re.compile(r"mark\.(jax|xla)\b|mark\.rotating\(")  # files of a stack or of a group
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


def list_rotating_files(tests: Path) -> list[Path]:
    """Return the files that take turns, in order.

    Args:
        tests: The folder of all tests.
    """
    files = sorted(tests.glob("*/test_*.py"))
    return [
        file for file in files if file.parent.name not in EVERY_DAY and not _OWN_TURNS.search(file.read_text("utf-8"))
    ]


def days_of(file: Path) -> int:
    """Return within how many days a file has its turn."""
    return TURN_DAYS if file.parent.name in COSTLY else FILE_DAYS


def files_of_today(files: Sequence[Path], day: int | None = None) -> list[Path]:
    """Return the files that are tried today: every eighth or sixteenth, the next ones tomorrow."""
    number = today() if day is None else day
    return [
        file
        for days in (FILE_DAYS, TURN_DAYS)
        for file in [one for one in files if days_of(one) == days][number % days :: days]
    ]


def in_turn_of_file(file: Path, items: Sequence[_T]) -> list[_T]:
    """Return what is tried today of the slow and rotating tests of a file that takes turns: half of them each time."""
    return list(items) if days_of(file) == TURN_DAYS else list(items[today() // FILE_DAYS % 2 :: 2])


def one_of_group(files: Sequence[_T]) -> list[_T]:
    """Return the file of a group that is tried today."""
    return share_of(files, 1)


def quarter_of_stack(items: Sequence[_T]) -> list[_T]:
    """Return what is tried today of the rotating tests of one file of a stack.

    A turn has as many days as the stack has between its runs: other shares would never have theirs.
    """
    return share_of(items, -(-len(items) // 4), today() // STACK_DAYS)
