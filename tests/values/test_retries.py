"""The one retry policy: pauses, limits, and which errors are tried again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import retries
from orchestrator.retries import Backoff, RetryPolicy, chance_of


class Busy(Exception):
    """Worth another try."""


def failing(times: int, error: type[Exception] = Busy) -> tuple[Callable[[], int], list[int]]:
    """A call that fails so many times, and the list that counts its tries."""
    tries: list[int] = []

    def call() -> int:
        tries.append(len(tries) + 1)
        if len(tries) <= times:
            raise error(f"try {len(tries)}")
        return len(tries)

    return call, tries


def is_busy(error: BaseException) -> bool:
    return isinstance(error, Busy)


def test_a_call_is_repeated_with_growing_pauses_until_it_succeeds() -> None:
    pauses: list[float] = []
    call, _ = failing(4)
    policy = RetryPolicy(backoff=Backoff(first=1.0, longest=5.0), attempts=9)
    assert policy.run(call, retry=is_busy, sleep=pauses.append) == 5
    assert pauses == [1.0, 2.0, 4.0, 5.0]


def test_the_last_error_is_raised_when_the_attempts_are_spent() -> None:
    pauses: list[float] = []
    call, tries = failing(9)
    with pytest.raises(Busy, match="try 3"):
        RetryPolicy(backoff=Backoff(first=1.0), attempts=3).run(call, retry=is_busy, sleep=pauses.append)
    assert (len(tries), len(pauses)) == (3, 2)


def test_one_attempt_is_never_repeated() -> None:
    call, tries = failing(9)
    with pytest.raises(Busy):
        RetryPolicy(backoff=Backoff(first=1.0), attempts=1).run(call, retry=is_busy, sleep=lambda _: None)
    assert len(tries) == 1


def test_an_error_that_is_not_worth_it_is_raised_immediately() -> None:
    call, tries = failing(1, ValueError)
    with pytest.raises(ValueError, match="try 1"):
        RetryPolicy(backoff=Backoff(first=1.0)).run(call, retry=is_busy, sleep=lambda _: None)
    assert len(tries) == 1


def test_no_try_begins_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    call, tries = failing(99)
    with pytest.raises(Busy):
        RetryPolicy(backoff=Backoff(first=2.0, factor=1.0), deadline=5.0).run(call, retry=is_busy, sleep=sleep)
    assert (len(tries), clock[0]) == (4, 6.0)


def test_the_pause_that_a_service_asks_for_replaces_the_backoff() -> None:
    pauses: list[float] = []
    call, _ = failing(2)
    answers = iter([7.0, None])
    policy = RetryPolicy(backoff=Backoff(first=1.0))
    policy.run(call, retry=is_busy, requested_pause=lambda _: next(answers), sleep=pauses.append)
    assert pauses == [7.0, 2.0]


def test_a_caller_that_is_interrupted_gets_the_last_error() -> None:
    call, tries = failing(99)
    with pytest.raises(Busy):
        RetryPolicy(backoff=Backoff(first=1.0)).run(call, retry=is_busy, stopped=lambda: len(tries) == 2, sleep=print)
    assert len(tries) == 2


@given(st.integers(1, 10_000), st.text())
def test_every_pause_lies_within_its_jitter(tries: int, seed: str) -> None:
    backoff = Backoff(first=2.0, longest=60.0, jitter=(0.5, 1.0))
    assert 1.0 <= backoff.pause(tries, chance_of(seed)) < 60.0
    assert chance_of(seed) == chance_of(seed)


def test_the_named_policies_end() -> None:
    policies = [value for value in vars(retries).values() if isinstance(value, RetryPolicy)]
    assert len(policies) >= 5
    assert all(policy.attempts is not None or policy.deadline is not None for policy in policies)


def test_a_call_that_succeeds_loads_no_library() -> None:
    code = (
        "import sys\nfrom orchestrator.retries import CLOUD_READ\n"
        "CLOUD_READ.run(lambda: 1, retry=lambda error: True)\nprint('tenacity' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
