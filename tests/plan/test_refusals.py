"""Refusals that hold beyond their zone: which candidates are skipped, and which next step ends the search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import FACTS, candidate, sample_run
from state_table import intent, seen

from orchestrator.errors import RefusalScope
from orchestrator.plan.actions import Conclude, CreateSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide import decide
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.refusals import Refusal
from orchestrator.slices import Candidate, OnDemand, Spot

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
    assert end.next_step == STEP
    assert end.why.endswith("VcpuLimitExceeded: no vCPUs (the same in all of us-west4)")
    assert "next:" not in end.why


def test_the_step_of_a_wide_refusal_is_not_hidden_by_that_of_a_zone() -> None:
    run = replace(RUN, candidates=(ELSEWHERE, ZONE_A, ZONE_B))
    tried = (refusal(ELSEWHERE, RefusalScope.ZONE, step="later"), refusal(ZONE_A, RefusalScope.REGION, 2))
    end = decide(run, seen(*tried), FACTS)
    assert isinstance(end, Conclude)
    assert end.next_step == STEP


def test_unlike_steps_end_with_the_general_one() -> None:
    run = replace(RUN, candidates=(ZONE_A, ZONE_B))
    end = decide(run, seen(refusal(ZONE_A, RefusalScope.ZONE), refusal(ZONE_B, RefusalScope.ZONE, 2, "later")), FACTS)
    assert isinstance(end, Conclude)
    assert end.next_step == "try another zone or market, or the same command again later"


@pytest.mark.parametrize("scope", RefusalScope)
@pytest.mark.parametrize("step", ["", "first\n  second"])
def test_a_record_keeps_cause_step_and_scope(scope: RefusalScope, step: str) -> None:
    kept = Refusal(why="no: a; b", next_step=step, scope=scope)
    assert Refusal.parse(str(kept)) == replace(kept, next_step=step.replace("\n  ", "; "))


def test_a_record_of_an_older_orch_has_a_cause_alone() -> None:
    assert Refusal.parse("no machines; the same in the whole universe") == Refusal(
        why="no machines; the same in the whole universe"
    )
