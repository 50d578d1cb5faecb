"""Actions that report success and do nothing: each becomes a failure with a name; ending machines is never given up.

The histories are the random ones, in which every action of one type succeeds without its effect. A crash forgets how
often something succeeded, so there is none.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from random import Random
from typing import get_args

import pytest
from plan_faults import CRASHES, Fault
from plan_samples import sample_run
from plan_simulation import Mishap, SimulatedCluster, run_to_the_end
from support.lanes import by_lane
from support.proof import report
from test_decide_histories import BAD, FACTS, MOST_TURNS, SHORT, TIMER, random_desired, simulation

from orchestrator.plan.actions import Action, ArmTimer, EndSlice, FetchMount, RunSetup, StartJob, StopSlice, SyncTree
from orchestrator.plan.desired import Stop
from orchestrator.plan.observed import IntentState
from orchestrator.plan.repeated import MOST_SUCCESSES, NO_EFFECT, identify_action
from orchestrator.plan.steps import GiveUp, Wait, WaitFor
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.values import Text

ACTIONS: tuple[type, ...] = get_args(Action)
RUN = sample_run(2, uid=Text.of("uid"), run_id=Text.of("run"), env=(), budgets=SHORT, teardown=TeardownPolicy.KEEP)
FAULTS = [one for one in BAD if one.fault not in {*CRASHES, Fault.FOREIGN}]


def longest_row(one: SimulatedCluster, kind: type) -> int:
    """Return how often the same action of a type was taken in a row, with nothing but pauses in between."""
    taken = [step for step in one.steps if not (isinstance(step, Wait) and step.on is WaitFor.PAUSE)]
    rows = groupby(taken, key=lambda step: "" if isinstance(step, Wait) else identify_action(step))
    return max((len(list(row)) for name, row in rows if name.split(" ")[0] == kind.__name__), default=0)


@pytest.mark.parametrize("kind", ACTIONS, ids=[kind.__name__ for kind in ACTIONS])
def test_no_action_without_effect_is_taken_for_ever(kind: type) -> None:
    taken, seeds = 0, by_lane(60, 600)
    for seed in range(seeds):
        dice = Random(seed)
        script = [dice.choice(FAULTS) if dice.random() < 0.2 else Mishap() for _ in range(dice.randrange(60))]
        desired = replace(random_desired(dice), mounts=RUN.mounts)
        one = simulation(desired, script, existing=dice.random() < 0.3)
        if kind is StopSlice:
            one.desired = Stop("demo", SHORT)
        one.vain = kind
        try:
            run_to_the_end(one, MOST_TURNS)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        row = longest_row(one, kind)
        assert kind is EndSlice or row <= MOST_SUCCESSES, f"seed {seed}: taken {row} times in vain"
        taken += row > 0
    assert taken, "no history took it"
    report("actions of `decide` without effect", {"histories": seeds, "kinds of actions": [kind.__name__]})


@pytest.mark.parametrize(
    ("kind", "what", "why"),
    [
        (ArmTimer, "setting the limits timer reported success 3 times on hosts 0-1", "head shows no timer"),
        (SyncTree, "sync workdir reported success 3 times on hosts 0-1", "head shows no workdir"),
        (FetchMount, "copying s3://b/data reported success 3 times on hosts 0-1", "head shows no /data"),
        (RunSetup, "setup reported success 3 times on hosts 0-1", "head shows no setup as passed"),
        (StartJob, "starting the program reported success 3 times", "head shows the program as never started"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_the_failure_names_the_action_the_host_and_what_it_shows(kind: type, what: str, why: str) -> None:
    one = simulation(replace(RUN, timer=TIMER), [])
    one.vain = kind
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp) and (ending.code, ending.status) == (NO_EFFECT, 7)
    assert ending.what.startswith(what) and ending.why == why
    assert ending.next_step.command == "orch ssh demo 0"
    assert longest_row(one, kind) == MOST_SUCCESSES


def test_the_end_of_machines_is_requested_until_the_deadline_and_then_reported() -> None:
    one = simulation(replace(RUN, teardown=TeardownPolicy.DOWN), [])
    one.vain = EndSlice
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp) and ending.code == "timeout" and "demo" in ending.what
    requests = [step for step in one.steps if isinstance(step, EndSlice)]
    assert len(requests) >= MOST_SUCCESSES, "given up before the deadline"
    assert [intent.state for intent in one.intents.values()] == [IntentState.ENDING], "its record stays open"


def test_machines_that_take_a_while_to_show_a_start_are_not_given_up() -> None:
    """A provider may show an old state for seconds after it accepted a request."""
    desired = replace(RUN, budgets=replace(SHORT, boot_deadline=600.0))
    one = simulation(desired, [Mishap(Fault.STOPPED, 0), *[Mishap()] * 5, Mishap(Fault.STALE, 8)], existing=True)
    assert not isinstance(run_to_the_end(one, MOST_TURNS), GiveUp)
    assert one.facts is FACTS
