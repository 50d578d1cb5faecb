"""Scenarios of recovery, run to their end in the simulation: one fault each, and the required result."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from plan_faults import Fault, Mishap
from plan_samples import FACTS, candidate, sample_run
from plan_simulation import Memory, SimulatedCluster, run_to_the_end
from test_decide_histories import BLOCK, MOST_TURNS, OWN, PLACES, SHORT, TIMER, CheckedSimulation, simulation

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan.actions import (
    CollectStacks,
    Conclude,
    CreateSlice,
    EndAttempt,
    EndSlice,
    NextAttempt,
    StartJob,
    StartSlice,
    StopJob,
    StopSlice,
)
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Budgets, Limits, Run, Start, Stop
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.observed import Contact, HostView, Intent, IntentState, Observed
from orchestrator.plan.steps import Done, GiveUp, Wait
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate, SliceState
from orchestrator.values import Text


def run(places: tuple[Candidate, ...] = PLACES[:2], limits: Limits | None = None, **budgets: object) -> Run:
    known: Budgets = replace(SHORT, **{"preemptions": 2, "failures": 1, **budgets})  # type: ignore[arg-type]  # by name
    return sample_run(
        2, uid=Text.of("uid"), run_id=Text.of("run"), env=(), mounts=(), candidates=places, budgets=known,
        limits=limits or Limits(), timer=TIMER,
    )  # fmt: skip


def until(one: SimulatedCluster, *kinds: type) -> None:
    """Play until a step of one of these kinds was done."""
    while one.turn():
        if isinstance(one.steps[-1], kinds):
            return
    raise AssertionError(f"no {kinds} before the end: {one.ending}")


def play(one: SimulatedCluster, *mishaps: Mishap) -> Done | GiveUp:
    one.script = list(mishaps)
    return run_to_the_end(one, MOST_TURNS)


def running(desired: Run) -> CheckedSimulation:
    """The program runs, some seconds in."""
    one = simulation(desired, [])
    until(one, StartJob)
    for _ in range(3):
        one.turn()
    return one


def causes(one: SimulatedCluster) -> list[tuple[EndCause, int | None]]:
    return [(ended.cause, ended.generation) for ended in one.ended]


def kinds(one: SimulatedCluster, *which: type) -> list[str]:
    return [type(step).__name__ for step in one.steps if isinstance(step, which)]


@pytest.mark.parametrize("fault", [Fault.HUNG_ALIKE, Fault.HUNG_APART])
def test_a_hung_program_is_inspected_then_stopped_then_restarted(fault: Fault) -> None:
    one = running(run())
    assert isinstance(play(one, Mishap(fault, 1)), Done)
    order = kinds(one, StartJob, CollectStacks, EndAttempt, StopJob, NextAttempt)
    assert order == ["StartJob", "CollectStacks", "EndAttempt", "StopJob", "NextAttempt", "StartJob"]
    assert causes(one) == [(EndCause.HUNG, None)]
    assert one.ended[0].rank == (1 if fault is Fault.HUNG_APART else None)
    assert one.ended[0].step is not None
    assert len(one.created) == 1, "a hang costs no machine"


def test_a_program_that_hangs_twice_at_one_step_is_charged_as_a_failure_of_its_own() -> None:
    one = running(run(failures=1))
    one.script = [Mishap(Fault.HUNG_ALIKE)]
    until(one, NextAttempt)
    until(one, StartJob)
    assert isinstance(play(one, Mishap(Fault.HUNG_ALIKE)), Done)
    assert [cause for cause, _ in causes(one)] == [EndCause.HUNG, EndCause.PROGRAM]


def test_a_program_that_always_hangs_at_one_step_stops_when_its_failures_are_spent() -> None:
    one = running(run(failures=0, preemptions=5))
    one.script = [Mishap(Fault.HUNG_ALIKE)]
    until(one, NextAttempt)
    until(one, StartJob)
    ending = play(one, Mishap(Fault.HUNG_ALIKE))
    assert isinstance(ending, GiveUp)
    assert (ending.code, ending.status) == ("program-failed", Exit.FAILURE)


@pytest.mark.parametrize("crash", [Fault.CRASH_BEFORE, Fault.CRASH_CALLED, Fault.CRASH_AFTER, Fault.AWAY])
def test_a_crash_between_the_verdict_and_the_stop_loses_nothing(crash: Fault) -> None:
    one = running(run())
    one.script = [Mishap(Fault.HUNG_ALIKE)]
    until(one, EndAttempt)
    assert isinstance(play(one, Mishap(crash), Mishap(crash)), Done)
    assert causes(one) == [(EndCause.HUNG, None)]
    assert len(kinds(one, EndAttempt)) == 1


def test_a_slice_that_is_lost_during_the_verdict_is_charged_once_and_as_the_verdict_says() -> None:
    one = running(run())
    one.script = [Mishap(Fault.HUNG_ALIKE)]
    until(one, EndAttempt)
    assert isinstance(play(one, Mishap(Fault.PREEMPTED)), Done)
    assert causes(one) == [(EndCause.HUNG, 1)]
    assert len(one.created) == 2


def test_a_process_that_cannot_be_killed_costs_the_machine_and_one_restart() -> None:
    one = running(run())
    assert isinstance(play(one, Mishap(Fault.UNKILLABLE), Mishap(Fault.HUNG_ALIKE)), Done)
    assert causes(one) == [(EndCause.HUNG, 1)]
    assert len(one.created) == 2


def test_a_failure_beside_a_process_that_cannot_be_killed_is_charged_as_a_failure() -> None:
    one = running(run(preemptions=0, failures=1))
    assert isinstance(play(one, Mishap(Fault.UNKILLABLE, 1), Mishap(Fault.PROGRAM_ENDS, 2)), GiveUp | Done)
    assert all(cause is EndCause.PROGRAM for cause, _ in causes(one))


def test_on_the_users_own_hosts_nothing_is_started_beside_a_process_that_cannot_be_killed() -> None:
    one = running(replace(run(OWN), teardown=TeardownPolicy.KEEP))
    ending = play(one, Mishap(Fault.UNKILLABLE), Mishap(Fault.HUNG_ALIKE))
    assert isinstance(ending, GiveUp)
    assert "could not be stopped" in ending.what
    assert len(kinds(one, StartJob)) == 1
    assert len(kinds(one, StopJob)) == 3, "tried thrice, not for ever"


def test_an_own_host_that_comes_back_is_freed_of_the_old_attempt_before_the_next_one() -> None:
    """The simulation itself refuses a start beside another attempt's program."""
    one = running(run(OWN))
    for host in one.own_hosts:
        for job in host.jobs.values():
            job.ends = one.now + 10_000.0  # it would run on for long
    until(one, Wait)
    one.own_hosts[1].contact_from = one.now + 55.0
    until(one, NextAttempt)
    assert causes(one) == [(EndCause.HOST_DIED, None)]
    assert isinstance(run_to_the_end(one, MOST_TURNS), Done)
    assert len(one.created) == 1, "the user's machines are not given back and taken again"


