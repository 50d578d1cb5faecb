"""Prices and places that `orch catalog refresh` read from the vendors: one dated file for each cloud.

The file goes before the shipped tables, for the rows that it has. One that is broken, or newer than this orch, is
passed over, and its problem is kept for a note.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, cast

from orchestrator.errors import OrchError
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole

VERSION = 1
MARKETS = ("on-demand", "spot", "block", "flex-start")
LARGEST = 16 * 1024 * 1024  # bytes of a file
STALE_DAYS = 30
DAY = 86_400.0
_MOST_ROWS = 200_000
_HIGHEST = 100_000.0  # dollars an hour: more is no price of a machine
_LOWEST = 1e-4  # the same: less is none
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_PLACE = re.compile(r"(?:[a-z0-9][a-z0-9-]{0,63})?")
_NUMBERS = frozenset({int, float})
_DATE = re.compile(r"20\d\d-\d\d-\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """US dollars an hour of one machine, or of one chip of a TPU generation, in one place and market.

    Attributes:
        name: An instance type, or `tpu-` and a generation (name_for_prices).
        market: One of MARKETS.
        zone: "" for the whole region.
        typical: The median over the time that was read; as low and high where there is only one price.
        source: The interface that gave it.
        as_of: ISO date on which it was read.
    """

    name: str
    market: str
    region: str
    zone: str = ""
    low: float
    typical: float
    high: float
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class Unread:
    """What a vendor did not give.

    Attributes:
        what: In words.
        why: The vendor's own words.
        markets, regions: Of the prices that are missing; none of a kind for all. Both empty for places alone.
    """

    what: str
    why: str
    markets: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    def covers(self, row: PriceRow) -> bool:
        """Return whether a price belongs to what was not read."""
        named = bool(self.markets or self.regions)
        return named and row.market in (self.markets or MARKETS) and row.region in (self.regions or (row.region,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What one vendor gave.

    Attributes:
        read_at: Epoch seconds.
        offered: Zones that sell a machine, by its name.
    """

    provider: str
    read_at: float
    rows: tuple[PriceRow, ...]
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    unread: tuple[Unread, ...] = ()

    @property
    def newest(self) -> str:
        """Return the newest date of a price; "" without prices."""
        return max((row.as_of for row in self.rows), default="")

    @property
    def oldest(self) -> str:
        """Return the oldest date of a price; "" without prices."""
        return min((row.as_of for row in self.rows), default="")


Cells: TypeAlias = Sequence[Any]  # zone, lowest, typical, highest, number of the source, date
Prices: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Sequence[Cells]]]]  # by name, market and region


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file as far as it can be used. Its prices stay as they were read, because a command needs few of them.

    Attributes:
        provider: "" without a file that can be used.
        problem: Why it cannot; "" where there is none.
        oldest: The oldest date of a price; "" without prices.
    """

    provider: str = ""
    problem: str = ""
    read_at: float = 0.0
    oldest: str = ""
    sources: tuple[str, ...] = ()
    prices: Prices = field(default_factory=dict[str, Any])
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    unread: tuple[Unread, ...] = ()

    @property
    def refreshed(self) -> Refreshed | None:
        """Return all of it; None without a file that can be used."""
        if not self.provider:
            return None
        rows = tuple(
            row
            for name, markets in self.prices.items()
            for market, regions in markets.items()
            for region in regions
            for row in self.list_rows(name, market, region)
        )
        return Refreshed(
            provider=self.provider, read_at=self.read_at, rows=rows, offered=self.offered, unread=self.unread
        )

    def list_regions(self, name: str, market: str) -> Iterable[str]:
        """Return the regions with a price of a machine."""
        return self.prices.get(name, {}).get(market, {})

    def find_typical(self, name: str, market: str, region: str) -> float:
        """Return the typical price in a region that has one: the middle one of its zones."""
        typical = sorted(float(cells[2]) for cells in self.prices[name][market][region])
        half = len(typical) // 2
        return typical[half] if len(typical) % 2 else (typical[half - 1] + typical[half]) / 2

    def find_range(self, name: str, market: str, region: str) -> tuple[float, float]:
        """Return the lowest and the highest price in a region that has one."""
        found = self.prices[name][market][region]
        return min(cells[1] for cells in found), max(cells[3] for cells in found)

    def list_rows(self, name: str, market: str, region: str) -> tuple[PriceRow, ...]:
        """Return the prices of a machine in one place and market."""
        found: Sequence[Cells] = self.prices.get(name, {}).get(market, {}).get(region, ())
        return tuple(
            PriceRow(
                name=name,
                market=market,
                region=region,
                zone=zone,
                low=low,
                typical=typical,
                high=high,
                source=self.sources[int(source)],
                as_of=as_of,
            )
            for zone, low, typical, high, source, as_of in found
        )


def refreshed_path(provider: str) -> Path:
    """Return the file of a cloud."""
    return _find_path(provider, *(os.environ.get(name, "") for name in ("ORCH_HOME", "HOME", "XDG_STATE_HOME")))


def load_refreshed(provider: str) -> Loaded:
    """Return what is known of a cloud; a changed file is read again."""
    path = refreshed_path(provider)
    try:
        found = path.stat()
    except OSError:
        return Loaded()
    if not stat.S_ISREG(found.st_mode):  # to open a pipe waits for who writes into it
        return Loaded(problem="it cannot be read: it is not a regular file")
    return _load(provider, path, found.st_mtime_ns, found.st_size)


def list_offered_zones(provider: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the zones that sell a machine; none where that was not read."""
    offered = load_refreshed(provider).offered
    return tuple(dict.fromkeys(zone for name in names for zone in offered.get(name, ())))


