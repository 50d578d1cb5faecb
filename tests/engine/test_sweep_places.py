"""A sweep over several places of one provider: each answers for itself; a slice that two of them show counts once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from crash_verbs import close_record
from support.driving import Listener
from support.simulated import SimHome, use_home

from orchestrator.engine.operations import sweep
from orchestrator.engine.operations.recover import choose_lost_slice, end_lost_slice
from orchestrator.engine.state.opening import open_store
from orchestrator.errors import CloudError, ConflictError, NotFoundError, UserError
from orchestrator.paths import load_paths
from orchestrator.providers.protocol import Provider
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Scenario

SILENT = (Fault(call="list", kind=FaultKind.UNAVAILABLE, rate=1.0),)


class Accounts(SimulatedProvider):
    """A provider whose accounts are simulated clouds."""

    place_word = "account"

    def __init__(self, homes: Mapping[str, SimHome]) -> None:
        super().__init__(next(iter(homes.values())).access, NoBodies())
        self._homes = homes

    def places(self, *, named: bool) -> tuple[str, ...]:
        return tuple(self._homes) if named else tuple(self._homes)[:1]

    def at(self, place: str) -> Provider:
        return self._homes[place].provider()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCH_HOME", "ORCH_STORE"):
        monkeypatch.setenv(name, "")
    use_home(tmp_path)


def make(*faults: Fault, clock: ManualClock | None = None) -> SimHome:
    scenario = Scenario(durations=Durations(create=1, end=1, jitter=0), faults=faults)
    return SimHome(InMemory(scenario, clock or ManualClock()))


def living(home: SimHome) -> list[str]:
    with home.access.open() as cloud:
        return [look.name for look in cloud.live()]


def test_a_place_that_does_not_answer_keeps_no_other_from_its_sweep() -> None:
    clock = ManualClock()
    one, two = make(clock=clock), make(*SILENT, clock=clock)
    services = replace(one.services(), provider=lambda _: Accounts({"one": one, "two": two}))
    with open_store(load_paths(), services) as store:
        for home in (one, two):
            home.orphan("lost-1", store.installation)
            home.pass_time(5.0)
        close_record(one, "lost-1")
        findings = sweep.judge_owned_slices(store, services, ["simulated"], named=True)
        assert [one.described for one in findings] == ["simulated account one", "simulated account two"]
        assert [one.problem is None for one in findings] == [True, False]
        (done,) = sweep.end_orphans(store, services, Listener(), findings)
    assert done.problem is None
    assert (living(one), living(two)) == ([], ["lost-1"])


def test_a_slice_that_two_places_show_counts_once() -> None:
    home = make()
    services = replace(home.services(), provider=lambda _: Accounts({"one": home, "same": home}))
    with open_store(load_paths(), services) as store:
        home.orphan("lost-1", store.installation)
        home.pass_time(5.0)
        findings = sweep.judge_owned_slices(store, services, ["simulated"], named=True)
        assert [len(finding.judged) for finding in findings] == [1, 0]
        (usual,) = sweep.judge_owned_slices(store, services, ["simulated"])
        assert usual.described == "simulated account one"


def test_the_lost_slice_is_chosen_by_name_and_intent_and_ended_where_it_is() -> None:
    clock = ManualClock()
    one, two, silent = make(clock=clock), make(clock=clock), make(*SILENT, clock=clock)
    services = replace(one.services(), provider=lambda _: Accounts({"one": one, "two": two}))
    with open_store(load_paths(), services) as store:
        for home, name in ((one, "lost-1"), (two, "lost-2")):
            home.orphan(name, "another")
            home.pass_time(5.0)
        findings = sweep.judge_owned_slices(store, services, ["simulated"], named=True)
        with pytest.raises(UserError, match="2 slices"):
            choose_lost_slice(findings, "lost")
        with pytest.raises(NotFoundError):
            choose_lost_slice(findings, "lost", "token-of-another")
        lost = choose_lost_slice(findings, "lost", "token-lost-2")
        end_lost_slice(store, services, Listener(), lost)
        assert (living(one), living(two)) == (["lost-1"], [])
        mute = replace(services, provider=lambda _: Accounts({"one": one, "silent": silent}))
        partly = sweep.judge_owned_slices(store, mute, ["simulated"], named=True)
        with pytest.raises(CloudError, match="could not be asked: simulated account silent"):
            choose_lost_slice(partly, "absent")


def test_a_slice_that_is_on_record_by_now_is_not_ended() -> None:
    home = make()
    services = home.services()
    with open_store(load_paths(), services) as store:
        home.orphan("lost-1", store.installation)
        home.pass_time(5.0)
        findings = sweep.judge_owned_slices(store, services, ["simulated"])
        lost = choose_lost_slice(findings, "lost-1")
        cluster = store.open_cluster("lost", "")
        lease = store.acquire("cluster:lost", "test")
        store.write_intent(lease, cluster, 1, "lost-1", home.candidate(), "token-lost-1", "")  # type: ignore[arg-type]  # it is free
        with pytest.raises(ConflictError, match="on record here"):
            end_lost_slice(store, services, Listener(), lost)
    assert living(home) == ["lost-1"]