@pytest.mark.parametrize("seconds", [3, 20])
def test_our_own_network_alone_costs_no_machine_and_no_restart(seconds: int) -> None:
    calm = running(run())
    turns = len(calm.steps) + 12
    for turn in range(turns):
        one = simulation(run(), [*[Mishap()] * turn, Mishap(Fault.OFFLINE, seconds)])
        for _ in range(9):  # the user types it again when it gave up
            if isinstance(run_to_the_end(one, MOST_TURNS), Done):
                break
            one.memory = Memory(well_at=one.now)
        assert isinstance(one.ending, Done), (turn, one.ending)
        assert not one.ended
        assert not kinds(one, EndSlice) or one.outcome is not None
        assert len(one.created) == 1


def test_all_hosts_silent_for_a_moment_is_waited_out_and_for_long_is_a_loss() -> None:
    short, long = running(run()), running(run())
    assert isinstance(play(short, Mishap(Fault.ALL_SILENT, 3)), Done)
    assert causes(short) == []
    assert isinstance(play(long, Mishap(Fault.ALL_SILENT, 9)), Done)
    assert causes(long) == [(EndCause.UNREACHABLE, 1)]


def test_capacity_that_comes_back_in_time_is_waited_for_with_pauses() -> None:
    one = running(run(capacity_wait=400.0))
    assert isinstance(play(one, Mishap(Fault.PREEMPTED), Mishap(Fault.FULL, 8)), Done)
    creates = kinds(one, CreateSlice)
    assert 3 < len(creates) < 40, "retried with pauses"
    assert causes(one) == [(EndCause.PREEMPTED, 1)]
    impatient = running(run(capacity_wait=0.0))
    ending = play(impatient, Mishap(Fault.PREEMPTED), Mishap(Fault.FULL, 8))
    assert isinstance(ending, GiveUp)
    assert ending.code == "capacity"


def test_the_first_machines_are_waited_for_as_long_as_the_task_allows() -> None:
    assert isinstance(play(simulation(run(capacity_wait_first=400.0), []), Mishap(Fault.FULL, 8)), Done)
    ending = play(simulation(run(capacity_wait=400.0), []), Mishap(Fault.FULL, 8))
    assert isinstance(ending, GiveUp)
    assert ending.code == "capacity"


