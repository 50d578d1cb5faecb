"""Reading prices from vendors: what is asked, and what readers share: a module `prices` of each driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

from orchestrator.catalog.refreshed import PriceRow, Refreshed, Unread
from orchestrator.drivers import Driver, has_part, list_clouds, load_part

AT_ONCE = 8  # requests under way
MOST_PAGES = 2_000  # of one list: more is a vendor that never ends
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRequest:
    """What is to be read.

    Attributes:
        regions: Only these; () for all.
        days: How far back spot prices are read.
        now: Epoch seconds.
        today: The ISO date that the prices get.
        account: The profile or project that asks; "" for the usual one.
    """

    now: float
    today: str
    regions: tuple[str, ...] = ()
    days: int = 7
    account: str = ""

    def wants(self, region: str) -> bool:
        """Return whether a region is to be read."""
        return not self.regions or region in self.regions


@dataclass(slots=True)
class Progress:
    """Counts what was read, for a person who waits; threads may share it.

    Attributes:
        show: Called with words, what is done, and how much there is.
    """

    show: Callable[[str, int, int], None]
    _done: dict[str, int] = field(default_factory=dict[str, int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, what: str, total: int) -> None:
        """Count one more of `total`."""
        with self._lock:
            self._done[what] = self._done.get(what, 0) + 1
            self.show(what, self._done[what], total)


@dataclass(slots=True)
class Readings:
    """What a reader has so far."""

    rows: list[PriceRow] = field(default_factory=list[PriceRow])
    offered: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unread: list[Unread] = field(default_factory=list[Unread])

    def add(self, other: Readings) -> None:
        """Take in another reader's part."""
        self.rows += other.rows
        self.unread += other.unread
        for name, zones in other.offered.items():
            self.offered.setdefault(name, []).extend(zones)

    def to_refreshed(self, provider: str, request: PriceRequest) -> Refreshed:
        """Return them as a file keeps them."""
        return Refreshed(
            provider=provider,
            read_at=request.now,
            rows=tuple(self.rows),
            offered={name: tuple(sorted(set(zones))) for name, zones in sorted(self.offered.items())},
            unread=tuple(self.unread),
        )


class PriceReader(Protocol):
    """What a driver's module `prices` has."""

    def read_prices(self, request: PriceRequest, progress: Progress) -> Refreshed:
        """Return what the vendor gives, with what it did not give.

        Raises:
            OrchError: It cannot be asked at all.
        """
        ...


def list_readers() -> tuple[Driver, ...]:
    """Return the clouds whose prices can be read."""
    return tuple(driver for driver in list_clouds() if has_part(driver.name, "prices"))


def load_reader(provider: str) -> PriceReader:
    """Return what reads the prices of a cloud."""
    return cast(PriceReader, load_part(provider, "prices"))


def map_at_once(work: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
    """Return the results in order, several at a time; the first exception is raised when all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


def summarise_history(changes: Sequence[tuple[float, float]], start: float, end: float) -> tuple[float, float, float]:
    """Return the lowest, the typical and the highest price between two times.

    Args:
        changes: (time, price), in any order; a price holds until the next one. Those before `start` count from then on.
        start: Epoch seconds.
        end: Epoch seconds.

    Returns:
        The typical price is that of the middle of the time by price: for half of the time it was at most so.
    """
    ordered = sorted(changes)
    first = max((index for index, (at, _) in enumerate(ordered) if at <= start), default=0)
    lasting: list[tuple[float, float]] = []
    for index in range(first, len(ordered)):
        at, price = ordered[index]
        until = ordered[index + 1][0] if index + 1 < len(ordered) else end
        lasting.append((price, max(0.0, min(until, end) - max(at, start))))
    lasting.sort()
    half, passed = sum(seconds for _, seconds in lasting) / 2, 0.0
    typical = lasting[-1][0]
    for price, seconds in lasting:
        passed += seconds
        if passed >= half:
            typical = price
            break
    return lasting[0][0], typical, lasting[-1][0]
