"""The table of offers, and the lines below it: the same in `orch offers`, `orch init` and the page `/new`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.formatting import format_amount_range, format_size
from orchestrator.messages import join_words
from orchestrator.offers.estimates import Estimate
from orchestrator.offers.offers import Offer, OfferRequest
from orchestrator.offers.other_costs import PARTS

SPEED_FROM = "SPEED FROM"
_UNITS = (("d", 86_400, 2), ("h", 3600, 2), ("min", 60, 0))  # the size of each, and from how many on it is used
_WORDS = {
    "disks": "boot disks",
    "addresses": "public addresses",
    "storage": "checkpoints in the bucket",
    "writes": "writing checkpoints",
    "reads": "reading from the bucket",
}


def list_titles(request: OfferRequest) -> tuple[str, ...]:
    """Return the titles of the cells of an offer."""
    return (
        "MACHINES",
        "CHIPS",
        "MARKET",
        "$/H",
        "TIME",
        "COST",
        SPEED_FROM,
        *([] if request.seconds is None else ["IN TIME"]),
    )


def list_cells(offer: Offer, request: OfferRequest) -> tuple[str, ...]:
    """Return an offer as cells of a table."""
    chance = offer.chance_in_time(request)
    return (
        offer.name,
        f"{offer.chips} {offer.machine.chip}",
        str(offer.market),
        format_amount_range(*offer.price_per_hour, 2),
        format_times(offer.seconds),
        format_dollar_range(offer.dollars),
        _name_origin(offer),
        *([] if chance is None else [f"{100 * chance:.0f} %"]),
    )


def _name_origin(offer: Offer) -> str:
    return (offer.speed_origin or "").replace("-", " ")


def format_times(found: Estimate) -> str:
    """Return a range of seconds in one unit."""
    unit, size = next((unit, size) for unit, size, least in _UNITS if found.high >= least * size)
    low, high = found.low / size, found.high / size
    return f"{low:,.1f} to {high:,.1f} {unit}" if low < 10 else f"{low:,.0f} to {high:,.0f} {unit}"


def format_dollar_range(found: Estimate) -> str:
    """Return a range of US dollars, with cents where it is small."""
    return format_amount_range(found.low, found.high, 2 if found.high < 100 else 0)


def describe_prices(shown: Sequence[Offer]) -> Iterator[str]:
    """Yield which offers have the wait for capacity in their time, and which prices have to be checked."""
    waits = [number for number, one in enumerate(shown, 1) if one.capacity is not None and one.capacity.estimate_wait()]
    seen = "list prices and spot prices that were seen"
    if not waits:
        yield f"{seen}; waiting for capacity is not in the time"
    elif len(waits) == len(shown):
        yield f"{seen}; waiting for capacity is in the time, by our records"
    else:
        yield f"{seen}; waiting for capacity is in the time of {', '.join(map(str, waits))} alone, by our records"
    yield from (
        f"check the price of {number}: {one.price_doubt}" for number, one in enumerate(shown, 1) if one.price_doubt
    )


def describe_speeds(shown: Sequence[Offer]) -> Iterator[str]:
    """Yield each source of speeds with its kind, which a narrow table leaves out, and the offers that have it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for number, one in enumerate(shown, 1):
        groups.setdefault((_name_origin(one), one.speed_source), []).append(str(number))
    for (origin, source), numbers in groups.items():
        yield f"speed of {', '.join(numbers)}{f', {origin}' if origin else ''}: {source}"


def describe_costs(shown: Sequence[Offer], bucket: str) -> Iterator[str]:
    """Yield what is stored and read, what the cost has, and of which offers a part is not known.

    Args:
        shown: In the order of the table.
        bucket: Its location, "" for the region of the machines.
    """
    sizes = shown[0].other.sizes
    if sizes.data_bytes is not None:
        yield f"data: about {format_size(sizes.data_bytes)} of tokens, as the trainer keeps them"
    if sizes.checkpoint_bytes is not None:
        yield f"a checkpoint: about {format_size(sizes.checkpoint_bytes)}; the bucket keeps {sizes.kept}"
    where = f"in {bucket}" if bucket else "in the machines' region, where reading is free"
    yield f"the cost has the machines, their boot disks and public addresses, and a bucket {where}"
    missing = {
        part: [str(number) for number, one in enumerate(shown, 1) if dict(one.parts).get(part) is None]
        for part in PARTS
    }
    groups: dict[str, list[str]] = {}
    for part, numbers in missing.items():
        if numbers:
            which = "all" if len(numbers) == len(shown) else ", ".join(numbers)
            groups.setdefault(which, []).append(_WORDS[part])
    for which, parts in groups.items():
        yield f"price not known, and so not in the cost of {which}: {join_words(parts)}"
