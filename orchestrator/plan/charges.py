"""What slices cost: amounts for times, estimated from the prices on record, and corrected by bills. Pure.

Money is whole micro-dollars and time whole milliseconds. What a charge costs between two moments is the difference of
two sums from its begin on. So the parts of a time add up to the whole of it, wherever it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator.catalog.attached import AttachedPrices
from orchestrator.plan.observed import Intent
from orchestrator.slices import CapacityBlock, Owned, Spot

MACHINES = "machines"
MINIMUM = "minimum"  # what is charged of a minimum time that machines did not exist
DISKS = "disks"
ADDRESSES = "addresses"
BLOCKS = "blocks"  # capacity that was bought beforehand: the whole price at the purchase
# What a bill may have: the parts of an estimate, and what is never estimated.
BILLED_PARTS = (MACHINES, DISKS, ADDRESSES, "network", "other", "credits", "taxes", "fees")
PARTS = (MACHINES, MINIMUM, DISKS, ADDRESSES, BLOCKS, *BILLED_PARTS[3:])
LIST, SPOT, PREPAID, BILL = SOURCES = ("list", "spot", "prepaid", "bill")
HOUR_MS = 3_600_000
Times: TypeAlias = tuple[tuple[int, int], ...]  # begins and ends in milliseconds, in order, without overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One part of what something costs, from `begin` to `end`, in milliseconds since 1970.

    Attributes:
        part: One of PARTS.
        source: One of SOURCES: where the amount is from.
        microdollars: The cost of each `per` milliseconds; None when it is not known.
        hosts: How many machines' hours it counts; 0 for what is no time of machines.
    """

    part: str
    source: str
    begin: int
    end: int
    microdollars: int | None
    per: int = HOUR_MS
    hosts: int = 0

    def measure_cost(self, begin: int, end: int) -> int:
        """Return the micro-dollars between two moments; 0 where the price is not known."""
        return self._sum_until(end) - self._sum_until(begin)

    def _sum_until(self, moment: int) -> int:
        passed = max(self.begin, min(moment, self.end)) - self.begin
        return (self.microdollars or 0) * passed // self.per


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledAmount:
    """What a bill says of one part of a slice, in a time.

    Attributes:
        part: One of BILLED_PARTS.
        begin: Epoch seconds; likewise `until`.
    """

    part: str
    begin: float
    until: float
    microdollars: int


def to_milliseconds(seconds: float) -> int:
    """Return epoch seconds as whole milliseconds."""
    return round(seconds * 1000)


def to_microdollars(dollars: float) -> int:
    """Return US dollars as whole micro-dollars."""
    return round(dollars * 1e6)


def charge_once(part: str, source: str, at: int, microdollars: int | None) -> Charge:
    """Return a charge that is paid at one moment."""
    return Charge(part=part, source=source, begin=at, end=at + 1, microdollars=microdollars, per=1)


def list_charges(
    intent: Intent,
    now: float,
    *,
    stopped: Sequence[tuple[float, float]] = (),
    attached: AttachedPrices | None = None,
    billed: Sequence[BilledAmount] = (),
    is_prepaid: bool = False,
) -> tuple[Charge, ...]:
    """Return what a slice costs until now.

    A bill replaces the estimate of its part for the time that it covers. Its amount is spread over the time in which
    the machines existed then, since bills have whole hours or days.

    Args:
        intent: The slice.
        now: Epoch seconds.
        stopped: When its machines were stopped, as pairs of epoch seconds.
        attached: Prices of its disks and addresses, and the minimum time; None for machines that have none to pay.
        billed: What bills say of it.
        is_prepaid: Whether its machines are of a block whose price is on record.
    """
    if intent.billed_from is None:
        return ()
    begin = to_milliseconds(intent.billed_from)
    end = to_milliseconds(now if intent.billed_until is None else min(intent.billed_until, now))
    whole: Times = ((begin, end),) if end > begin else ()
    off = tuple((to_milliseconds(first), to_milliseconds(last)) for first, last in stopped)
    running = subtract_times(whole, off)
    machines = tuple(_estimate_machines(intent, running, is_prepaid=is_prepaid))
    estimate = [*machines]
    addressed = whole if attached is not None and attached.keeps_addresses else running
    if attached is not None:
        estimate += _estimate_minimum(machines, attached.minimum_seconds, to_milliseconds(now))
        estimate += _estimate_attached(attached, whole, addressed)
    if not billed:
        return tuple(estimate)
    return (*_replace_billed(estimate, billed), *_list_billed(billed, running, {DISKS: whole, ADDRESSES: addressed}))


