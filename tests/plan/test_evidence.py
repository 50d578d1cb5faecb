"""Telling a hang from silence, and the rank that stopped first from those that wait for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts import JobPhase
from orchestrator.plan.causes import EndCause
from orchestrator.plan.evidence import furthest, hang, silence
from orchestrator.plan.observed import Contact, HostView
from orchestrator.values import Text


def host(rank: int, step: int | None = 5, age: float | None = 0.0, **more: object) -> HostView:
    base = HostView(rank, Text.of("ip"), Contact.OK, job=JobPhase.RUNNING, step=step, beat_age=age)
    return replace(base, **more)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def silent(rank: int) -> HostView:
    return HostView(rank, Text.of("ip"), Contact.DOWN)


def test_one_silent_host_among_others_died_and_all_silent_ones_cannot_be_reached() -> None:
    assert silence((host(0), silent(1))) is EndCause.HOST_DIED
    assert silence((silent(0), silent(1))) is EndCause.UNREACHABLE
    assert silence((silent(0),)) is EndCause.UNREACHABLE


def test_equal_steps_are_a_collective_operation_and_nobody_is_blamed() -> None:
    found = hang((host(0, 7, 601), host(1, 7, 605)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, None)
    assert "no rank moved past step 7 for 605 s" in found.why


def test_unequal_steps_blame_the_slowest_rank() -> None:
    found = hang((host(0, 8, 601), host(1, 7, 605), host(2, 8, 602)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, 1)
    assert "step 7" in found.why
    assert "others reached 8" in found.why


def test_it_is_no_hang_before_the_deadline_or_when_nothing_is_watched() -> None:
    assert hang((host(0, 7, 599.9),), 600) is None
    assert hang((host(0, 7, 1e9),), 0) is None
    assert hang((), 600) is None


def test_hosts_that_tell_nothing_or_run_nothing_prove_nothing() -> None:
    mute = host(0, None, 1e9)
    over = host(1, 7, 1e9, job=JobPhase.FINISHED, exit_code=0)
    unclear = host(2, 7, None)
    assert hang((mute, over, unclear), 600) is None
    found = hang((mute, over, unclear, host(3, 9, 700)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, 2), "a host that tells its step and no age is compared all the same"


def test_the_furthest_step_is_the_last_one_that_any_host_told() -> None:
    assert furthest((host(0, 3), host(1, 9), host(2, None))) == 9
    assert furthest((host(0, None),)) is None
    assert furthest(()) is None


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0, 2000)), min_size=1, max_size=8), st.floats(1, 1000))
def test_a_hang_is_found_exactly_when_some_heartbeat_is_too_old(told: list[tuple[int, float]], limit: float) -> None:
    found = hang(tuple(host(rank, *one) for rank, one in enumerate(told)), limit)
    assert (found is not None) == (max(age for _, age in told) >= limit)
    if found is not None:
        steps = [step for step, _ in told]
        assert found.step == min(steps)
        assert (found.rank is None) == (min(steps) == max(steps))
        assert found.rank is None or steps[found.rank] == min(steps)