def test_a_status_of_fail_on_is_never_restarted() -> None:
    one = running(run(fail_on=(42,), failures=9, preemptions=9))
    ending = play(one, Mishap(Fault.PROGRAM_ENDS, 5))
    assert isinstance(ending, GiveUp)
    assert (ending.status, ending.code, one.ended) == (42, "program-failed", [])
    assert "fail_on_exit_codes" in ending.why


def test_a_status_by_which_the_program_asks_for_no_restart_is_none_of_the_users() -> None:
    one = running(run(final=(42,), failures=9, preemptions=9))
    ending = play(one, Mishap(Fault.PROGRAM_ENDS, 5))
    assert isinstance(ending, GiveUp)
    assert (ending.status, ending.code, one.ended) == (42, "program-failed", [])
    assert "by exit 42 the program asks for no restart" in ending.why and "fail_on_exit_codes" not in ending.why


def test_a_status_of_fail_on_counts_on_any_rank_and_after_any_other_failure() -> None:
    one = running(run(fail_on=(42,), failures=9, preemptions=9))
    ending = play(one, Mishap(Fault.PROGRAM_ENDS, 2), Mishap(Fault.PROGRAM_ENDS, 5))
    assert isinstance(ending, GiveUp)
    assert (ending.status, one.ended) == (42, [])


def test_an_announced_preemption_costs_one_restart() -> None:
    one = running(run(preemptions=1))
    assert isinstance(play(one, Mishap(Fault.NOTICE)), Done)
    assert causes(one) == [(EndCause.PREEMPTED, None), (EndCause.PREEMPTED, 1)]


def test_a_slice_that_breaks_under_the_program_is_a_loss_and_begins_another_attempt() -> None:
    one = running(run())
    assert isinstance(play(one, Mishap(Fault.FAILED)), Done)
    assert causes(one) == [(EndCause.HOST_DIED, 1)]
    assert one.attempt == 2, "so that it resumes from its checkpoint"


@pytest.mark.parametrize("early", [0.0, 1.0, 4.0])
def test_machines_that_their_own_timer_ends_are_no_preemption(early: float) -> None:
    one = simulation(run(limits=Limits(hours=0.0125)), [])  # 45 s; the program takes 50
    one.timer_early = early
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp)
    assert (ending.code, ending.status) == ("limit", Exit.TIMEOUT)
    assert {cause for cause, _ in causes(one)} <= {EndCause.LIMIT}
    assert len(one.created) == 1
    assert not one.slices


def on_a_block(*places: Candidate, lasts: float, **budgets: object) -> CheckedSimulation:
    """The program, which takes 50 s, has 10 s to save before the machines of the block are taken after `lasts`."""
    return simulation(run((BLOCK, *places), save_before=10.0, **budgets), [], lasts=lasts)


def test_a_program_saves_before_its_block_ends_and_resumes_elsewhere_uncharged() -> None:
    one = on_a_block(PLACES[0], lasts=50.0)
    assert isinstance(run_to_the_end(one, MOST_TURNS), Done)
    order = kinds(one, CreateSlice, StartJob, EndAttempt, StopJob, NextAttempt, EndSlice)
    once = ["CreateSlice", "StartJob"]
    assert order == [*once, "EndAttempt", "StopJob", "NextAttempt", "EndSlice", *once, "EndSlice"]
    assert causes(one) == [(EndCause.EXPIRED, 1)]
    assert one.losses_charged() == 0
    assert [intent.candidate for intent in one.intents.values()] == [BLOCK, PLACES[0]], (
        "the block is not requested again"
    )


def test_a_run_whose_only_machines_are_a_block_is_over_with_it_as_at_a_limit() -> None:
    one = on_a_block(lasts=50.0)
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp)
    assert (ending.code, ending.status) == ("limit", Exit.TIMEOUT)
    assert re.fullmatch(r"'demo': the capacity block is over at \d\d:\d\d UTC", ending.what)
    assert ending.next_step.command == "orch resume demo"
    assert (causes(one), one.slices) == ([(EndCause.EXPIRED, None)], {})


def test_without_restarts_the_end_of_a_block_is_the_end_even_if_other_places_are_named() -> None:
    one = on_a_block(PLACES[0], lasts=50.0, preemptions=0)
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp) and ending.code == "limit"
    assert len(one.created) == 1


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_CALLED, Fault.CRASH_AFTER, Fault.AWAY])
def test_a_crash_around_the_end_of_a_block_charges_nothing(fault: Fault) -> None:
    for turn in range(25):
        one = on_a_block(PLACES[0], lasts=50.0)
        one.script = [*[Mishap()] * turn, Mishap(fault)]
        assert isinstance(run_to_the_end(one, MOST_TURNS), Done)
        assert one.losses_charged() == 0, turn
        assert {cause for cause, _ in causes(one)} <= {EndCause.EXPIRED}, turn


