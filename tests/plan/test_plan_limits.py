"""Limits of time and money: what counts, from when, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_samples import candidate, sample_run

from orchestrator.plan import limits
from orchestrator.plan.desired import Limits, Run
from orchestrator.plan.observed import Intent, IntentState, Observed
from orchestrator.slices import SliceState

NOW = 1_000_000.0
HOUR = 3600.0
SS = SliceState


def slice_(generation: int, started: float | None, ended: float | None = None, price: float | None = 10.0) -> Intent:
    """One slice. started, ended: hours before now; price: dollars an hour."""
    state = IntentState.ACCEPTED if ended is None else IntentState.DELETED
    intent = Intent(
        generation=generation,
        name=f"demo-{generation}",
        candidate=candidate(price_per_hour=price),
        state=state,
        since=NOW,
    )
    begin, end = (None if hours is None else NOW - hours * HOUR for hours in (started, ended))
    return replace(intent, billed_from=begin, billed_until=end)


def seen(*intents: Intent, state: SliceState = SS.READY) -> Observed:
    return Observed(now=NOW, intents=intents, slice_state=state)


def limited(hours: float | None = None, dollars: float | None = None) -> Run:
    return replace(sample_run(), limits=Limits(hours, dollars))


def test_hours_count_from_the_first_machine_and_continue_without_one() -> None:
    assert limits.hours_up(seen()) == 0.0
    assert limits.hours_up(seen(slice_(1, None))) == 0.0
    assert limits.hours_up(seen(slice_(1, 5, 4), slice_(2, 1))) == pytest.approx(5.0)


def test_dollars_count_each_slice_for_its_own_life() -> None:
    assert limits.dollars_spent(seen()) == 0.0
    assert limits.dollars_spent(seen(slice_(1, 5, 4), slice_(2, 2, price=3.0))) == pytest.approx(10.0 + 6.0)


def test_an_unknown_price_makes_the_sum_unknown_and_never_zero() -> None:
    assert limits.dollars_spent(seen(slice_(1, 5, 4), slice_(2, 1, price=None))) is None
    assert limits.find_reached_limit(limited(dollars=0.01), seen(slice_(1, 5, price=None))) is None
    refused = slice_(2, None, price=None)
    assert limits.dollars_spent(seen(slice_(1, 5, 4), refused)) == pytest.approx(10.0), "it was never there"


@given(st.floats(0, 100), st.floats(0.01, 100))
def test_the_limit_of_hours_is_reached_exactly_then(up: float, limit: float) -> None:
    observed = seen(slice_(1, up))
    assert (limits.find_reached_limit(limited(hours=limit), observed) is not None) == (
        limits.hours_up(observed) >= limit
    )


@given(st.floats(0, 100), st.floats(0.01, 100), st.floats(0.01, 50))
def test_the_limit_of_dollars_is_reached_exactly_then(up: float, limit: float, price: float) -> None:
    observed = seen(slice_(1, up, price=price))
    spent = limits.dollars_spent(observed)
    assert spent is not None
    assert (limits.find_reached_limit(limited(dollars=limit), observed) is not None) == (spent >= limit)


def test_the_message_names_the_limit_and_the_spent_sum() -> None:
    assert limits.find_reached_limit(limited(hours=2), seen(slice_(1, 2))) == "limit of 2 hours reached"
    message = limits.find_reached_limit(limited(dollars=1500), seen(slice_(1, 200)))
    assert message == "limit of $1,500.00 reached ($2,000.00 spent)"


def test_without_a_limit_nothing_is_ever_reached() -> None:
    assert limits.find_reached_limit(limited(), seen(slice_(1, 1e6))) is None
    assert limits.next_limit_at(limited(), seen(slice_(1, 1))) is None
    assert limits.find_timer_end(limited(), seen(slice_(1, 1e6))) is None


@given(st.floats(0, 9), st.floats(0.5, 20))
def test_the_next_limit_is_the_nearer_one(up: float, price: float) -> None:
    run, observed = limited(hours=10, dollars=100), seen(slice_(1, up, price=price))
    when = limits.next_limit_at(run, observed)
    assert when is not None
    if limits.find_reached_limit(run, observed) is None:
        assert limits.find_reached_limit(run, replace(observed, now=when + 1.0)) is not None
        assert limits.find_reached_limit(run, replace(observed, now=when - 1.0)) is None


@pytest.mark.parametrize("state", [SS.ABSENT, SS.PREEMPTED, SS.FAILED, SS.STOPPING, SS.STOPPED])
def test_machines_that_end_just_before_the_limit_were_ended_by_their_timer(state: SliceState) -> None:
    near, far = slice_(1, 2 - 119 / HOUR), slice_(1, 2 - 121 / HOUR)
    assert limits.find_timer_end(limited(hours=2), seen(near, state=state)) is not None
    assert limits.find_timer_end(limited(hours=2), seen(far, state=state)) is None


@pytest.mark.parametrize("state", [SS.READY, SS.CREATING, SS.STARTING, SS.UNCLEAR])
def test_machines_that_may_exist_were_not_ended_by_a_timer(state: SliceState) -> None:
    assert limits.find_timer_end(limited(hours=2), seen(slice_(1, 1.999), state=state)) is None


def test_a_short_limit_leaves_room_for_a_first_machine() -> None:
    assert limits.find_timer_end(limited(hours=0.01), seen()) is None
    assert limits.find_timer_end(limited(hours=0.01), seen(slice_(1, 0.008, 0.001))) is None
    assert limits.find_timer_end(limited(hours=0.01), seen(slice_(1, 0.0095, 0.001))) is not None
