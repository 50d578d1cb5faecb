"""What every provider promises (orchestrator/providers/protocol.py), asked of each of them.

A new provider adds one line to CASES: a function that yields a Case for an empty folder and cleans up after itself.
A provider without `Stops` or `Preempts` simply lacks the methods; the tests for those see that and pass it by.
Clouds are simulated: the real providers ask their fronts, each over its vendor's client library and a socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from provider_support import INSTALLATION, clear, make_keys, make_spec, make_world
from support.aws_cloud import EFA, aws_candidate
from support.compute_front import COMPUTE, GROUP, SEVERAL, ZONE, compute_candidate
from support.ec2_front import EC2
from support.front_home import Front
from support.google_cloud import tpu_candidate
from support.plain_machines import NeutralMachines
from support.tpu_front import TPU_API
from support.zones import EVERY_TYPE

from orchestrator.clock import RealClock
from orchestrator.drivers import has_part, list_driver_names
from orchestrator.engine.loop.slice_actions import request_text
from orchestrator.errors import CannotStopError, CloudError, ConflictError, OrchError
from orchestrator.providers import registry
from orchestrator.providers.core.plain import PlainPlanner, open_plain_provider
from orchestrator.providers.hosts.machines import OwnHost, to_details
from orchestrator.providers.protocol import Finishes, HasPlaces, Planner, Preempts, Provider, Stops
from orchestrator.providers.records import FolderRecords
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.scenario import Durations, Scenario
from orchestrator.slices import Candidate, Market, OnDemand, Owned, SliceKeys, SliceSpec, SliceState, SliceView, Spot
from orchestrator.values import Text, Unknown

pytestmark = pytest.mark.core

WAIT = 60.0  # seconds a provider under test may take for any step
UNDER_WAY = {SliceState.CREATING, SliceState.STARTING, SliceState.STOPPING, SliceState.ENDING}
INTENT = "orch-intent"  # the label that says which record wants a slice
BRIEF = Durations(create=0.02, end=0.02, stop=0.02, start=0.02, detect=0.02, queue=0.01, jitter=0.0)


@dataclass(frozen=True, slots=True)
class Case:
    """One provider with a slice to make.

    Attributes:
        opened: Return a provider that keeps its records in this folder.
        stops: Whether its machines can be stopped and kept.
    """

    planner: Planner
    provider: Provider
    opened: Callable[[Path], Provider]
    state: Path
    spec: SliceSpec
    keys: SliceKeys
    stops: bool = True

    def reopen(self) -> Provider:
        """A second provider with the same state, as another command would have it."""
        return self.opened(self.state)

    def asking(self, token: Text) -> SliceSpec:
        """The same slice, wanted by another record."""
        labels = tuple(label for label in self.spec.labels if label[0] != INTENT)
        return replace(self.spec, token=token, labels=(*labels, (INTENT, token)))

    def settled(self, provider: Provider | None = None) -> SliceView:
        """What the provider says once nothing is under way any more."""
        deadline = time.monotonic() + WAIT
        while True:
            view = _finished(provider or self.provider, self.spec.name)
            if view.state not in UNDER_WAY:
                return view
            assert time.monotonic() < deadline, view
            time.sleep(0.01)

    def ended(self) -> SliceView:
        """End the slice, and return what the provider says once nothing is under way any more."""
        self.provider.end(self.spec.name)
        return self.settled()

    def created(self) -> SliceView:
        self.provider.create(self.spec, self.keys)
        view = self.settled()
        assert view.state is SliceState.READY, view
        return view


def _finished(provider: Provider, name: str, token: str = "") -> SliceView:
    """Return the view as the engine's loop has it, which takes the steps that are due."""
    view = provider.observe(name, token)
    return provider.finish(name, token) if view.due and isinstance(provider, Finishes) else view


def _case(
    name: str, opened: Callable[[Path], Provider], state: Path, spec: SliceSpec, keys: SliceKeys, *, stops: bool = True
) -> Case:
    return _make_case(registry.load_planner(name), opened, state, spec, keys, stops=stops)


def _make_case(
    planner: Planner, opened: Callable[[Path], Provider], state: Path, spec: SliceSpec, keys: SliceKeys, *, stops: bool
) -> Case:
    labels = (*spec.labels, (INTENT, spec.token))
    return Case(planner, opened(state), opened, state, replace(spec, labels=labels), keys, stops)


