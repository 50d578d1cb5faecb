"""The provider over the simulated cloud: what it makes of answers, silence and half answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from sim_support import CALL, INSTALLATION, fault, make_keys, make_sim, make_spec

from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    QuotaError,
    UserError,
)
from orchestrator.providers.protocol import Planner, Preempts, Provider, Stops
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.calls import Look, ReadOnlyViolation
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.planner import PLANNER
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Pool, Quota
from orchestrator.simulator.state import Phase
from orchestrator.slices import CapacityBlock, Owned, Reservation, SliceState, SliceView, Spot

KEYS = make_keys(2)


def test_serves_the_whole_contract() -> None:
    provider: Provider = make_sim().provider
    planner: Planner = PLANNER
    assert isinstance(provider, Stops)
    assert isinstance(provider, Preempts)
    assert provider.name == planner.name == "simulated"


def test_life_of_a_slice_as_the_engine_sees_it() -> None:
    sim = make_sim()
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    sim.provider.create(make_spec(), KEYS)
    assert sim.provider.observe("demo-1").state is SliceState.CREATING
    sim.clock.advance(41)
    view = sim.provider.observe("demo-1")
    assert [(host.rank, host.host_key) for host in view.hosts] == [(0, "ssh-ed25519 AAAA0"), (1, "ssh-ed25519 AAAA1")]
    assert all(host.alias == host.alias.lower() and host.host not in host.alias for host in view.hosts)
    sim.provider.stop("demo-1")
    assert sim.provider.observe("demo-1").state is SliceState.STOPPING
    sim.clock.advance(21)
    assert sim.provider.observe("demo-1").state is SliceState.STOPPED
    sim.provider.start("demo-1")
    assert sim.provider.observe("demo-1").state is SliceState.STARTING
    sim.clock.advance(31)
    assert sim.provider.observe("demo-1").hosts == view.hosts
    sim.provider.preempt("demo-1", 1)
    assert sim.provider.observe("demo-1").state is SliceState.PREEMPTED
    sim.provider.end("demo-1")
    assert sim.provider.observe("demo-1").state is SliceState.ENDING
    sim.clock.advance(21)
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    sim.provider.end("demo-1")


def test_maintenance_is_reported_as_hosts_that_come_back() -> None:
    sim = make_sim()
    sim.launch()
    sim.cloud.do("demo-1", Deed.MAINTENANCE)
    view = sim.provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.STARTING, "maintenance by the provider")


@pytest.mark.promise("P22")
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.NO_CAPACITY, CapacityError),
        (FaultKind.DENIED, AccessError),
        (FaultKind.THROTTLED, CloudError),
        (FaultKind.INTERNAL, CloudError),
        (FaultKind.UNAVAILABLE, CloudError),
        (FaultKind.TIMEOUT_BEFORE, CloudError),
        (FaultKind.TIMEOUT_AFTER, CloudError),
    ],
)
def test_refusal_of_the_api_is_the_error_that_fits(kind: FaultKind, error: type[OrchError]) -> None:
    sim = make_sim(fault("create", kind))
    with pytest.raises(error) as caught:
        sim.provider.create(make_spec(), KEYS)
    assert type(caught.value) is error
    assert caught.value.next_step


@pytest.mark.promise("P22")
def test_quota_zone_and_market_are_distinguished() -> None:
    sim = make_sim(
        quotas=(Quota(region="sim", accelerator="v5e", amount=1),),
        pools=(Pool(zone="sim-b", accelerator="v6e", amount=1),),
    )
    with pytest.raises(QuotaError, match="0 of 1 in use"):
        sim.provider.create(make_spec(), KEYS)
    with pytest.raises(CapacityError, match="sim-b has no v5e"):
        sim.provider.create(make_spec(zone="sim-b", hosts=1), make_keys(1))
    with pytest.raises(UserError, match="no reservation r9"):
        sim.provider.create(make_spec(market=Reservation("r9"), zone="us-west4-a"), KEYS)
    with pytest.raises(UserError, match="no reservation cr-1"):
        sim.provider.create(make_spec(market=CapacityBlock("cr-1"), zone="us-west4-a"), KEYS)
    with pytest.raises(UserError, match="no machines that you own"):
        sim.provider.create(make_spec(market=Owned()), KEYS)
    sim.provider.create(make_spec(market=Spot(), zone="us-west4-a"), KEYS)
    assert [(look.market, look.zone) for look in sim.cloud.live()] == [("spot", "us-west4-a")]


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT_BEFORE, FaultKind.TIMEOUT_AFTER])
def test_timeout_says_that_the_result_is_unknown(kind: FaultKind) -> None:
    sim = make_sim(fault("create", kind), fault("end", kind))
    with pytest.raises(CloudError, match="not known whether it acted"):
        sim.provider.create(make_spec(), KEYS)
    sim.provider.create(make_spec(), KEYS)
    assert len(sim.cloud.made_for("token-1")) == 1
    with pytest.raises(CloudError, match="not known whether it acted"):
        sim.provider.end("demo-1")
    sim.provider.end("demo-1")
    sim.clock.advance(21)
    assert sim.cloud.live() == ()


def test_one_create_is_one_request() -> None:
    sim = make_sim(Fault(call="create", kind=FaultKind.UNAVAILABLE, rate=1.0))
    with pytest.raises(CloudError):
        sim.provider.create(make_spec(), KEYS)
    assert len(sim.cloud.calls("create")) == 1, "whether it is sent again is the engine's decision"


def test_name_of_another_request_is_a_conflict() -> None:
    sim = make_sim()
    sim.launch()
    with pytest.raises(ConflictError, match="already-exists"):
        sim.provider.create(make_spec(token="token-2"), KEYS)
    with pytest.raises(ConflictError, match="token-mismatch"):
        sim.provider.create(make_spec(), replace(KEYS, user_public="another key"))
    sim.provider.end("demo-1")
    sim.clock.advance(21)
    with pytest.raises(ConflictError, match="token-spent"):
        sim.provider.create(make_spec(), KEYS)


@pytest.mark.promise("P3")
@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.INTERNAL, FaultKind.UNAVAILABLE, FaultKind.DENIED])
def test_look_that_fails_is_unclear_and_never_absent(kind: FaultKind) -> None:
    sim = make_sim(Fault(call="get", kind=kind, rate=1.0, begin=10.0))
    sim.provider.create(make_spec(), KEYS)
    sim.clock.advance(41)
    view = sim.provider.observe("demo-1")
    assert view.state is SliceState.UNCLEAR
    assert view.reason


@pytest.mark.promise("P3")
def test_slice_that_is_not_shown_yet_is_unclear_and_never_absent() -> None:
    sim = make_sim(lag=30.0)
    sim.provider.create(make_spec(), KEYS)
    states = set[SliceState]()
    for _ in range(60):
        states.add(sim.provider.observe("demo-1").state)
        sim.clock.advance(1)
    assert states >= {SliceState.UNCLEAR, SliceState.CREATING}
    assert SliceState.ABSENT not in states


@pytest.mark.promise("P3")
def test_what_is_known_of_a_name_from_before_says_nothing_about_a_create_without_an_answer() -> None:
    sim = make_sim(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)), lag=30.0)
    sim.provider.observe("demo-1")
    sim.clock.advance(60)
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    with pytest.raises(CloudError):
        sim.provider.create(make_spec(), KEYS)
    assert len(sim.cloud.live()) == 1
    states = {sim.provider.observe("demo-1").state for _ in range(20)}
    assert SliceState.ABSENT not in states
    assert SliceState.UNCLEAR in states


def test_deleted_slice_is_absent_once_the_lag_has_passed() -> None:
    sim = make_sim(lag=30.0)
    sim.provider.create(make_spec(), KEYS)
    sim.clock.advance(90)
    sim.provider.end("demo-1")
    for _ in range(120):
        if sim.provider.observe("demo-1").state is SliceState.ABSENT:
            break
        sim.clock.advance(1)
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    assert sim.cloud.live() == ()


@pytest.mark.promise("P3")
@pytest.mark.parametrize("kind", [FaultKind.PARTIAL, FaultKind.INTERNAL, FaultKind.THROTTLED])
def test_listing_that_is_not_whole_is_an_error_and_never_a_short_list(kind: FaultKind) -> None:
    sim = make_sim(fault("list", kind))
    sim.launch()
    with pytest.raises(CloudError):
        sim.provider.owned(INSTALLATION)
    assert len(sim.provider.owned(INSTALLATION)) == 1


def test_listing_reads_all_pages_past_empty_ones() -> None:
    sim = make_sim(fault("list", FaultKind.EMPTY_PAGE, nth=2), page=1)
    for number in range(3):
        sim.provider.create(make_spec(f"demo-{number}", f"token-{number}"), KEYS)
    found = sim.provider.owned(INSTALLATION)
    assert [(item.name, item.cluster, item.intent) for item in found] == [
        (f"demo-{number}", "demo", f"token-{number}") for number in range(3)
    ]
    assert found[0].where == "simulated/sim-a"


@pytest.mark.promise("P5")
def test_foreign_resources_are_neither_listed_nor_touched() -> None:
    sim = make_sim()
    sim.cloud.seed_foreign("demo-1", {"Orch-Installation": INSTALLATION})
    sim.cloud.seed_foreign("demo-2", {"orch-installation": "another owner"})
    sim.cloud.seed_foreign("demo-3")
    assert sim.provider.owned(INSTALLATION) == ()
    for verb in (sim.provider.end, sim.provider.stop, sim.provider.start):
        with pytest.raises(ConflictError, match="not made by this orch"):
            verb("demo-3")
    with pytest.raises(ConflictError):
        sim.provider.create(make_spec("demo-3"), KEYS)
    assert sim.cloud.trespasses() == ()


def test_without_tokens_the_second_slice_is_listed_as_ours() -> None:
    sim = make_sim(fault("create", FaultKind.TIMEOUT_AFTER), honour_tokens=False)
    with pytest.raises(CloudError):
        sim.provider.create(make_spec(), KEYS)
    sim.provider.create(make_spec(), KEYS)
    assert [item.name for item in sim.provider.owned(INSTALLATION)] == ["demo-1", "demo-1-2"]


@pytest.mark.promise("P11")
def test_read_only_cloud_fails_the_test_at_the_first_change() -> None:
    sim = make_sim(read_only=True)
    assert sim.provider.observe("demo-1").state is SliceState.ABSENT
    assert sim.provider.owned(INSTALLATION) == ()
    assert sim.cloud.mutations() == ()
    with pytest.raises(ReadOnlyViolation, match="create demo-1"):
        sim.provider.create(make_spec(), KEYS)
    assert [(call.op, call.result) for call in sim.cloud.mutations()] == [("create", "read-only")]
    assert sim.cloud.made() == ()


def test_preemption_is_played_only_on_what_is_there() -> None:
    sim = make_sim()
    with pytest.raises(NotFoundError):
        sim.provider.preempt("demo-1", 0)
    sim.provider.create(make_spec(), KEYS)
    with pytest.raises(ConflictError, match="creating"):
        sim.provider.preempt("demo-1", 0)
    sim.clock.advance(41)
    with pytest.raises(UserError, match="no host 2"):
        sim.provider.preempt("demo-1", 2)


def test_stop_and_start_of_what_cannot_be_are_conflicts() -> None:
    sim = make_sim()
    with pytest.raises(NotFoundError):
        sim.provider.stop("demo-1")
    sim.provider.create(make_spec(), KEYS)
    with pytest.raises(ConflictError, match="creating"):
        sim.provider.stop("demo-1")
    sim.clock.advance(41)
    sim.provider.start("demo-1")
    assert sim.provider.observe("demo-1").state is SliceState.READY


def test_slice_without_a_zone_goes_to_the_first_of_its_region() -> None:
    sim = make_sim()
    sim.provider.create(make_spec(zone=""), KEYS)
    region = make_spec("demo-2", "token-2", zone="")
    sim.provider.create(replace(region, candidate=replace(region.candidate, region="us-east5")), KEYS)
    assert [look.zone for look in sim.cloud.live()] == ["sim-a", "us-east5-a"]


def test_what_the_audit_log_says_of_a_life() -> None:
    sim = make_sim()
    sim.ready(CALL)
    sim.provider.end("demo-1")
    calls = [(call.op, call.name, call.result, call.acted) for call in sim.cloud.calls()]
    assert calls == [
        ("create", "demo-1", "ok", True),
        ("get", "demo-1", "ok", False),
        ("end", "demo-1", "ok", True),
    ]


class _SlowHosts(NoBodies):
    """Hosts that are there only after they were made to match, which takes time, as that of real ones does."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self._made = clock, frozenset[str]()

    def sync_hosts(self, looks: Sequence[Look]) -> None:
        self._clock.advance(1)
        self._made = frozenset(look.name for look in looks if look.phase is Phase.READY)

    def view(self, look: Look) -> SliceView:
        return super().view(look) if look.name in self._made else SliceView(state=SliceState.ABSENT)


def test_a_slice_that_becomes_ready_while_it_is_observed_is_not_reported_as_absent() -> None:
    sim = make_sim()
    provider = SimulatedProvider(sim.access, _SlowHosts(sim.clock))
    provider.create(make_spec(), KEYS)
    seen = [provider.observe("demo-1").state for _ in range(60)]
    assert list(dict.fromkeys(seen)) == [SliceState.CREATING, SliceState.READY]