def test_a_launch_on_a_block_that_ends_in_a_moment_is_refused_with_the_reason() -> None:
    one = on_a_block(lasts=9.0)
    ending = run_to_the_end(one, MOST_TURNS)
    assert isinstance(ending, GiveUp)
    assert "too late to start: the capacity block is over at" in ending.what
    assert ending.next_step == NextStep(words="name other machines in the task, or another block, then launch again")
    assert kinds(one, StartJob) == []


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limits", [Limits(hours=0.02), Limits(dollars=0.25)])
def test_a_limit_ends_the_machines_from_any_moment_and_under_any_single_fault(limits: Limits) -> None:
    for fault in Fault:
        if fault in (Fault.DOWN_REQUESTED, Fault.CANCELLED, Fault.NO_ACCESS, Fault.IMPOSTOR):
            continue  # it is over before
        for turn in range(0, 24, 3):
            one = simulation(run(limits=limits, capacity_wait=9000.0, capacity_wait_first=9000.0), [Mishap()] * turn)
            one.timer_early = 0.0
            one.script.append(Mishap(fault, 3))
            for _ in range(4):
                ending = run_to_the_end(one, MOST_TURNS)
                if isinstance(ending, Done) or one.outcome is not None:
                    break
            if one.outcome is not None and one.outcome.code == "limit":
                assert not one.slices, (fault, turn)
                assert one.outcome.status == Exit.TIMEOUT


def test_a_program_that_succeeded_just_before_its_limit_has_succeeded() -> None:
    one = running(run(limits=Limits(hours=1.0)))
    until(one, Wait)
    one.now += 7200.0
    one.script = []
    ending = run_to_the_end(one, MOST_TURNS)
    assert one.outcome is not None
    assert (one.outcome.code, one.slices) == ("ok", {})
    assert isinstance(ending, Done)


def test_a_start_that_is_always_refused_ends_after_three_tries() -> None:
    one = simulation(run(), [], existing=True)
    one.slices["demo-1"].state = SliceState.STOPPED
    ending = play(one, *[Mishap(Fault.CALL_LOST)] * 50)
    assert isinstance(ending, GiveUp)
    assert len(kinds(one, StartSlice)) == 3


@pytest.mark.parametrize(
    ("desired", "state", "kind"),
    [(Start("demo"), SliceState.STOPPED, StartSlice), (Stop("demo"), SliceState.READY, StopSlice)],
)
def test_a_request_that_shows_no_effect_is_not_sent_in_a_hot_loop(
    desired: Start | Stop, state: SliceState, kind: type
) -> None:
    one = SimulatedCluster(desired, FACTS, [Mishap(Fault.IGNORED)] * 40)
    one.intents[1] = Intent(
        generation=1, name="demo-1", candidate=candidate(2), state=IntentState.ACCEPTED, since=one.now - 9.0
    )
    world_with_slice = simulation(run(), [], existing=True)
    one.slices = world_with_slice.slices
    one.slices["demo-1"].state = state
    one.memory.well_at = one.now
    for _ in range(20):
        one.turn()
    shown = [step for step in one.steps if isinstance(step, kind | Wait)]
    assert any(isinstance(step, Wait) for step in shown)
    assert all(isinstance(later, Wait) for earlier, later in pairwise(shown) if isinstance(earlier, kind))


def test_a_preview_of_a_hung_program_shows_its_complete_recovery_and_ends() -> None:
    desired = run()
    hosts = tuple(
        HostView(
            rank=rank,
            internal_ip=Text.of("ip"),
            contact=Contact.OK,
            trees=(("timer", "t1"), ("workdir", "d1")),
            setup="abcdef0123",
            job=JobPhase.RUNNING,
            step=7,
            beat_age=999.0,
        )
        for rank in range(2)
    )  # fmt: skip
    intent = Intent(
        generation=1,
        name="demo-1",
        candidate=desired.candidates[0],
        state=IntentState.ACCEPTED,
        since=900.0,
        billed_from=900.0,
    )
    plan = make_plan(
        desired, Observed(now=1000.0, intents=(intent,), slice_state=SliceState.READY, hosts=hosts, started=True), FACTS
    )
    names = [type(action).__name__ for action in plan.actions]
    expected_kinds = ["CollectStacks", "EndAttempt", "StopJob", "NextAttempt", "StartJob", "Conclude"]
    assert names[: len(expected_kinds)] == expected_kinds
    assert isinstance(plan.ending, Done)
    assert sum(isinstance(action, Conclude) for action in plan.actions) == 1
