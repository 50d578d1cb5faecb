"""Budgets of money without a store: sums, what is not allowed and by which option it would be, the end of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import candidate

from orchestrator.plan.spending_budget import (
    Amount,
    SpendingBudget,
    Usage,
    describe_left,
    find_excess,
    find_month_begin,
    find_month_end,
    find_reached_limit,
)
from orchestrator.slices import OnDemand, Owned, Reservation

BUDGET = SpendingBudget(project="", member="")
SPENT = Usage(month=Amount(3.0), held=Amount(2.0), per_hour=Amount(4.0), run=Amount(1.0), run_held=Amount(0.5))


def option(
    budget: SpendingBudget, usage: Usage = SPENT, *, run: str | None = None, exists: bool = False, **of: object
) -> str:
    """Return the option by which a slice of 2 dollars an hour would be allowed; "" where it is."""
    found = find_excess(budget, usage, candidate(**({"price_per_hour": 2.0} | of)), run_id=run, exists=exists)
    return found.option if found else ""


def test_amounts_add_up_and_one_unknown_part_makes_the_sum_unknown() -> None:
    assert Amount(5.0, True, 2.0) + Amount(3.0, True, 1.0) == Amount(8.0, True, 3.0)
    assert not (Amount(5.0) + Amount(known=False)).known and not (Amount(known=False) + Amount(5.0)).known


@pytest.mark.parametrize(
    ("largest", "chips", "spec"), [(16, 4, ""), (15, 4, "--largest-slice 16"), (3, 0, "--largest-slice 4")]
)
def test_a_size_is_in_chips_or_in_hosts_without_chips(largest: int, chips: int, spec: str) -> None:
    assert option(replace(BUDGET, largest_slice=largest), chips_per_host=chips) == spec


def test_a_refused_size_names_its_unit() -> None:
    small = replace(BUDGET, largest_slice=1)
    for chips, size in (
        (4, "it has 16 chips, and the budget allows 1"),
        (0, "it has 4 hosts, and the budget allows 1"),
    ):
        found = find_excess(small, SPENT, candidate(chips_per_host=chips))
        assert found is not None and found.why == size


def test_a_market_is_allowed_where_it_is_named_or_none_is() -> None:
    assert option(replace(BUDGET, markets=("spot",))) == "" == option(BUDGET)
    assert option(replace(BUDGET, markets=("spot",)), market=OnDemand()) == "--markets spot,on-demand"
    assert option(replace(BUDGET, markets=("spot",)), market=Reservation("r")) == "--markets spot,reservation"


@pytest.mark.parametrize(("limit", "value", "spec"), [
    ("dollars_per_hour", 6.0, ""), ("dollars_per_hour", 5.9, "--per-hour N"),
    ("dollars_per_month", 7.0, ""), ("dollars_per_month", 6.9, "--per-month N"),
    ("dollars_per_run", 3.5, ""), ("dollars_per_run", 3.4, "--per-run N"),
])  # fmt: skip
def test_what_is_used_and_the_first_hour_fit_together_or_not(limit: str, value: float, spec: str) -> None:
    budget = replace(BUDGET, **{limit: value})
    assert option(budget, run="r") == spec
    assert option(budget) == ("" if limit == "dollars_per_run" else spec), "no run, no limit of one"
    assert option(budget, run="r", exists=True) == ("" if limit == "dollars_per_hour" else spec), "counted already"


def test_machines_that_cost_nothing_are_in_no_budget() -> None:
    nothing = replace(BUDGET, dollars_per_hour=0.0, largest_slice=0, markets=("on-demand",))
    assert option(nothing, price_per_hour=0.0) == "" == option(nothing, market=Owned())
    assert option(nothing, price_per_hour=1.0) != ""


def test_an_unknown_price_is_refused_where_money_is_limited_and_nothing_else_is_set() -> None:
    limited = replace(BUDGET, dollars_per_month=100.0)
    allowed = replace(limited, unknown_prices="allow")
    unknown = replace(SPENT, held=Amount(known=False))
    assert option(limited, price_per_hour=None) == "--unknown-prices allow" == option(limited, unknown)
    assert option(allowed, price_per_hour=None) == "" == option(allowed, unknown)
    assert option(BUDGET, price_per_hour=None) == "" == option(replace(BUDGET, dollars_per_hour=100.0), unknown)
    assert option(replace(allowed, dollars_per_month=5.0), price_per_hour=None) == "--per-month N", "nothing is left"


def test_a_month_is_one_of_the_calendar_in_utc() -> None:
    december = 1_766_361_600.0  # 2025-12-22
    assert find_month_begin(december) == 1_764_547_200.0 and find_month_end(december) == 1_767_225_600.0
    assert find_month_begin(find_month_end(december)) == find_month_end(december)
    assert find_month_end(find_month_end(december)) - find_month_end(december) == 31 * 86400


def test_what_is_left_counts_what_is_held_and_is_never_negative() -> None:
    assert describe_left(replace(BUDGET, dollars_per_month=8.0), SPENT) == "budget: $3.00 of $8.00 left this month"
    assert describe_left(replace(BUDGET, dollars_per_month=4.0, member="ann"), SPENT).startswith(
        "budget of member 'ann': $0"
    )
    assert "not known" in describe_left(
        replace(BUDGET, dollars_per_month=8.0), replace(SPENT, month=Amount(known=False))
    )
    assert describe_left(BUDGET, SPENT) == ""


def test_a_run_ends_at_what_is_spent_and_not_at_what_is_held() -> None:
    ends = replace(BUDGET, at_limit="stop")
    assert "$3.00 of $3.00 this month" in find_reached_limit([replace(ends, dollars_per_month=3.0)], [SPENT])
    assert "for a run" in find_reached_limit([BUDGET, replace(ends, dollars_per_run=1.0)], [SPENT, SPENT])
    assert find_reached_limit([replace(ends, dollars_per_month=3.1, dollars_per_run=1.1)], [SPENT]) == ""
    assert find_reached_limit([replace(BUDGET, dollars_per_month=3.0)], [SPENT]) == ""
