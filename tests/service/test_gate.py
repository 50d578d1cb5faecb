"""Links and sessions end by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.service.gate import IDLE_SECONDS, LINK_SECONDS, SESSION_SECONDS, Gate


class Time:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def gate(tmp_path: Path, time: Time) -> Gate:
    made = Gate(member="ada", token_file=tmp_path / "service" / "token", now=lambda: time.now)
    made.read_token()
    return made


def open_session(gate: Gate) -> str:
    session = gate.open_session(gate.make_link())
    assert session is not None
    return session


@pytest.mark.parametrize(("age", "opens"), [(0, True), (LINK_SECONDS - 1, True), (LINK_SECONDS + 1, False)])
def test_a_link_opens_one_session_in_its_time(gate: Gate, time: Time, age: float, opens: bool) -> None:
    link = gate.make_link()
    time.now += age
    assert (gate.open_session(link) is not None) is opens
    assert gate.open_session(link) is None


def test_a_session_ends_without_use(gate: Gate, time: Time) -> None:
    session = open_session(gate)
    time.now += IDLE_SECONDS - 1
    assert gate.identify(session=session)
    time.now += IDLE_SECONDS - 1
    assert gate.identify(session=session), "it was used since"
    time.now += IDLE_SECONDS + 1
    assert gate.identify(session=session) is None


def test_a_session_ends_after_its_longest_time_however_much_it_is_used(gate: Gate, time: Time) -> None:
    session = open_session(gate)
    begun = time.now
    while time.now - begun <= SESSION_SECONDS - IDLE_SECONDS / 2:
        assert gate.identify(session=session)
        time.now += IDLE_SECONDS / 2
    time.now += IDLE_SECONDS / 2
    assert gate.identify(session=session) is None


def test_a_closed_session_and_what_is_none_open_nothing(gate: Gate) -> None:
    session = open_session(gate)
    gate.close_session(session)
    assert gate.identify(session=session) is None
    assert gate.identify() is gate.identify(session="") is gate.identify(bearer="x") is None


def test_before_a_token_exists_none_is_accepted(gate: Gate) -> None:
    assert gate.identify(bearer="") is gate.identify(bearer="anything") is None
    token = gate.read_token()
    assert gate.identify(bearer=token) and gate.identify(bearer=token + "x") is None
    assert gate.read_token() == token, "it stays the same"