def merge_refreshed(new: Refreshed, old: Refreshed | None, regions: Sequence[str] = ()) -> Refreshed:
    """Return what was read now, with the older prices of what was not read; they keep their dates.

    Args:
        new: What was read now.
        old: What is in the file.
        regions: That were to be read; () for all.
    """
    if old is None:
        return new
    others = [row for row in old.rows if regions and row.region not in regions]
    kept = others + [row for row in old.rows if any(one.covers(row) for one in new.unread)]
    have = {(row.name, row.market, row.region, row.zone) for row in new.rows}
    older = dict.fromkeys(row for row in kept if (row.name, row.market, row.region, row.zone) not in have)
    rows = (*new.rows, *older)
    offered = dict(new.offered)
    if new.unread or regions:
        for name, zones in old.offered.items():
            offered[name] = tuple(sorted({*zones, *new.offered.get(name, ())}))
    return Refreshed(provider=new.provider, read_at=new.read_at, rows=rows, offered=offered, unread=new.unread)


def write_refreshed(refreshed: Refreshed) -> Path:
    """Write the file of a cloud by rename, for its owner alone.

    Raises:
        OrchError: It cannot be written, or holds what would not be read again.
    """
    path = refreshed_path(refreshed.provider)
    text = encode_prices(refreshed)
    try:
        decode_prices(refreshed.provider, text, max(refreshed.read_at, time.time()))
    except ValueError as error:
        raise OrchError("the prices that were read make no sense", str(error), "orch accelerators") from error
    try:
        make_private_folder(path.parent)
        write_whole(path, text)
    except OSError as error:
        raise OrchError("the prices that were read cannot be kept", str(error), f"see {path.parent}") from error
    return path


def describe_problems(providers: Iterable[str], now: float) -> tuple[str, ...]:
    """Return a note for each file that is not used, or old."""
    notes: list[str] = []
    for provider in providers:
        loaded = load_refreshed(provider)
        again = f"orch catalog refresh {provider}"
        if loaded.problem:
            notes.append(
                f"{refreshed_path(provider)} is not used: {loaded.problem}; prices are orch's own tables: {again}"
            )
        elif loaded.provider and (days := _count_days(loaded, now)) > STALE_DAYS:
            notes.append(f"the oldest prices of {provider} were read {days} days ago; to read them again: {again}")
    return tuple(notes)


def _count_days(loaded: Loaded, now: float) -> int:
    """Return the age of the oldest price, as a refresh of one region keeps those of others; else that of the file."""
    read_on = date.fromisoformat(loaded.oldest) if loaded.oldest else _to_date(loaded.read_at)
    return (_to_date(now) - read_on).days


