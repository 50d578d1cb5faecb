"""The provider core is killed at every call of the cloud and every write of a record, before and after it.

Whatever it was doing, the same command repeated completes the same slice, and an end leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from provider_support import INSTALLATION, make_keys, make_spec
from support.plain_machines import NeutralMachines

from orchestrator.errors import CapacityError, CloudError, ConflictError
from orchestrator.providers.core.plain import Machine, MachineService, PlainPlanner, PlainRecord, open_plain_provider
from orchestrator.providers.core.provider import StoppableProvider
from orchestrator.providers.records import FolderRecords, Records
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Fault, FaultKind, Scenario
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, SliceState

HOSTS = 2
SETTLED = 200.0  # seconds: longer than a lost request may be on its way
MOST_POINTS = 60
BRIEF = Durations(create=1.0, end=1.0, stop=1.0, start=1.0, jitter=0.0)


class Killed(BaseException):
    """The process ends here: no handler of the product catches it."""


@dataclass
class Killer:
    """Kills at the given point; points are counted by name as they are passed."""

    at: int = -1
    passed: list[str] = field(default_factory=list[str])

    def point(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.at:
            raise Killed(name)

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        self.point(f"before {name}")
        found = work()
        self.point(f"after {name}")
        return found


class KilledRecords:
    """Records of which every write may be the last thing that the process does."""

    def __init__(self, inner: Records, killer: Killer) -> None:
        self._inner, self._killer = inner, killer
        self.folder = inner.folder

    def read(self, name: str) -> str | None:
        return self._inner.read(name)

    def put(self, name: str, text: str) -> None:
        self._killer.around(f"put {self.folder.name}", lambda: self._inner.put(name, text))

    def drop(self, name: str) -> None:
        self._killer.around(f"drop {self.folder.name}", lambda: self._inner.drop(name))

    def names(self) -> list[str]:
        return self._inner.names()

    def place(self, name: str) -> str:
        return self._inner.place(name)

    def beside(self, kind: str) -> Records:
        return KilledRecords(self._inner.beside(kind), self._killer)


class KilledService(MachineService):
    """A service of which every call may be the last thing that the process does."""

    errors = NeutralMachines.errors

    def __init__(self, inner: MachineService, killer: Killer) -> None:
        self._inner, self._killer = inner, killer

    def create(self, body: Mapping[str, Any]) -> Machine:
        made: Machine = self._killer.around("create", lambda: self._inner.create(body))
        return made

    def list_machines(self, labels: Mapping[str, str]) -> Sequence[Machine]:
        return self._inner.list_machines(labels)

    def delete(self, identity: str) -> None:
        self._killer.around("delete", lambda: self._inner.delete(identity))

    def stop(self, identity: str) -> None:
        self._killer.around("stop", lambda: self._inner.stop(identity))

    def start(self, identity: str) -> None:
        self._killer.around("start", lambda: self._inner.start(identity))


@dataclass
class Bench:
    """One simulated account, and commands that act on it one after another."""

    folder: Path
    faults: tuple[Fault, ...] = ()
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.access = InMemory(Scenario(durations=BRIEF, faults=self.faults), self.clock)
        candidate = Candidate(
            provider="plain", accelerator="small", hosts=HOSTS, chips_per_host=0, market=OnDemand(), zone="sim-a"
        )
        self.spec: SliceSpec = make_spec(candidate=candidate)
        self.keys: SliceKeys = make_keys(self.folder / "keys", HOSTS)

    def provider(self, killer: Killer | None = None) -> StoppableProvider[PlainRecord]:
        killer = killer or Killer()
        service = KilledService(NeutralMachines(self.access), killer)
        records = KilledRecords(FolderRecords(self.folder / "plain"), killer)
        return open_plain_provider(PlainPlanner("plain"), service, records, self.clock.now)

    def create(self, killer: Killer | None = None) -> None:
        self.provider(killer).create(self.spec, self.keys)

    def end(self, killer: Killer | None = None) -> None:
        self.provider(killer).end(self.spec.name)

    def state(self) -> SliceState:
        self.clock.advance(SETTLED)
        return self.provider().observe(self.spec.name).state

    def machines(self) -> int:
        return len(self.access.cloud.live())

    def made(self) -> int:
        return len(self.access.cloud.made())


def kill_at_each_point(bench: Callable[[], Bench], prepare: str, verb: str) -> Iterator[tuple[Bench, str]]:
    """Yield a fresh bench after each kill of the verb, with the name of the point."""
    for at in range(1, MOST_POINTS):
        one, killer = bench(), Killer(at)
        if prepare:
            getattr(one, prepare)()
            one.clock.advance(SETTLED)
        try:
            getattr(one, verb)(killer)
        except Killed as killed:
            yield one, str(killed)
        else:
            assert at > 4, f"{verb} has more points than these: {killer.passed}"
            return
    raise AssertionError(f"{verb} does not come to an end")


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Bench]:
    folders = iter(range(1000))
    return lambda: Bench(tmp_path / str(next(folders)))


def test_a_killed_create_is_completed_by_the_same_command(fresh: Callable[[], Bench]) -> None:
    for bench, point in kill_at_each_point(fresh, "", "create"):
        bench.create()
        assert bench.state() is SliceState.READY, point
        assert bench.machines() == bench.made() == HOSTS, point


def test_a_killed_create_is_ended_completely(fresh: Callable[[], Bench]) -> None:
    for bench, point in kill_at_each_point(fresh, "", "create"):
        bench.state()
        bench.end()
        assert bench.state() is SliceState.ABSENT, point
        assert bench.machines() == 0, point


def test_a_create_killed_twice_in_a_row_makes_no_second_machine(fresh: Callable[[], Bench]) -> None:
    for bench, point in kill_at_each_point(fresh, "", "create"):
        with suppress(Killed):
            bench.create(Killer(3))
        bench.create()
        assert bench.state() is SliceState.READY, point
        assert bench.made() == HOSTS, point


def test_a_killed_end_is_completed_by_the_same_command(fresh: Callable[[], Bench]) -> None:
    for bench, point in kill_at_each_point(fresh, "create", "end"):
        bench.end()
        assert bench.state() is SliceState.ABSENT, point
        assert bench.machines() == 0, point


def test_a_slice_whose_records_are_lost_is_ended_by_its_labels(fresh: Callable[[], Bench]) -> None:
    for bench, point in kill_at_each_point(fresh, "", "create"):
        bench.folder /= "lost"
        for one in bench.provider().owned(INSTALLATION):
            assert one.intent == bench.spec.token.reveal()
            bench.provider().end(one.name, one.intent)
        bench.clock.advance(SETTLED)
        assert bench.machines() == 0, point


@pytest.mark.parametrize("nth", [1, 2])
def test_an_answer_that_was_lost_is_found_out_before_the_next_step(tmp_path: Path, nth: int) -> None:
    bench = Bench(tmp_path, (Fault(call="create", kind=FaultKind.TIMEOUT_AFTER, nth=(nth,)),))
    bench.create()
    assert bench.state() is SliceState.READY
    assert bench.made() == HOSTS


@pytest.mark.parametrize("nth", [1, 2])
def test_a_request_that_was_lost_is_sent_again_by_the_next_command(tmp_path: Path, nth: int) -> None:
    bench = Bench(tmp_path, (Fault(call="create", kind=FaultKind.TIMEOUT_BEFORE, nth=(nth,)),))
    with pytest.raises(CloudError, match="not known whether it acted"):
        bench.create()
    bench.create()
    assert bench.state() is SliceState.READY
    assert bench.made() == HOSTS


def test_a_refusal_of_the_first_machine_leaves_nothing_and_frees_the_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (Fault(call="create", kind=FaultKind.NO_CAPACITY, nth=(1,)),))
    with pytest.raises(CapacityError):
        bench.create()
    assert bench.provider().observe(bench.spec.name).state is SliceState.ABSENT, "at once: nothing can arrive"
    bench.create()
    assert bench.state() is SliceState.READY


def test_a_refusal_of_a_later_machine_has_to_be_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (Fault(call="create", kind=FaultKind.NO_CAPACITY, nth=(2,)),))
    with pytest.raises(CloudError, match="only a part"):
        bench.create()
    assert bench.state() is not SliceState.ABSENT
    bench.end()
    assert bench.state() is SliceState.ABSENT
    assert bench.machines() == 0


def test_another_request_of_the_same_name_waits_until_the_name_is_free(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.create()
    first, bench.spec = bench.spec, make_spec(candidate=bench.spec.candidate, token="another")
    assert first.name == bench.spec.name
    with pytest.raises((ConflictError, CloudError)):
        bench.create()
    assert bench.made() == HOSTS


def test_a_refusal_after_a_request_that_may_still_arrive_proves_no_absence(tmp_path: Path) -> None:
    late = Fault(call="create", kind=FaultKind.LATE, nth=(1,), seconds=60.0)
    bench = Bench(tmp_path, (late, Fault(call="create", kind=FaultKind.NO_CAPACITY, nth=(2,))))
    with pytest.raises(CloudError, match="not known whether it acted"):
        bench.create()
    assert bench.provider().observe(bench.spec.name).state is SliceState.UNCLEAR, "it may still arrive"
    with pytest.raises(CapacityError):
        bench.create()
    assert bench.provider().observe(bench.spec.name).state is not SliceState.ABSENT
    assert bench.state() is not SliceState.ABSENT, "the machine of the first request has arrived"
    bench.end()
    assert bench.state() is SliceState.ABSENT
    assert bench.machines() == 0