@contextmanager
def _local(folder: Path) -> Generator[Case]:
    world = make_world(folder)
    try:
        yield _case("local", partial(registry.open_provider, "local"), world.state, world.spec, world.keys)
    finally:
        clear(world)


@contextmanager
def _hosts(folder: Path) -> Generator[Case]:
    keys = replace(make_keys(folder / "keys", 0), host_private=(), host_public=())
    machines = [OwnHost(host=f"192.0.2.{number}", user="someone", key=keys.identity_file) for number in (1, 2)]
    candidate = Candidate(
        provider="hosts", accelerator="cpu", hosts=2, chips_per_host=0, market=Owned(), details=to_details(machines)
    )
    spec = make_spec(candidate=candidate)
    yield _case("hosts", partial(registry.open_provider, "hosts"), folder / "state", spec, keys)


@contextmanager
def _simulated(folder: Path) -> Generator[Case]:
    def opened(state: Path) -> Provider:
        return SimulatedProvider(Durable(state / "cloud.json", Scenario(durations=BRIEF), RealClock()), NoBodies())

    candidate = Candidate(
        provider="simulated", accelerator="v5e", hosts=2, chips_per_host=4, market=OnDemand(), zone="sim-a"
    )
    yield _case("simulated", opened, folder / "state", make_spec(candidate=candidate), make_keys(folder / "keys", 2))


@contextmanager
def _plain(candidate: Candidate, folder: Path, *, stops: bool = True) -> Generator[Case]:
    """A cloud that makes one machine by one request, on the neutral simulator."""
    name = candidate.provider
    planner = cast(PlainPlanner, registry.load_planner(name)) if has_part(name, "service") else PlainPlanner(name)
    service = NeutralMachines(Durable(folder / "cloud.json", Scenario(durations=BRIEF), RealClock()))

    def opened(state: Path) -> Provider:
        return open_plain_provider(planner, service, FolderRecords(state / "plain"))

    keys = make_keys(folder / "keys", candidate.hosts)
    yield _make_case(planner, opened, folder / "state", make_spec(candidate=candidate), keys, stops=stops)


def _plain_candidate(hosts: int, market: Market, provider: str = "plain") -> Candidate:
    return Candidate(
        provider=provider, accelerator="small", hosts=hosts, chips_per_host=0, market=market, region="sim", zone="sim-a"
    )


@contextmanager
def _served(front: Front, candidate: Candidate, folder: Path, *, stops: bool = True) -> Generator[Case]:
    scenario = Scenario(zones=front.to_zones(candidate.zone), pools=EVERY_TYPE, durations=BRIEF)
    with front.serve(Durable(folder / "cloud" / "cloud.json", scenario, RealClock())) as server:
        keys = make_keys(folder / "keys", candidate.hosts)
        opened = partial(front.provider, server.url)
        spec = make_spec(candidate=candidate)
        yield _case(front.provider_name, opened, folder / "state", spec, keys, stops=stops)


