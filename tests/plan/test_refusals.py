"""Refusals that hold beyond their zone: which candidates are skipped, and which next step ends the search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import FACTS, candidate, sample_run
from state_table import intent, seen

from orchestrator.errors import RefusalScope, UserError
from orchestrator.exits import Exit
from orchestrator.plan.actions import Conclude, CreateSlice, EndSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide import decide
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.refusals import Refusal
from orchestrator.slices import Candidate, OnDemand, SliceState, Spot

ZONE_A = candidate(2, zone="us-west4-a", market=Spot())
ZONE_B = candidate(2, zone="us-west4-b", market=Spot())
ON_DEMAND = candidate(2, zone="us-west4-b", market=OnDemand())
OTHER_TYPE = candidate(2, zone="us-west4-b", market=Spot(), accelerator="v6e-8")
ELSEWHERE = candidate(2, region="us-east5", zone="us-east5-a", market=Spot())
ALL = (ZONE_A, ZONE_B, ON_DEMAND, OTHER_TYPE, ELSEWHERE)
STEP = "aws service-quotas request-service-quota-increase --quota-code L-417A185B"
RUN = replace(sample_run(2), candidates=ALL)


def refusal(place: Candidate, scope: RefusalScope, generation: int = 1, step: str = STEP) -> Intent:
    refused = Refusal(why="create m was refused by AWS: VcpuLimitExceeded: no vCPUs", next_step=step, scope=scope)
    return intent(IntentState.REFUSED, generation, candidate=place, cause=EndCause.REFUSED, why=str(refused))


def next_places(scope: RefusalScope) -> list[Candidate]:
    """Return the candidates that are tried after the first one is refused for a cause of this scope, in their order."""
    refused = [refusal(ZONE_A, scope)]
    while isinstance(step := decide(RUN, seen(*refused), FACTS), CreateSlice):
        refused.append(refusal(step.spec.candidate, RefusalScope.ZONE, step.generation))
    assert isinstance(step, Conclude)
    return [one.candidate for one in refused[1:]]


@pytest.mark.parametrize(
    ("scope", "tried"),
    [
        (RefusalScope.ZONE, [ZONE_B, ON_DEMAND, OTHER_TYPE, ELSEWHERE]),
        (RefusalScope.MARKET, [ON_DEMAND, OTHER_TYPE, ELSEWHERE]),
        (RefusalScope.REGION, [ELSEWHERE]),
        (RefusalScope.ACCOUNT, [OTHER_TYPE]),
    ],
)
def test_a_refusal_skips_the_candidates_that_it_covers(scope: RefusalScope, tried: list[Candidate]) -> None:
    assert next_places(scope) == tried


def test_the_last_error_says_the_cause_with_its_own_command() -> None:
    run = replace(RUN, candidates=(ZONE_A, ZONE_B))
    end = decide(run, seen(refusal(ZONE_A, RefusalScope.MARKET)), FACTS)
    assert isinstance(end, Conclude)
    assert str(end.next_step) == STEP
    assert end.why.endswith("VcpuLimitExceeded: no vCPUs (the same in all of us-west4)")
    assert "next:" not in end.why


def test_the_step_of_a_wide_refusal_is_not_hidden_by_that_of_a_zone() -> None:
    run = replace(RUN, candidates=(ELSEWHERE, ZONE_A, ZONE_B))
    tried = (refusal(ELSEWHERE, RefusalScope.ZONE, step="later"), refusal(ZONE_A, RefusalScope.REGION, 2))
    end = decide(run, seen(*tried), FACTS)
    assert isinstance(end, Conclude)
    assert str(end.next_step) == STEP


def test_unlike_steps_end_with_the_general_one() -> None:
    run = replace(RUN, candidates=(ZONE_A, ZONE_B))
    end = decide(run, seen(refusal(ZONE_A, RefusalScope.ZONE), refusal(ZONE_B, RefusalScope.ZONE, 2, "later")), FACTS)
    assert isinstance(end, Conclude)
    assert end.next_step.words == "try another zone or market, or the same command again later"


@pytest.mark.parametrize("scope", RefusalScope)
@pytest.mark.parametrize("step", ["", "first\n  second"])
@pytest.mark.parametrize("code", ["capacity", "usage", "permission", "refused"])
def test_a_record_keeps_cause_step_scope_and_code(scope: RefusalScope, step: str, code: str) -> None:
    kept = Refusal(why="no: a; b", next_step=step, scope=scope, code=code)
    assert Refusal.parse(str(kept)) == replace(kept, next_step=step.replace("\n  ", "; "))


@pytest.mark.parametrize(
    ("codes", "code", "status"),
    [
        (("permission", "permission"), "permission", Exit.PERMISSION),
        (("usage", "usage"), "usage", Exit.USAGE),
        (("refused", "refused"), "refused", Exit.CAPACITY),
        (("permission", "capacity"), "capacity", Exit.CAPACITY),
        (("permission", "usage"), "capacity", Exit.CAPACITY),
    ],
)
def test_only_a_launch_without_capacity_ends_with_that_status(codes: tuple[str, str], code: str, status: Exit) -> None:
    kept = [Refusal(why="create c-1 was refused", next_step=STEP, code=one) for one in codes]
    refused = [
        intent(IntentState.REFUSED, at + 1, candidate=place, cause=EndCause.REFUSED, why=str(kept[at]))
        for at, place in enumerate((ZONE_A, ZONE_B))
    ]
    end = decide(replace(RUN, candidates=(ZONE_A, ZONE_B)), seen(*refused), FACTS)
    assert isinstance(end, Conclude)
    assert (end.code, end.status) == (code, status)


def test_one_cause_of_several_places_is_said_once() -> None:
    places = (ZONE_A, ZONE_B, ELSEWHERE)
    refused = [refusal(place, RefusalScope.ZONE, at + 1) for at, place in enumerate(places)]
    named = [replace(one, why=one.why.replace("create m", f"create {one.name}")) for one in refused]
    end = decide(replace(RUN, candidates=places), seen(*named), FACTS)
    assert isinstance(end, Conclude)
    assert end.why == "in 3 places: create was refused by AWS: VcpuLimitExceeded: no vCPUs"


def test_a_wrong_request_is_not_sent_again_however_long_the_task_waits_for_capacity() -> None:
    run = replace(RUN, budgets=replace(RUN.budgets, capacity_wait_first=86400.0))
    error = UserError("create c-1 was refused by Google", "a target reservation must be specified", "name it")
    observed = replace(
        seen(intent(IntentState.ACCEPTED, candidate=ZONE_A)),
        slice_state=SliceState.FAILED,
        slice_refusal=str(Refusal.from_error(error)),
    )
    ended = decide(run, observed, FACTS)
    assert isinstance(ended, EndSlice)
    past = intent(IntentState.DELETED, candidate=ZONE_A, cause=ended.cause, why=ended.why)
    end = decide(run, seen(past), FACTS)
    assert isinstance(end, Conclude)
    assert (end.code, end.status, str(end.next_step)) == ("usage", Exit.USAGE, "name it")


def test_a_text_without_marks_is_a_cause_alone() -> None:
    assert Refusal.parse("no machines; the same in the whole universe") == Refusal(
        why="no machines; the same in the whole universe"
    )
