"""A simulated cloud for tests: a clock that stands still, a provider, and short ways to ask for things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.simulator.access import InMemory
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.calls import ApiError, Code, CreateCall
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.hands import SimulatedHands
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Scenario
from orchestrator.slices import Candidate, Market, OnDemand, SliceKeys, SliceSpec, SliceState
from orchestrator.values import Text

INSTALLATION = "ours"
EVEN = Durations(jitter=0.0)  # create 40 s, end 20 s, stop 20 s, start 30 s, to the second
CALL = CreateCall(
    name="demo-1",
    zone="sim-a",
    accelerator="v5e",
    hosts=2,
    token="token-1",
    chips_per_host=4,
    labels={"orch-installation": INSTALLATION},
)
SPOT = replace(CALL, market="spot")


@dataclass(frozen=True)
class Sim:
    clock: ManualClock
    access: InMemory
    provider: SimulatedProvider

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    def ready(self, call: CreateCall = CALL) -> None:
        """Create it and let it come up."""
        self.cloud.create(call)
        self.clock.advance(41)
        assert self.phase(call.name) == "ready"

    def phase(self, name: str = "demo-1") -> str:
        """The cloud's own truth, without a call in the audit log; "absent" when it is gone."""
        return next((look.phase.value for look in self.cloud.live() if look.name == name), "absent")

    def launch(self, spec: SliceSpec | None = None) -> SimulatedHands:
        """Through the provider: create, wait, and the hands for its hosts."""
        spec = spec or make_spec()
        self.provider.create(spec, make_keys(spec.candidate.hosts))
        self.clock.advance(41)
        return self.hands(spec.name)

    def hands(self, name: str = "demo-1") -> SimulatedHands:
        view = self.provider.observe(name)
        assert view.state is SliceState.READY, view
        return SimulatedHands(self.access, view.hosts)


def make_sim(*faults: Fault, durations: Durations = EVEN, **fields: object) -> Sim:
    clock = ManualClock()
    scenario = Scenario(durations=durations, faults=faults, **fields)  # type: ignore[arg-type]  # fields of Scenario
    access = InMemory(scenario, clock)
    return Sim(clock, access, SimulatedProvider(access, NoBodies()))


def fault(call: str, kind: FaultKind, nth: int = 1, **fields: object) -> Fault:
    return Fault(call=call, kind=kind, nth=(nth,), **fields)  # type: ignore[arg-type]  # fields of Fault


def make_spec(
    name: str = "demo-1", token: str = "token-1", hosts: int = 2, market: Market | None = None, zone: str = "sim-a"
) -> SliceSpec:
    cluster = name.rpartition("-")[0]
    labels = {"orch-installation": INSTALLATION, "orch-cluster": cluster, "orch-intent": token}
    return SliceSpec(
        cluster=cluster,
        name=name,
        token=Text.of(token),
        candidate=Candidate(
            provider="simulated",
            accelerator="v5e",
            hosts=hosts,
            chips_per_host=4,
            market=market or OnDemand(),
            zone=zone,
        ),
        labels=tuple((key, Text.of(value)) for key, value in labels.items()),
    )


def make_keys(hosts: int, folder: Path = Path("keys")) -> SliceKeys:
    """Return keys that are not real: no client connects with them."""
    public = tuple(f"ssh-ed25519 AAAA{rank}" for rank in range(hosts))
    private = tuple(f"private {rank}" for rank in range(hosts))
    return SliceKeys(
        user_public="ssh-ed25519 USER",
        identity_file=str(folder / "id"),
        known_hosts=str(folder / "known_hosts"),
        host_private=private,
        host_public=public,
    )


def refusal(deed: Callable[[], object]) -> Code:
    """The code of the error that this call must end with."""
    try:
        deed()
    except ApiError as error:
        return error.code
    raise AssertionError("the call was not refused")
