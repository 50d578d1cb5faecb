"""Telling a hang from silence, and the rank that stopped first from those that wait for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts import JobPhase
from orchestrator.plan.causes import EndCause
from orchestrator.plan.evidence import classify_silence, detect_hang, find_furthest_step
from orchestrator.plan.observed import Contact, HostView
from orchestrator.values import Text


def host(rank: int, step: int | None = 5, age: float | None = 0.0, **more: object) -> HostView:
    base = HostView(
        rank=rank, internal_ip=Text.of("ip"), contact=Contact.OK, job=JobPhase.RUNNING, step=step, beat_age=age
    )
    return replace(base, **more)  # type: ignore[arg-type]  # field values by name, checked by the dataclass


def silent(rank: int) -> HostView:
    return HostView(rank=rank, internal_ip=Text.of("ip"), contact=Contact.DOWN)


def test_one_silent_host_among_others_died_and_all_silent_ones_cannot_be_reached() -> None:
    assert classify_silence((host(0), silent(1))) is EndCause.HOST_DIED
    assert classify_silence((silent(0), silent(1))) is EndCause.UNREACHABLE
    assert classify_silence((silent(0),)) is EndCause.UNREACHABLE


def test_equal_steps_are_a_collective_operation_and_no_rank_is_blamed() -> None:
    found = detect_hang((host(0, 7, 601), host(1, 7, 605)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, None)
    assert "no rank passed step 7 for 605 s" in found.why


def test_unequal_steps_blame_the_slowest_rank() -> None:
    found = detect_hang((host(0, 8, 601), host(1, 7, 605), host(2, 8, 602)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, 1)
    assert "step 7" in found.why
    assert "others reached 8" in found.why


def test_it_is_no_hang_before_the_deadline_or_when_nothing_is_watched() -> None:
    assert detect_hang((host(0, 7, 599.9),), 600) is None
    assert detect_hang((host(0, 7, 1e9),), 0) is None
    assert detect_hang((), 600) is None


def test_hosts_without_steps_or_without_a_program_are_no_hang() -> None:
    mute = host(0, None, 1e9)
    over = host(1, 7, 1e9, job=JobPhase.FINISHED, exit_code=0)
    unclear = host(2, 7, None)
    assert detect_hang((mute, over, unclear), 600) is None
    found = detect_hang((mute, over, unclear, host(3, 9, 700)), 600)
    assert found is not None
    assert (found.step, found.rank) == (7, 2), "a host that reports its step and no age is compared too"


def test_the_furthest_step_is_the_highest_that_a_host_reported() -> None:
    assert find_furthest_step((host(0, 3), host(1, 9), host(2, None))) == 9
    assert find_furthest_step((host(0, None),)) is None
    assert find_furthest_step(()) is None


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0, 2000)), min_size=1, max_size=8), st.floats(1, 1000))
def test_a_hang_is_found_exactly_when_some_heartbeat_is_too_old(
    reported: list[tuple[int, float]], limit: float
) -> None:
    found = detect_hang(tuple(host(rank, *one) for rank, one in enumerate(reported)), limit)
    assert (found is not None) == (max(age for _, age in reported) >= limit)
    if found is not None:
        steps = [step for step, _ in reported]
        assert found.step == min(steps)
        assert (found.rank is None) == (min(steps) == max(steps))
        assert found.rank is None or steps[found.rank] == min(steps)
