"""Random calls, faults and moves of the clock: what must hold in every history, whatever happens."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim_support import INSTALLATION, make_keys, make_spec

from orchestrator.errors import CapacityError, OrchError
from orchestrator.simulator import capacity
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.calls import ApiError, CreateCall, QueueCall
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.rules import MOVES, QUEUE_MOVES
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Held, Pool, Quota, Scenario
from orchestrator.simulator.state import CloudState, Phase, QueuePhase
from orchestrator.simulator.world import World
from orchestrator.slices import OnDemand, Reservation, SliceState, Spot

API_FAULTS = [kind for kind in FaultKind if not kind.value.startswith("host-")]
POOLS = (
    Pool(zone="sim-a", accelerator="v5e", amount=6, market="spot"),
    Pool(zone="sim-a", accelerator="v5e", amount=6, market="on-demand"),
    Pool(zone="sim-b", accelerator="v5e", amount=5),
)
HELD = (Held(name="r1", zone="sim-a", accelerator="v5e", amount=4),)
QUOTAS = (Quota(region="sim", accelerator="v5e", amount=12),)
DEEDS = [Deed.PREEMPT, Deed.MAINTENANCE, Deed.FAIL, Deed.VANISH, Deed.FAIL_HOST, Deed.REBOOT_HOST, Deed.SILENCE_HOST]
MARKETS = [OnDemand(), Spot(), Reservation("r1")]

numbers = st.integers(0, 3)


@dataclass(frozen=True)
class Step:
    """One thing done to a cloud, so that it can be done again to another one."""

    verb: str
    number: int = 0
    other: int = 0
    seconds: float = 0.0


class Driven:
    """A provider, its cloud and its clock, driven by Steps. What each step ended with is kept."""

    def __init__(self, scenario: Scenario, file: Path | None = None) -> None:
        self.clock = ManualClock()
        self.access = InMemory(scenario, self.clock) if file is None else Durable(file, scenario, self.clock)
        self.provider = SimulatedProvider(self.access, NoBodies(), INSTALLATION)
        self.reported: list[str] = []

    def do(self, step: Step) -> str:
        try:
            said = str(self._do(step))
        except (OrchError, ApiError, KeyError) as error:
            said = f"{type(error).__name__} {error}"
        self.reported.append(said)
        return said

    def _do(self, step: Step) -> object:
        provider, name = self.provider, f"demo-{step.number}"
        if step.verb == "create":
            market = MARKETS[step.other % len(MARKETS)]
            zone = "sim-b" if step.other >= len(MARKETS) else "sim-a"
            spec = make_spec(name, f"t-{step.number}-{step.other}", 1 + step.number % 3, market, zone)
            return provider.create(spec, make_keys(1 + step.number % 3))
        if step.verb in ("observe", "end", "stop", "start"):
            return getattr(provider, step.verb)(name)
        if step.verb == "owned":
            return provider.owned(INSTALLATION)
        if step.verb == "advance":
            return self.clock.advance(step.seconds)
        with self.access.open() as cloud:
            return _directly(cloud, step, name)


def _directly(cloud: SimulatedCloud, step: Step, name: str) -> object:
    queued = f"queued-{step.number}"
    if step.verb == "queue":
        node = CreateCall(
            name=f"node-{step.number}-{step.other}", zone="sim-a", accelerator="v5e", hosts=2, market="spot"
        )
        return cloud.queue(
            QueueCall(
                name=queued, node=node, request_id=f"r-{step.number}-{step.other}", valid_for=step.seconds or None
            )
        )
    if step.verb == "unqueue":
        return cloud.delete_queued(queued, force=bool(step.other))
    return cloud.do(name, DEEDS[step.other], rank=0, notice=step.seconds)


scenarios = st.builds(
    Scenario,
    seed=st.integers(0, 2**63),
    pools=st.sampled_from([(), POOLS]),
    quotas=st.sampled_from([(), QUOTAS]),
    reservations=st.just(HELD),
    spot_life=st.sampled_from([0.0, 120.0]),
    lag=st.sampled_from([0.0, 15.0]),
    page=st.integers(1, 4),
    faults=st.lists(
        st.builds(
            Fault,
            call=st.sampled_from(["*", "create", "end", "get", "list", "start", "stop"]),
            kind=st.sampled_from(API_FAULTS),
            rate=st.sampled_from([0.1, 0.4]),
            seconds=st.sampled_from([5.0, 60.0]),
        ),
        max_size=4,
    ).map(tuple),
)


class CloudMachine(RuleBasedStateMachine):
    """The invariants are checked after every step."""

    @initialize(scenario=scenarios)
    def begin(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.driven = Driven(scenario)
        self.steps: list[Step] = []
        self.absent_at: dict[str, float] = {}
        with self.driven.access.open() as cloud:
            cloud.seed_foreign("demo-2", {"orch-installation": "another"}, zone="us-west4-a")
            cloud.seed_foreign("bare", zone="us-west4-a")

    def step(self, *fields: object) -> str:
        step = Step(*fields)  # type: ignore[arg-type]  # fields of Step
        self.steps.append(step)
        return self.driven.do(step)

    @rule(number=numbers, other=st.integers(0, 4))
    def create(self, number: int, other: int) -> None:
        self.step("create", number, other)

    @rule(verb=st.sampled_from(["observe", "end", "stop", "start"]), number=numbers)
    def ask(self, verb: str, number: int) -> None:
        self.step(verb, number)

    @rule()
    def owned(self) -> None:
        self.step("owned")

    @rule(seconds=st.sampled_from([0.5, 7.0, 30.0, 61.0, 600.0]))
    def advance(self, seconds: float) -> None:
        self.step("advance", 0, 0, seconds)

    @rule(number=numbers, deed=st.integers(0, len(DEEDS) - 1), notice=st.sampled_from([0.0, 30.0]))
    def befall(self, number: int, deed: int, notice: float) -> None:
        self.step("do", number, deed, notice)

    @rule(number=numbers, other=st.integers(0, 1), seconds=st.sampled_from([0.0, 100.0]))
    def queue(self, number: int, other: int, seconds: float) -> None:
        self.step("queue", number, other, seconds)

    @rule(number=numbers, force=st.integers(0, 1))
    def unqueue(self, number: int, force: int) -> None:
        self.step("unqueue", number, force)

    @precondition(lambda self: not self.scenario.lag)
    @rule(number=numbers)
    def absent_is_never_said_of_what_lives(self, number: int) -> None:
        state = self.driven.provider.observe(f"demo-{number}").state
        self.steps.append(Step("observe", number))
        with self.driven.access.open() as cloud:
            lives = any(look.name == f"demo-{number}" for look in cloud.live())
        assert not (state is SliceState.ABSENT and lives)

    @property
    def world(self) -> World:
        with self.driven.access.open() as cloud:
            return cloud.host_world()

    @invariant()
    def one_token_makes_one_resource(self) -> None:
        tokens = Counter(resource.token for resource in self.world.state.resources.values() if resource.token)
        assert all(count == 1 for count in tokens.values()), tokens

    @invariant()
    def one_name_lives_once_in_a_zone(self) -> None:
        state = self.world.state
        living = [resource for resource in state.resources.values() if resource.phase is not Phase.ABSENT]
        assert {f"{resource.zone}/{resource.name}": resource.uid for resource in living} == state.names
        assert len(living) == len(state.names)

    @invariant()
    def capacity_quota_and_reservations_are_never_overdrawn(self) -> None:
        world = self.world
        late = any(fault.kind is FaultKind.LATE_STOCKOUT for fault in self.scenario.faults)
        for pool in self.scenario.pools:
            assert late or capacity.used_of_pool(world, pool) <= pool.amount
        for held in self.scenario.reservations:
            assert late or capacity.used_of_reservation(world, held) <= held.amount

    @invariant()
    def phases_move_only_along_the_tables(self) -> None:
        state = self.world.state
        for resource in state.resources.values():
            phases = [Phase(phase) for _, phase in resource.past]
            assert phases[0] is Phase.CREATING
            assert phases[-1] is resource.phase
            assert all(after in MOVES[before] for before, after in pairwise(phases)), phases
            times = [at for at, _ in resource.past]
            assert times == sorted(times)
        for queued in state.queued.values():
            moves = [QueuePhase(phase) for _, phase in queued.past]
            assert all(after in QUEUE_MOVES[before] for before, after in pairwise(moves)), moves

    @invariant()
    def living_addresses_are_used_once(self) -> None:
        used = [host.address for look in self.world.living() if look.phase is Phase.READY for host in look.hosts]
        assert len(used) == len(set(used))

    @invariant()
    def nothing_foreign_is_touched(self) -> None:
        with self.driven.access.open() as cloud:
            assert cloud.trespasses() == ()

    @invariant()
    def state_survives_json(self) -> None:
        state = self.world.state
        assert CloudState.from_json(json.loads(json.dumps(state.to_json()))) == state

    def teardown(self) -> None:
        """The same steps on a new cloud, and on one in a file, give the same words and the same log."""
        if not hasattr(self, "driven"):
            return
        log = self._log(self.driven)
        with tempfile.TemporaryDirectory() as folder:
            for file in (None, Path(folder) / "cloud.json"):
                again = Driven(self.scenario, file)
                with again.access.open() as cloud:
                    cloud.seed_foreign("demo-2", {"orch-installation": "another"}, zone="us-west4-a")
                    cloud.seed_foreign("bare", zone="us-west4-a")
                for step in self.steps:
                    again.do(step)
                assert self._log(again) == log

    @staticmethod
    def _log(driven: Driven) -> object:
        with driven.access.open() as cloud:
            cloud.advance()
            return cloud.calls(), json.dumps(cloud.state.to_json())


TestSimulatorMachine = CloudMachine.TestCase
# No shrinking: each history is replayed twice, and thirty steps can be read as they are.
TestSimulatorMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, phases=set(Stage) - {Stage.shrink}
)


@pytest.mark.promise("P2")
@given(scenario=scenarios, tries=st.integers(2, 6))
@settings(max_examples=100, deadline=None)
def test_create_repeated_until_it_is_answered_makes_one_slice(scenario: Scenario, tries: int) -> None:
    driven = Driven(scenario)
    for _ in range(tries):
        try:
            driven.provider.create(make_spec(), make_keys(2))
        except CapacityError:
            pass
        except OrchError:
            driven.clock.advance(3)
    driven.clock.advance(3600)
    with driven.access.open() as cloud:
        cloud.advance()
        assert len(cloud.made_for("token-1")) <= 1


def test_harness_sees_the_second_slice_where_tokens_are_not_honoured() -> None:
    careless = Scenario(honour_tokens=False, faults=(Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(1,)),))
    driven = Driven(careless)
    assert "not known whether it acted" in driven.do(Step("create"))
    driven.do(Step("create"))
    with driven.access.open() as cloud:
        assert len(cloud.made_for("t-0-0")) == 2
