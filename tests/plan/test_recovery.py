"""The arithmetic of recovery: budgets, pauses, the order of places, what counts as hung again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_samples import candidate, sample_run

from orchestrator.plan import recovery
from orchestrator.plan.causes import LOSSES, EndCause
from orchestrator.plan.desired import Budgets, Strategy
from orchestrator.plan.observed import EndedAttempt, Intent, IntentState, Observed, encode_evidence
from orchestrator.slices import Candidate, OnDemand
from orchestrator.values import Text

NOW = 1_000_000.0
A1 = candidate(region="a", zone="a-1")
A2 = candidate(region="a", zone="a-2")
B1 = candidate(region="b", zone="b-1")
OTHER = candidate(provider="bare", region="a", zone="a-1")
A1_DEAR, B1_DEAR = (replace(one, market=OnDemand()) for one in (A1, B1))
RUN = replace(sample_run(), budgets=Budgets(preemptions=5, failures=2), run_id=Text.of("run-1"))


def ended(attempt: int, cause: EndCause = EndCause.PREEMPTED, *, at: float = NOW, **more: object) -> EndedAttempt:
    return replace(EndedAttempt(attempt=attempt, cause=cause, why="why", generation=None, at=at), **more)  # type: ignore[arg-type]  # field values by name


def after(*past: EndedAttempt, intents: tuple[Intent, ...] = (), **more: object) -> Observed:
    base = Observed(now=NOW, intents=intents, ended=past, attempt=len(past) + 1)
    return replace(base, **more)  # type: ignore[arg-type]  # as above


def intent(generation: int, where: Candidate, cause: EndCause | None, since: float = NOW) -> Intent:
    state = IntentState.REFUSED if cause is EndCause.REFUSED else IntentState.DELETED
    return Intent(
        generation=generation,
        name=f"demo-{generation}",
        candidate=where,
        state=state,
        since=since,
        cause=cause,
        why="no",
    )


def order(strategy: Strategy, *places: Candidate, lost: Candidate) -> list[Candidate]:
    run = replace(RUN, candidates=places, budgets=Budgets(strategy=strategy))
    observed = after(intents=(intent(1, lost, EndCause.PREEMPTED),))
    return list(recovery.order_candidates(run, observed))


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", EndCause)
def test_every_cause_has_the_budget_of_its_kind_or_none(cause: EndCause) -> None:
    expected = 5 if cause in LOSSES else 2 if cause is EndCause.PROGRAM else 0
    assert recovery.restart_budget(cause, RUN.budgets) == expected


@given(st.lists(st.sampled_from([*LOSSES, EndCause.PROGRAM]), max_size=8))
def test_losses_and_failures_never_spend_the_budget_of_the_other(causes: list[EndCause]) -> None:
    past = [ended(index + 1, cause, at=NOW + 10_000.0 * index) for index, cause in enumerate(causes)]
    observed = after(*past)
    failures = causes.count(EndCause.PROGRAM)
    assert recovery.count_restarts(EndCause.PROGRAM, observed) == failures
    assert {recovery.count_restarts(cause, observed) for cause in LOSSES} == {len(causes) - failures}


BUCKET = Budgets(failures=1, storage=3)


def storage_end(attempt: int, step: int | None) -> EndedAttempt:
    evidence = "" if step is None else f'{{"step": {step}}}'
    return ended(attempt, EndCause.PROGRAM, exit_code=10, evidence=evidence)


@pytest.mark.parametrize(
    ("steps", "allowed"),
    [
        ([None, None], True),
        ([None, None, None], False),
        ([100, 100, 100], False),
        ([100, 90, 80], False),
        ([100, 200, 300, 400], True),  # each attempt got further: outages far apart
        ([100, 200, 200, 200], False),
    ],
)
def test_a_failing_bucket_has_a_budget_that_progress_renews(steps: list[int | None], allowed: bool) -> None:
    observed = after(*(storage_end(index + 1, step) for index, step in enumerate(steps)))
    may = recovery.may_restart(EndCause.PROGRAM, observed, BUCKET, by_loss=False, exit_code=10)
    assert may is (allowed or BUCKET.failures > 0)
    none = replace(BUCKET, failures=0)
    assert recovery.may_restart(EndCause.PROGRAM, observed, none, by_loss=False, exit_code=10) is allowed


def test_a_failing_bucket_spends_no_failure_of_the_program() -> None:
    past = [storage_end(number, 10 * number) for number in (1, 2, 3)]
    observed = after(*past)
    assert recovery.may_restart(EndCause.PROGRAM, observed, BUCKET, by_loss=False, exit_code=1)
    failed = after(*past, ended(4, EndCause.PROGRAM, exit_code=1))
    assert not recovery.may_restart(EndCause.PROGRAM, failed, BUCKET, by_loss=False, exit_code=1)
    assert recovery.may_restart(EndCause.PROGRAM, failed, BUCKET, by_loss=False, exit_code=10)


def test_status_10_of_a_users_own_program_is_a_failure_like_any_other() -> None:
    own = Budgets(failures=0)
    assert not recovery.may_restart(EndCause.PROGRAM, after(), own, by_loss=False, exit_code=10)


def test_the_verdict_on_the_present_attempt_is_not_spent_yet() -> None:
    assert recovery.count_restarts(EndCause.HUNG, after(ended(1, EndCause.HUNG), attempt=1)) == 0
    assert recovery.count_restarts(EndCause.HUNG, after(ended(1, EndCause.HUNG), attempt=2)) == 1


def test_a_preemption_that_the_program_announced_is_charged_once() -> None:
    announced, seen = ended(1, at=NOW), ended(2, at=NOW + 90, generation=1)
    assert recovery.count_restarts(EndCause.PREEMPTED, after(announced, seen)) == 1
    later = replace(seen, at=NOW + recovery.SHORT_ATTEMPT)
    assert recovery.count_restarts(EndCause.PREEMPTED, after(announced, later)) == 2, (
        "after useful work it is another one"
    )
    assert (
        recovery.count_restarts(
            EndCause.PREEMPTED, after(replace(announced, generation=1), replace(seen, generation=2))
        )
        == 2
    )
    hung = replace(announced, cause=EndCause.HUNG)
    assert recovery.count_restarts(EndCause.PREEMPTED, after(hung, seen)) == 2, "a hang does not announce a preemption"


# --- pauses -----------------------------------------------------------------------------------------------------------


def pauses(count: int, budgets: Budgets, run_id: str = "run") -> list[float]:
    """The pause before each attempt, when every attempt before it was short."""
    run = replace(RUN, budgets=budgets, run_id=Text.of(run_id))
    found: list[float] = []
    for attempt in range(1, count + 1):
        past = [ended(index, at=NOW + index) for index in range(1, attempt)]
        until = recovery.pause_until(run, after(*past))
        found.append(until - past[-1].at if until else 0.0)
    return found


def test_the_first_attempt_and_the_first_restart_start_immediately() -> None:
    assert pauses(2, RUN.budgets) == [0.0, 0.0]


@given(st.floats(0.1, 100.0), st.floats(0.1, 1000.0), st.integers(3, 50), st.text(max_size=8))
def test_every_pause_is_within_its_cap_and_its_jitter(base: float, cap: float, count: int, run_id: str) -> None:
    for number, pause in enumerate(pauses(count, Budgets(backoff_base=base, backoff_cap=cap), run_id)[2:]):
        middle = min(cap, base * 2.0**number)
        assert middle * (1 - recovery.JITTER) - 1e-6 <= pause <= middle * (1 + recovery.JITTER) + 1e-6


def test_pauses_double_until_the_cap() -> None:
    found = pauses(9, Budgets(backoff_base=10.0, backoff_cap=100.0))[2:]
    for pause, middle in zip(found, (10, 20, 40, 80, 100, 100, 100), strict=True):
        assert abs(pause - middle) <= middle * recovery.JITTER


def test_a_thousand_short_attempts_do_not_overflow() -> None:
    assert pauses(1100, Budgets(backoff_cap=60.0))[-1] <= 75.0


def test_a_long_attempt_resets_the_pauses() -> None:
    short = [ended(1, at=NOW), ended(2, at=NOW + 1), ended(3, at=NOW + 2)]
    assert recovery.pause_until(RUN, after(*short)) > NOW + 2
    long = ended(4, at=NOW + 2 + recovery.SHORT_ATTEMPT)
    assert recovery.pause_until(RUN, after(*short, long)) == 0.0
    assert recovery.pause_until(RUN, after(*short, replace(long, at=long.at - 0.1))) > NOW


def test_a_pause_is_the_same_at_every_observation_and_differs_between_runs() -> None:
    many = {pauses(3, RUN.budgets, f"run-{number}")[2] for number in range(50)}
    assert len(many) > 40
    assert pauses(3, RUN.budgets, "x") == pauses(3, RUN.budgets, "x")


def test_a_place_that_refused_more_often_is_retried_later() -> None:
    first, second = intent(1, A1, EndCause.REFUSED), intent(2, A1, EndCause.REFUSED)
    once, twice = recovery.retry_at(RUN, [first]) - NOW, recovery.retry_at(RUN, [first, second]) - NOW
    assert 5 * 0.75 <= once <= 5 * 1.25
    assert 10 * 0.75 <= twice <= 10 * 1.25


# --- places -----------------------------------------------------------------------------------------------------------


def test_before_any_loss_the_order_is_the_users() -> None:
    run = replace(RUN, candidates=(B1, A2, A1))
    assert recovery.order_candidates(run, after(intents=(intent(1, B1, EndCause.REFUSED),))) == (B1, A2, A1)


def test_failover_tries_the_same_place_then_the_region_then_elsewhere() -> None:
    assert order(Strategy.FAILOVER, B1, OTHER, A2, A1, lost=A1) == [A1, A2, B1, OTHER]


def test_eager_next_region_tries_elsewhere_first_and_the_same_place_last() -> None:
    assert order(Strategy.EAGER_NEXT_REGION, A1, A2, B1, OTHER, lost=A1) == [B1, OTHER, A2, A1]


@pytest.mark.parametrize("strategy", Strategy)
def test_places_of_equal_distance_keep_the_users_order(strategy: Strategy) -> None:
    far = [candidate(region=name) for name in "zyx"]
    assert [one for one in order(strategy, *far, A1, lost=A1) if one in far] == far


@pytest.mark.parametrize("strategy", Strategy)
def test_on_demand_as_a_fallback_comes_after_every_spot_place(strategy: Strategy) -> None:
    found = order(strategy, A1, B1, A1_DEAR, B1_DEAR, lost=A1)
    assert set(found[:2]) == {A1, B1}
    assert set(found[2:]) == {A1_DEAR, B1_DEAR}


def test_on_demand_that_the_user_put_among_the_places_is_a_place_like_others() -> None:
    alone = replace(candidate(region="c"), market=OnDemand())
    assert order(Strategy.EAGER_NEXT_REGION, A1, alone, B1, lost=A1) == [alone, B1, A1]


@given(st.permutations([A1, A2, B1, OTHER, A1_DEAR]), st.sampled_from(list(Strategy)), st.sampled_from([A1, B1]))
def test_no_place_is_lost_or_doubled(places: list[Candidate], strategy: Strategy, lost: Candidate) -> None:
    assert sorted(map(repr, order(strategy, *places, lost=lost))) == sorted(map(repr, places))


def test_the_last_loss_decides_the_order() -> None:
    run = replace(RUN, candidates=(A1, B1), budgets=Budgets(strategy=Strategy.FAILOVER))
    losses = (intent(1, A1, EndCause.PREEMPTED), intent(2, B1, EndCause.UNREACHABLE))
    assert recovery.order_candidates(run, after(intents=losses)) == (B1, A1)


def test_refusals_are_gathered_by_place_with_each_time() -> None:
    first, second = intent(2, A1, EndCause.REFUSED), intent(4, A1, EndCause.REFUSED)
    broken, old = intent(3, B1, EndCause.BROKEN), intent(1, A2, EndCause.REFUSED)
    observed = after(intents=(old, first, broken, second), generation_at_open=1)
    assert recovery.list_refusals(observed) == {A1: [first, second], B1: [broken]}


@pytest.mark.parametrize("cause", [EndCause.PREEMPTED, EndCause.HOST_DIED, EndCause.UNREACHABLE])
def test_refusals_are_forgotten_after_a_loss(cause: EndCause) -> None:
    observed = after(intents=(intent(1, A1, EndCause.REFUSED), intent(2, B1, cause)))
    assert recovery.list_refusals(observed) == {}


def test_refusals_stay_when_a_slice_was_ended_on_purpose() -> None:
    observed = after(intents=(intent(1, A1, EndCause.REFUSED), intent(2, B1, EndCause.REQUESTED)))
    assert list(recovery.list_refusals(observed)) == [A1]


# --- hung again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [(100, 100, True), (100, 99, True), (100, 101, False), (100, None, True), (None, 100, False), (0, 0, True)],
)
def test_hung_twice_without_getting_further_is_the_programs_fault(
    before: int | None, now: int | None, again: bool
) -> None:
    past = ended(1, EndCause.HUNG, evidence=encode_evidence(before))
    assert recovery.hung_without_progress(after(past), now) is again


def test_a_hang_after_another_end_is_a_first_hang() -> None:
    assert not recovery.hung_without_progress(after(), 5)
    assert not recovery.hung_without_progress(after(ended(1, EndCause.PREEMPTED, evidence=encode_evidence(5))), 5)
    hung = ended(1, EndCause.HUNG, evidence=encode_evidence(5))
    assert not recovery.hung_without_progress(after(hung, ended(2, EndCause.PREEMPTED, evidence=encode_evidence(5))), 5)
    assert not recovery.hung_without_progress(after(hung, attempt=1), 5), "its own verdict is not the attempt before"
