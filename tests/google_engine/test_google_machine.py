"""Random histories of the real engine and the real provider of Google's TPUs, over sockets, with crashes anywhere."""

from __future__ import annotations

import pytest
from engine_machine import run_histories
from google_machine import GoogleMachine
from support.proof import report

from orchestrator.providers.google import retries


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(retries, "_sleep", lambda _: None)  # the pauses between looks are real time, which stands still


@pytest.mark.slow
@pytest.mark.promise("P2")
@pytest.mark.promise("P3")
@pytest.mark.promise("P4")
@pytest.mark.promise("P5")
@pytest.mark.timeout(300)
def test_in_random_histories_on_google_every_slice_is_wanted_and_down_leaves_nothing() -> None:
    report(f"random histories on Google's API over sockets: {run_histories(GoogleMachine, 10, 15)}: 0 violations")