def _estimate_machines(intent: Intent, running: Times, *, is_prepaid: bool) -> Iterator[Charge]:
    candidate = intent.candidate
    price = candidate.price_per_hour
    rate = 0 if is_prepaid else None if price is None else to_microdollars(price)
    source = PREPAID if is_prepaid else SPOT if isinstance(candidate.market, Spot) else LIST
    for begin, end in running:
        yield Charge(part=MACHINES, source=source, begin=begin, end=end, microdollars=rate, hosts=candidate.hosts)


def _estimate_minimum(machines: Sequence[Charge], seconds: int, now: int) -> Iterator[Charge]:
    """Yield what is charged for machines that were ended, or stopped, before the minimum time."""
    for one in machines:
        missing = seconds * 1000 - (one.end - one.begin)
        if missing > 0 and one.end < now and one.microdollars:
            yield charge_once(MINIMUM, one.source, one.begin, one.microdollars * missing // HOUR_MS)


def _estimate_attached(prices: AttachedPrices, whole: Times, addressed: Times) -> Iterator[Charge]:
    """Yield disks, which are paid while the machines are stopped, too, and addresses while the machines have them."""
    for part, rate, times in ((DISKS, prices.disks, whole), (ADDRESSES, prices.addresses, addressed)):
        for begin, end in times if rate != 0 else ():
            yield Charge(part=part, source=LIST, begin=begin, end=end, microdollars=rate)


def _replace_billed(estimate: Iterable[Charge], billed: Sequence[BilledAmount]) -> Iterator[Charge]:
    """Yield the estimate where no bill says anything, and the hours of machines where one does."""
    covered = {part: _cover(billed, part) for part in (MACHINES, DISKS, ADDRESSES)}
    covered[MINIMUM] = covered[MACHINES]
    for one in estimate:
        there = ((one.begin, one.end),)
        for begin, end in subtract_times(there, covered[one.part]):
            yield replace(one, begin=begin, end=end)
        if one.hosts:
            for begin, end in intersect_times(there, covered[one.part]):
                yield replace(one, source=BILL, begin=begin, end=end, microdollars=0)


def _cover(billed: Iterable[BilledAmount], part: str) -> Times:
    return join_times((to_milliseconds(one.begin), to_milliseconds(one.until)) for one in billed if one.part == part)


def _list_billed(billed: Iterable[BilledAmount], running: Times, of_parts: Mapping[str, Times]) -> Iterator[Charge]:
    for one in billed:
        begin, end = to_milliseconds(one.begin), to_milliseconds(one.until)
        if begin == end and not one.microdollars:
            continue  # a line that a bill has no more
        existed = intersect_times(of_parts.get(one.part, running), ((begin, end),))
        times = existed or ((begin, max(end, begin + 1)),)
        length = sum(last - first for first, last in times)
        passed = shared = 0
        for first, last in times:
            passed += last - first
            amount = one.microdollars * passed // length - shared
            shared += amount
            yield Charge(part=one.part, source=BILL, begin=first, end=last, microdollars=amount, per=last - first)


def join_times(times: Iterable[tuple[int, int]]) -> Times:
    """Return the moments that are in any of some times."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(times):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return tuple(found)


def intersect_times(times: Times, others: Times) -> Times:
    """Return the moments that are in both."""
    pairs = ((max(one[0], other[0]), min(one[1], other[1])) for one in times for other in others)
    return tuple((begin, end) for begin, end in pairs if end > begin)


def subtract_times(times: Times, others: Iterable[tuple[int, int]]) -> Times:
    """Return the moments of `times` that are not in `others`."""
    left = times
    for begin, end in others:
        if end > begin:
            left = tuple(
                part
                for first, last in left
                for part in ((first, min(last, begin)), (max(first, end), last))
                if part[1] > part[0]
            )
    return left


def is_free(intent: Intent) -> bool:
    """Whether a slice is of people's own machines, or of a computer, for which nothing is paid."""
    return isinstance(intent.candidate.market, Owned) or intent.candidate.price_per_hour == 0


def find_block(intent: Intent) -> str:
    """Return the id of the block that a slice's machines are of; "" for other machines."""
    return intent.candidate.market.reservation_id if isinstance(intent.candidate.market, CapacityBlock) else ""
