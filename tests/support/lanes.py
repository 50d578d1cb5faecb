"""The amounts that a test run tries. The same commit has the same tests on every day.

ORCH_LANE is set by scripts/test: `core`, `changed` (every folder that watches a change) or `full`
(everything at every point). Without it, all tests that are named run, with the amounts of the core.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")

LANE = os.environ.get("ORCH_LANE", "")
FULL = LANE == "full"
CHANGED_PATHS = frozenset(os.environ.get("ORCH_CHANGED_PATHS", "").split("\n"))  # relative to the checkout
# Folders that the core runs whole, but for slow tests: pure code, whose tests are many and cheap, and what holds the
# project together. Of the others it runs what is marked `core` and one test of each promise.
CORE_FOLDERS = frozenset({"catalog", "first_contact", "infrastructure", "plan", "documents", "task", "values"})
CHANGED_SHARE = 3  # times as many of a share as the core takes
TESTS = Path(__file__).parent.parent
_STACK = re.compile(r"mark\.(jax|xla)\b")
_CORE = re.compile(r"mark\.core\b")
_PROMISE = re.compile(r"^## (P\d+): .*?^- `([^`]+)`$", re.M | re.S)


def spread(cases: Iterable[Any]) -> list[Any]:
    """Return parameters that different workers may take: the other tests of a file stay together on one."""
    apart = pytest.mark.xdist_group("apart")
    return [pytest.param(case, id=getattr(case, "name", str(case)), marks=apart) for case in cases]


def by_lane(short: _T, full: _T) -> _T:
    """Return what applies to the lane of this run."""
    return full if FULL else short


def share_of(items: Sequence[_T], count: int, turn: int = 0) -> list[_T]:
    """Return all items in the full lane, else a fixed share that is spread evenly over them, in order.

    Args:
        items: Of which the share is taken. A larger share contains a smaller one.
        count: How many the core takes; `--changed` takes `CHANGED_SHARE` times as many.
        turn: Tests with different numbers take different items.
    """
    taken = count * CHANGED_SHARE if LANE == "changed" else count
    if FULL or taken >= len(items):
        return list(items)
    chosen = {(place + turn) % len(items) for place in evenly_spread(len(items))[:taken]}
    return [item for number, item in enumerate(items) if number in chosen]


def evenly_spread(count: int) -> list[int]:
    """Return the numbers below `count` in an order of which every beginning is spread evenly (van der Corput)."""
    bits = max(count - 1, 0).bit_length()
    reversed_bits = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits)] if bits else [0]
    return list(dict.fromkeys(number * count // 2**bits for number in reversed_bits))


@cache
def list_representatives(page: Path = TESTS.parent / "docs" / "promises.md") -> dict[str, str]:
    """Return, for each promise, the test that the page names first, as "folder/file.py::name"."""
    return dict(_PROMISE.findall(page.read_text("utf-8")))


def has_core_tests(file: Path) -> bool:
    """Return whether the core runs tests of a file; the files of others are not imported."""
    text = file.read_text("utf-8")
    if _STACK.search(text):
        return False
    name = f"{file.parent.name}/{file.name}"
    of_promise = any(test.partition("::")[0] == name for test in list_representatives().values())
    return file.parent.name in CORE_FOLDERS or of_promise or bool(_CORE.search(text))


def is_core(item: pytest.Item) -> bool:
    """Return whether the core runs a test."""
    if any(item.get_closest_marker(name) for name in ("full", "jax", "xla")):
        return False
    path, _, name = item.nodeid.partition("[")[0].partition("::")
    of_promise = f"{item.path.parent.name}/{Path(path).name}::{name}" in list_representatives().values()
    whole = item.path.parent.name in CORE_FOLDERS and not item.get_closest_marker("slow")
    return of_promise or whole or item.get_closest_marker("core") is not None


def is_changed(file: Path) -> bool:
    """Return whether a file of tests is itself among what `--changed` is about."""
    return f"tests/{file.parent.name}/{file.name}" in CHANGED_PATHS