def _to_date(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


@lru_cache(maxsize=8)
def _find_path(provider: str, *where: str) -> Path:
    del where  # part of the key alone: a thousand prices are asked in one command
    return load_paths().state / "prices" / f"{provider}.json"


@lru_cache(maxsize=8)
def _load(provider: str, path: Path, changed: int, size: int) -> Loaded:
    del changed  # part of the key alone
    if size > LARGEST:
        return Loaded(problem=f"it has {size:,} bytes, more than {LARGEST:,}")
    try:
        return decode_prices(provider, path.read_text(encoding="utf-8"), time.time())
    except OSError as error:
        return Loaded(problem=f"it cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Loaded(problem=str(error) or "it is too deep")


def encode_prices(refreshed: Refreshed) -> str:
    """Return the text of a file."""
    sources = list(dict.fromkeys(row.source for row in refreshed.rows))
    numbers = {source: number for number, source in enumerate(sources)}
    prices: dict[str, dict[str, dict[str, list[Cells]]]] = {}
    for row in refreshed.rows:
        place = prices.setdefault(row.name, {}).setdefault(row.market, {}).setdefault(row.region, [])
        place.append([row.zone, row.low, row.typical, row.high, numbers[row.source], row.as_of])
    value = {
        "version": VERSION,
        "kind": "prices",
        "provider": refreshed.provider,
        "read_at": refreshed.read_at,
        "sources": sources,
        "offered": {name: list(zones) for name, zones in refreshed.offered.items()},
        "unread": [[one.what, one.why, list(one.markets), list(one.regions)] for one in refreshed.unread],
        "prices": prices,
    }
    return json.dumps(value, separators=(",", ":"))


def decode_prices(provider: str, text: str, now: float) -> Loaded:
    """Return what a file holds.

    Raises:
        ValueError: It is not such a file; the message says where.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(value, dict) or cast(dict[str, Any], value).get("kind") != "prices":
        raise ValueError("it has no prices")
    document = cast(dict[str, Any], value)
    version, read_at = document.get("version"), cast(Any, document.get("read_at"))
    if version != VERSION:
        raise ValueError(f"it has version {str(version)[:20]}, and this orch reads {VERSION}")
    if document.get("provider") != provider:
        raise ValueError("it has the prices of another cloud")
    if type(read_at) not in _NUMBERS or not 0 < read_at <= now + DAY:  # also true for what is not a number
        raise ValueError("its date is missing, or in the future")
    try:
        sources = _texts(document["sources"])
        oldest = _check_prices(document["prices"], len(sources), now)
        return Loaded(
            provider=provider,
            read_at=float(read_at),
            oldest=oldest,
            sources=sources,
            prices=document["prices"],
            offered={_name(name): _texts(zones) for name, zones in document["offered"].items()},
            unread=tuple(
                Unread(str(what), str(why), _texts(markets), _texts(regions))
                for what, why, markets, regions in document["unread"]
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a part of it is missing or of another kind ({error})") from error


def _check_prices(prices: Prices, sources: int, now: float) -> str:
    """Return the oldest date of a price; "" without prices.

    Raises:
        ValueError: A price is wrong; the message has the first one.
    """
    count, dates = 0, dict[str, bool]()
    latest = _to_date(now + DAY)
    for name, markets in prices.items():
        _name(name)
        for market, regions in markets.items():
            for region, rows in regions.items():
                right = market in MARKETS and bool(region and _PLACE.fullmatch(region) and rows)
                for cells in rows if right else ((),):
                    if not right or not _is_right(cells, sources, dates, latest):
                        raise ValueError(
                            f"its price of {name}, {market[:20]}, {region[:64]!r} is wrong: {str(cells)[:90]}"
                        )
                count += len(rows)
    if count > _MOST_ROWS:
        raise ValueError(f"it has {count:,} prices, more than {_MOST_ROWS:,}")
    return min(dates, default="")


def _is_right(cells: Cells, sources: int, dates: dict[str, bool], latest: date) -> bool:
    """Return whether a price has the right form.

    Args:
        cells: The price.
        sources: How many sources there are.
        dates: Those that were checked, which are few.
        latest: The last date that one can have.
    """
    try:
        zone, low, typical, high, source, as_of = cells
        if as_of not in dates:
            dates[as_of] = _DATE.fullmatch(as_of) is not None and date.fromisoformat(as_of) <= latest
        return (
            {type(low), type(typical), type(high)} <= _NUMBERS
            and _LOWEST <= low <= typical <= high <= _HIGHEST  # also false for what is not a number
            and type(source) is int
            and 0 <= source < sources
            and dates[as_of]
            and (zone == "" or _PLACE.fullmatch(zone) is not None)
        )
    except (TypeError, ValueError):
        return False


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"`{value[:60]}` is the name of no machine")
    return value


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in cast(list[object], values)):
        raise ValueError("a list of words is missing in it")
    return tuple(cast(list[str], values))
