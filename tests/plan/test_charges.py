"""What slices cost: sums are exact wherever the time is cut, a bill replaces the estimate of its part and time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.attached import AttachedPrices, find_attached_prices
from orchestrator.plan.charges import (
    BILL,
    BILLED_PARTS,
    MACHINES,
    PARTS,
    BilledAmount,
    Charge,
    is_free,
    list_charges,
    to_milliseconds,
)
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.slices import Candidate, CapacityBlock, Market, OnDemand, Owned, Spot

HOUR = 3600.0
DAY0 = 1_700_006_400.0
PRICES = AttachedPrices(disks=13_699, addresses=5_000, minimum_seconds=60)


def rent(
    hours: float | None = 10.0, *, price: float | None = 3.6, market: Market | None = None, hosts: int = 2
) -> Intent:
    candidate = Candidate(
        provider="aws", accelerator="c7i.large", hosts=hosts, chips_per_host=0, market=market or OnDemand(),
        price_per_hour=price,
    )  # fmt: skip
    until = None if hours is None else DAY0 + hours * HOUR
    state = IntentState.ACCEPTED if hours is None else IntentState.DELETED
    return Intent(
        generation=1, name="a-1", candidate=candidate, state=state, since=DAY0, billed_from=DAY0, billed_until=until
    )


def sum_parts(charges: tuple[Charge, ...], begin: float = 0, end: float = 2 * DAY0) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in charges:
        cost = one.measure_cost(to_milliseconds(begin), to_milliseconds(end))
        found[one.part] = found.get(one.part, 0) + cost
    return found


def count_hours(charges: tuple[Charge, ...], source: str = "") -> float:
    return sum((one.end - one.begin) * one.hosts / 3.6e6 for one in charges if source in ("", one.source))


def test_machines_disks_and_addresses_cost_their_hours() -> None:
    found = list_charges(rent(), DAY0 + 20 * HOUR, attached=PRICES)
    assert sum_parts(found) == {"machines": 36_000_000, "disks": 136_990, "addresses": 50_000}
    assert {one.source for one in found} == {"list"} and count_hours(found) == 20


@pytest.mark.parametrize("rate", [0, 1])
def test_what_costs_nothing_is_no_charge_and_a_millionth_of_a_dollar_is_one(rate: int) -> None:
    prices = AttachedPrices(disks=rate, addresses=5_000, minimum_seconds=60)
    found = list_charges(rent(), DAY0 + 20 * HOUR, attached=prices)
    assert [one.microdollars for one in found if one.part == "disks"] == [rate] * rate


def test_machines_are_free_at_no_price_and_where_they_are_owned() -> None:
    assert is_free(rent(price=0.0)) and is_free(rent(market=Owned()))
    assert not is_free(rent(price=1.0)) and not is_free(rent(price=None))


def test_stopped_machines_cost_their_disks_alone() -> None:
    off = ((DAY0 + 2 * HOUR, DAY0 + 7 * HOUR),)
    found = list_charges(rent(), DAY0 + 20 * HOUR, stopped=off, attached=PRICES)
    assert sum_parts(found) == {"machines": 18_000_000, "disks": 136_990, "addresses": 25_000}
    assert sum_parts(found, DAY0 + 3 * HOUR, DAY0 + 4 * HOUR)["machines"] == 0


def test_addresses_that_a_stop_keeps_cost_their_hours() -> None:
    off = ((DAY0 + 2 * HOUR, DAY0 + 7 * HOUR),)
    kept = replace(PRICES, keeps_addresses=True)
    found = list_charges(rent(), DAY0 + 20 * HOUR, stopped=off, attached=kept)
    assert sum_parts(found) == {"machines": 18_000_000, "disks": 136_990, "addresses": 50_000}
    bill = BilledAmount(part="addresses", begin=DAY0, until=DAY0 + 4 * HOUR, microdollars=40_000)
    found = list_charges(rent(), DAY0 + 20 * HOUR, stopped=off, attached=kept, billed=[bill])
    assert sum_parts(found, DAY0 + 3 * HOUR, DAY0 + 4 * HOUR)["addresses"] == 10_000


def test_what_is_not_known_is_in_no_sum() -> None:
    unknown = AttachedPrices(disks=None, addresses=None, minimum_seconds=0)
    found = list_charges(rent(price=None), DAY0 + 20 * HOUR, attached=unknown)
    assert sum_parts(found) == {"machines": 0, "disks": 0, "addresses": 0}
    assert all(one.microdollars is None for one in found) and count_hours(found) == 20


@pytest.mark.parametrize(("seconds", "missing"), [(10, 50), (59, 1), (60, 0), (600, 0)])
def test_a_short_life_costs_the_minimum(seconds: float, missing: int) -> None:
    found = list_charges(rent(seconds / HOUR), DAY0 + 20 * HOUR, attached=PRICES)
    assert sum_parts(found).get("minimum", 0) == missing * 1000  # $3.60/h is 1,000 micro-dollars a second
    assert list_charges(rent(None), DAY0 + 10, attached=PRICES)[0].measure_cost(0, 10**14) == 10_000


def test_machines_of_a_block_are_paid_already() -> None:
    block = rent(price=None, market=CapacityBlock("cr-1"))
    paid = list_charges(block, DAY0 + 20 * HOUR, is_prepaid=True)
    assert [(one.source, one.microdollars) for one in paid] == [("prepaid", 0)]
    assert list_charges(block, DAY0 + 20 * HOUR)[0].microdollars is None
    assert list_charges(rent(market=Spot()), DAY0 + HOUR)[0].source == "spot"


def test_a_bill_replaces_the_estimate_of_its_part_and_time() -> None:
    bill = BilledAmount(part=MACHINES, begin=DAY0 - HOUR, until=DAY0 + 4 * HOUR, microdollars=12_000_001)
    found = list_charges(rent(), DAY0 + 20 * HOUR, attached=PRICES, billed=[bill])
    assert sum_parts(found) == {"machines": 12_000_001 + 6 * 3_600_000, "disks": 136_990, "addresses": 50_000}
    assert sum_parts(found, DAY0, DAY0 + 4 * HOUR)["machines"] == 12_000_001, "it is spread over the time they existed"
    assert sum_parts(found, DAY0, DAY0 + HOUR)["machines"] == 3_000_000
    assert count_hours(found) == 20 and count_hours(found, BILL) == 8


def test_a_bill_of_a_time_without_machines_is_paid_then() -> None:
    late = BilledAmount(part="taxes", begin=DAY0 + 30 * HOUR, until=DAY0 + 30 * HOUR, microdollars=5)
    credit = BilledAmount(part="credits", begin=DAY0, until=DAY0 + HOUR, microdollars=-36_000_000)
    found = list_charges(rent(), DAY0 + 40 * HOUR, billed=[late, credit])
    assert sum_parts(found) == {"machines": 36_000_000, "taxes": 5, "credits": -36_000_000}


def test_the_minimum_of_a_billed_start_is_on_the_bill() -> None:
    bill = BilledAmount(part=MACHINES, begin=DAY0, until=DAY0 + HOUR, microdollars=60_000)
    found = list_charges(rent(10 / HOUR), DAY0 + 20 * HOUR, attached=PRICES, billed=[bill])
    assert sum_parts(found).get("minimum", 0) == 0 and sum_parts(found)["machines"] == 60_000


_moment = st.floats(0, 30, allow_nan=False).map(lambda hours: DAY0 + hours * HOUR)
_span = st.tuples(_moment, _moment).map(lambda pair: (min(pair), max(pair)))
_bill = st.builds(
    lambda part, span, amount: BilledAmount(part=part, begin=span[0], until=span[1], microdollars=amount),
    st.sampled_from(BILLED_PARTS), _span, st.integers(-(10**9), 10**10),
)  # fmt: skip


@given(
    life=_span,
    price=st.one_of(st.none(), st.floats(0.001, 900)),
    stopped=st.lists(_span, max_size=2),
    billed=st.lists(_bill, max_size=4),
    cuts=st.lists(_moment, max_size=6),
)
def test_the_parts_of_a_time_add_up_to_the_whole(
    life: tuple[float, float],
    price: float | None,
    stopped: list[tuple[float, float]],
    billed: list[BilledAmount],
    cuts: list[float],
) -> None:
    intent = replace(rent(price=price), billed_from=life[0], billed_until=life[1])
    charges = list_charges(intent, DAY0 + 25 * HOUR, stopped=stopped, attached=PRICES, billed=billed)
    whole = sum_parts(charges)
    edges = [0.0, *sorted(cuts), 2 * DAY0]
    pieces = [sum_parts(charges, first, last) for first, last in pairwise(edges)]
    assert {part: sum(one[part] for one in pieces) for part in whole} == whole
    assert set(whole) <= set(PARTS)
    assert sum(sum_parts(tuple(one for one in charges if one.source == BILL)).values()) == sum(
        one.microdollars for one in billed
    ), "nothing of a bill is lost or counted twice"
    lasted = sum(last - first for first, last in _running(life, stopped)) * 2 / HOUR
    assert count_hours(charges) == pytest.approx(lasted, abs=1e-4)


def _running(life: tuple[float, float], stopped: list[tuple[float, float]]) -> list[tuple[float, float]]:
    times = [(life[0], min(life[1], DAY0 + 25 * HOUR))]
    for begin, end in stopped:
        times = [part for one in times for part in ((one[0], min(one[1], begin)), (max(one[0], end), one[1]))]
        times = [one for one in times if one[1] > one[0]]
    return [one for one in times if one[1] > one[0]]


def test_drivers_know_what_their_machines_have_attached() -> None:
    def find(**values: object) -> AttachedPrices:
        return find_attached_prices(replace(rent().candidate, **values))

    ours = find(region="us-east-1", zone="us-east-1a", hosts=1)
    assert ours == AttachedPrices(disks=round(50 * 0.08 * 1e6 / 730), addresses=5_000, minimum_seconds=60)
    fast = find(accelerator="p5.48xlarge", chips_per_host=8, region="us-east-1", zone="us-east-1a", hosts=1)
    assert fast.disks == round((200 * 0.08 + 3000 * 0.005 + 375 * 0.04) * 1e6 / 730)
    both = find(accelerator="p5.48xlarge", chips_per_host=8, region="us-east-1", zone="us-east-1a", hosts=2)
    assert (both.addresses, both.keeps_addresses) == (10_000, True), "Elastic IPs, since they have several interfaces"
    assert find(region="eu-west-1", zone="eu-west-1a").disks is None, "a price of another region is not taken"
    plain = find(provider="gcp", accelerator="n2-standard-4", region="us-central1", zone="us-central1-a", market=Spot())
    assert (plain.disks, plain.addresses) == (round(2 * 100 * 0.1 * 1e6 / 730), 5_000)
    node = find(provider="gcp", accelerator="v5e-8", chips_per_host=8, hosts=1, region="us-west4", zone="us-west4-a")
    assert node == AttachedPrices(disks=None, addresses=None, minimum_seconds=0)
    assert find(provider="aws", accelerator="no such type").disks is None