CASES: dict[str, Callable[[Path], AbstractContextManager[Case]]] = {
    "local": _local,
    "hosts": _hosts,
    "simulated": _simulated,
    "plain, one machine": partial(_plain, _plain_candidate(1, OnDemand())),
    "plain, a cluster": partial(_plain, _plain_candidate(3, OnDemand())),
    "plain, spot": partial(_plain, _plain_candidate(2, Spot()), stops=False),
    **{
        f"{name}, a cluster": partial(_plain, _plain_candidate(2, OnDemand(), name))
        for name in list_driver_names()
        if has_part(name, "service")
    },
    "gcp, one host": partial(_served, TPU_API, tpu_candidate("v4-8")),
    "gcp, a slice of hosts": partial(_served, TPU_API, tpu_candidate("v4-16"), stops=False),
    "gcp, a queued resource": partial(_served, TPU_API, tpu_candidate("v4-16", Spot()), stops=False),
    "gcp, two slices": partial(_served, TPU_API, tpu_candidate("v4-16", slices=2), stops=False),
    "gcp, an instance": partial(_served, COMPUTE, compute_candidate(1)),
    "gcp, several instances": partial(_served, COMPUTE, compute_candidate(SEVERAL), stops=False),
    "gcp, an instance group": partial(_served, COMPUTE, compute_candidate(GROUP), stops=False),
    "gcp, a CPU machine": partial(_served, COMPUTE, tpu_candidate("e2-standard-4", zone=ZONE)),
    "gcp, CPU machines": partial(_served, COMPUTE, tpu_candidate("n2-standard-2", zone=ZONE, slices=2), stops=False),
    "gcp, GPUs of spot": partial(_served, COMPUTE, tpu_candidate("a2-ultragpu-1g", Spot(), zone=ZONE), stops=False),
    "aws, one host": partial(_served, EC2, aws_candidate()),
    "aws, a cluster": partial(_served, EC2, aws_candidate(EFA, hosts=2)),
    "aws, spot": partial(_served, EC2, aws_candidate(EFA, Spot(), hosts=2), stops=False),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    make = cast(Callable[[Path], AbstractContextManager[Case]], request.param)
    with make(tmp_path) as case:
        yield case


def test_what_was_never_created_is_absent_and_its_end_succeeds(case: Case) -> None:
    assert case.provider.observe(case.spec.name) == SliceView(state=SliceState.ABSENT)
    case.provider.end(case.spec.name)
    assert case.settled().state is SliceState.ABSENT
    assert case.provider.owned(INSTALLATION) == ()


def test_created_slice_has_all_its_hosts_in_rank_order(case: Case) -> None:
    hosts = case.created().hosts
    assert [host.rank for host in hosts] == list(range(case.spec.candidate.hosts))
    assert len({host.alias for host in hosts}) == len(hosts)
    for host in hosts:
        assert host.alias == host.alias.lower()
        assert host.host not in host.alias, "an address is reused by other machines, an alias never"
        assert host.internal_ip
        assert host.user
        assert host.identity_file.exists()


def test_hosts_carry_the_keys_that_were_made_for_them(case: Case) -> None:
    hosts = case.created().hosts
    expected = list(case.keys.host_public) or [None] * len(hosts)
    assert [host.host_key for host in hosts] == expected
    assert {str(host.known_hosts) for host in hosts} == {case.keys.known_hosts}


def test_create_asked_twice_makes_one_slice(case: Case) -> None:
    first = case.created()
    second = case.reopen()
    second.create(case.spec, case.keys)
    assert case.settled(second) == first
    assert len(case.provider.owned(INSTALLATION)) == 1


def test_name_taken_by_another_token_is_a_conflict(case: Case) -> None:
    first = case.created()
    with pytest.raises(ConflictError) as caught:
        case.provider.create(case.asking(Text.of("quite another")), case.keys)
    assert caught.value.next_step
    assert case.settled() == first


def test_another_command_sees_the_same(case: Case) -> None:
    assert case.settled(case.reopen()).state is SliceState.ABSENT
    first = case.created()
    assert case.settled(case.reopen()) == first


def test_ended_slice_is_absent_for_everybody_and_can_be_ended_again(case: Case) -> None:
    case.created()
    assert case.ended().state is SliceState.ABSENT
    case.reopen().end(case.spec.name)
    assert case.settled(case.reopen()).state is SliceState.ABSENT
    assert case.provider.owned(INSTALLATION) == ()


def test_name_can_be_used_again_after_the_end(case: Case) -> None:
    before = case.created()
    assert case.ended().state is SliceState.ABSENT
    case.provider.create(case.asking(Text.of("the next")), case.keys)
    after = case.settled()
    assert after.state is SliceState.READY
    assert [host.rank for host in after.hosts] == [host.rank for host in before.hosts]
    assert [host.host_key for host in after.hosts] == [host.host_key for host in before.hosts]


def test_owned_slice_is_found_by_its_label_and_by_no_other(case: Case) -> None:
    before = time.time()
    case.created()
    (found,) = case.provider.owned(INSTALLATION)
    assert (found.name, found.cluster, found.installation) == (case.spec.name, case.spec.cluster, INSTALLATION)
    assert found.state is SliceState.READY
    assert before - 1 <= found.created <= time.time() + 1
    assert case.provider.owned("somebody else") == ()
    assert case.provider.owned("") == (found,), "of any installation"


def test_a_place_is_searched_without_records(case: Case, tmp_path: Path) -> None:
    """After the loss of the state folder, the places that are left still show the slice, and end exactly that one."""
    lost = case.opened(tmp_path / "lost")
    if not isinstance(lost, HasPlaces):
        assert not hasattr(lost, "places")
        return
    case.created()
    (place,) = lost.places(named=True)
    provider = lost.at(place)
    (found,) = provider.owned("")
    assert (found.name, found.intent) == (case.spec.name, case.spec.token.reveal())
    assert found.machine and found.count
    provider.end(found.name, "another token")
    assert case.settled().state is SliceState.READY
    provider.end(found.name, found.intent)
    deadline = time.monotonic() + WAIT
    while _finished(provider, found.name, found.intent).state is not SliceState.ABSENT or provider.owned(""):
        assert time.monotonic() < deadline
        provider.end(found.name, found.intent)
        time.sleep(0.01)


def test_an_end_that_means_another_slice_of_this_name_touches_nothing(case: Case) -> None:
    if case.provider.name in ("hosts", "simulated"):
        return  # names are unique there, and nothing is lost with the record
    before = case.created()
    case.provider.end(case.spec.name, "another token")
    assert case.settled() == before
    assert case.provider.observe(case.spec.name, "another token").state is SliceState.ABSENT


def test_token_that_is_not_known_yet_is_never_sent(case: Case) -> None:
    with pytest.raises((ValueError, OrchError)):
        case.provider.create(case.asking(Text.of(Unknown("id"), "-1")), case.keys)
    assert case.settled().state is SliceState.ABSENT


def test_stopped_slice_is_started_again_with_the_same_identity(case: Case) -> None:
    provider = case.provider
    if not isinstance(provider, Stops):
        assert not hasattr(provider, "stop")
        return
    before = case.created()
    if not case.stops:
        for refused in (
            lambda: provider.stop(case.spec.name),
            lambda: case.planner.stop_request(case.spec.name, case.spec.candidate),
        ):
            with pytest.raises(CannotStopError) as caught:
                refused()
            assert caught.value.why, "the command that names the cluster adds the next step"
        assert case.settled() == before
        return
    provider.stop(case.spec.name)
    stopped = case.settled()
    assert replace(stopped, reason="") == SliceView(state=SliceState.STOPPED, installation=stopped.installation)
    assert stopped.installation == before.installation
    assert [owned.state for owned in case.provider.owned(INSTALLATION)] == [SliceState.STOPPED]
    provider.start(case.spec.name)
    after = case.settled()
    assert after.state is SliceState.READY
    assert [host.alias for host in after.hosts] == [host.alias for host in before.hosts]
    case.provider.end(case.spec.name)


def test_slice_that_lost_one_host_is_preempted_as_a_whole(case: Case) -> None:
    provider = case.provider
    if not isinstance(provider, Preempts):
        assert not hasattr(provider, "preempt")
        return
    case.created()
    provider.preempt(case.spec.name, 1)
    view = case.settled()
    assert view.state is SliceState.PREEMPTED
    assert view.hosts == ()
    assert view.reason
    case.provider.end(case.spec.name)
    assert case.settled().state is SliceState.ABSENT


def test_state_that_cannot_be_written_is_an_error_of_ours(case: Case, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    provider = case.opened(tmp_path / "file" / "state")
    with pytest.raises(CloudError, match="Not a directory"):
        provider.create(case.spec, case.keys)
    assert provider.observe(case.spec.name).state is SliceState.UNCLEAR
    if not isinstance(case.planner, PlainPlanner):  # such a cloud is listed by labels alone
        with pytest.raises(CloudError):
            provider.owned(INSTALLATION)


def test_requests_are_whole_and_need_nothing_that_is_known_later(case: Case) -> None:
    """Each names the slice; the create says for which record, or that this is not known yet."""
    name, candidate = case.spec.name, case.spec.candidate
    create, end = case.planner.create_request(case.spec), case.planner.end_request(name, candidate)
    assert name in request_text(create) and name in end.target
    assert (create.method, create.target) != (end.method, end.target)
    assert case.spec.token.reveal() in request_text(create)
    unknown = Text.of(Unknown("the token of tests"), "-1")
    later = request_text(case.planner.create_request(case.asking(unknown)))
    assert unknown.preview() in later
    assert case.spec.token.reveal() not in later


def test_what_a_host_is_told_names_each_variable_once(case: Case) -> None:
    names = [name for name, _ in case.planner.host_facts(case.spec.candidate).env]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
