"""The real engine in a simulated world that tests own: its clock, its cloud, and named points at which it may die.

All state lies below one folder (store, keys, logs, bucket, cloud), but for the clock, which is memory that forked
children share: a killed child leaves the time as it was at its death.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy.engine.default import DefaultDialect
from support.driving import Listener, local_task

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.services import Services
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.protocol import Provider
from orchestrator.providers.records import Records
from orchestrator.remote.host_operations import HostOperations
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import NoBodies
from orchestrator.simulator.calls import CreateCall
from orchestrator.simulator.clock import START
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.hands import SimulatedHands
from orchestrator.simulator.provider import SimulatedProvider
from orchestrator.simulator.scenario import Durations, Scenario
from orchestrator.slices import Candidate, Market, OnDemand, SliceKeys, SliceSpec, Spot
from orchestrator.store import batches
from orchestrator.store.location import store_location
from orchestrator.store.provider_records import StoredRecords
from orchestrator.task.model import Task

QUICK = Durations(create=0.4, end=0.3, stop=0.3, start=0.3, contact=0.01, jitter=0.0)


class SharedClock:
    """A ManualClock in memory that forked children share."""

    def __init__(self, start: float = START) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.set(start)

    def now(self) -> float:
        return float(struct.unpack("d", self._memory[:8])[0])

    def set(self, now: float) -> None:
        self._memory[:8] = struct.pack("d", now)

    def sleep(self, seconds: float) -> None:
        self.set(self.now() + max(0.0, seconds))


class Points:
    """Named points, counted from 1 in the order in which they are passed; at the `deadly` one `strike` is called."""

    def __init__(self, strike: Callable[[str], None] | None = None, deadly: int = 0) -> None:
        self.names: list[str] = []
        self._strike, self._deadly = strike, deadly
        self._inside = ""

    def here(self, name: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # the lease's renewer: real time, and no part of the command's own steps
        self.names.append(name)
        if len(self.names) == self._deadly and self._strike is not None:
            self._strike(name)

    @contextlib.contextmanager
    def around(self, name: str) -> Generator[None]:
        """A call that changes something: before it, after it, and, by `acted`, between its deed and its answer."""
        self.here(f"before {name}")
        self._inside = name
        try:
            yield
        finally:
            self._inside = ""
        self.here(f"after {name}")

    def acted(self) -> None:
        if self._inside:
            self.here(f"inside {self._inside}")

    @contextlib.contextmanager
    def commits(self) -> Generator[None]:
        """Before and after every commit of the store, named by the change."""
        kinds = [(DefaultDialect, "do_commit"), (batches._Together, "commit")]  # a point that has no other name
        originals = [(kind, name, getattr(kind, name)) for kind, name in kinds]

        def counted(original: Callable[..., None]) -> Callable[..., None]:
            def commit(*given: Any) -> None:
                name = _change()
                self.here(f"before commit {name}")
                original(*given)
                self.here(f"after commit {name}")

            return commit

        for kind, name, original in originals:
            setattr(kind, name, counted(original))
        try:
            yield
        finally:
            for kind, name, original in originals:
                setattr(kind, name, original)


def _change() -> str:
    """The store's method that commits: the outermost function of its room on the stack."""
    frame, found = sys._getframe(2), "?"
    while frame is not None:
        file = frame.f_code.co_filename
        if "/orchestrator/store/" in file:
            found = frame.f_code.co_name
        elif "/orchestrator/engine/" in file:
            return found
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return found


class PointedAccess:
    """An Access that says when a step was kept: inside a changing call, that is between deed and answer."""

    def __init__(self, access: Access, points: Points) -> None:
        self._access, self._points = access, points

    @property
    def clock(self) -> Any:
        return self._access.clock

    @contextlib.contextmanager
    def open(self) -> Generator[SimulatedCloud]:
        with self._access.open() as cloud:
            yield cloud
        self._points.acted()


class PointedCalls:
    """Points around every call of a provider that changes something. The provider's class is the next base."""

    points = Points()

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        with self.points.around("create"):
            super().create(spec, keys)  # type: ignore[misc]  # the next base has it

    def end(self, name: str, token: str = "") -> None:
        with self.points.around("end"):
            super().end(name, token)  # type: ignore[misc]  # as above

    def stop(self, name: str) -> None:
        with self.points.around("stop"):
            super().stop(name)  # type: ignore[misc]  # as above

    def start(self, name: str) -> None:
        with self.points.around("start"):
            super().start(name)  # type: ignore[misc]  # as above


class PointedProvider(PointedCalls, SimulatedProvider):
    """The simulated provider, with points."""

    def __init__(self, access: Access, points: Points) -> None:
        super().__init__(PointedAccess(access, points), NoBodies())
        self.points = points


class PointedHands(SimulatedHands):
    """Simulated hands with points around every call that changes something."""

    def __init__(self, access: Access, hosts: tuple[HostAddress, ...], points: Points) -> None:
        super().__init__(PointedAccess(access, points), hosts)
        self._points = points

    def write_mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        with self._points.around(f"mark {label}"):
            return super().write_mark(label, digest, ranks)

    def sync_tree(self, *given: Any) -> tuple[HostOutcome, ...]:
        with self._points.around("sync"):
            return super().sync_tree(*given)

    def run_script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        with self._points.around("script"):
            return super().run_script(content, ranks)

    def start_job(self, job: str, *given: Any) -> tuple[HostOutcome, ...]:
        with self._points.around("start setup" if "setup" in job else "start program"):
            return super().start_job(job, *given)

    def kill_job(self, *given: Any) -> tuple[HostOutcome, ...]:
        with self._points.around("kill"):
            return super().kill_job(*given)


@dataclass
class SimHome:
    """One simulated world: use `world()` for the engine, `access` for the truth.

    provider_name: who rents the machines; a subclass has another.
    """

    access: Access
    points: Points = field(default_factory=Points)
    provider_name: ClassVar[str] = "simulated"

    @property
    def clock(self) -> Any:
        return self.access.clock

    def provider(self) -> Provider:
        return PointedProvider(self.access, self.points)

    def hands(self, hosts: tuple[HostAddress, ...], _pins: object) -> HostOperations:
        return PointedHands(self.access, hosts, self.points)

    def candidate(self, hosts: int = 2, *, spot: bool = False, other_zone: bool = False) -> Candidate:
        return sim_candidate(hosts, "sim-b" if other_zone else "sim-a", Spot() if spot else OnDemand())

    def orphan(self, name: str, installation: str) -> None:
        """A slice that this installation has made, and of which there is no record any more."""
        token = f"token-{name}"
        labels = {"orch-installation": installation, "orch-cluster": "lost", "orch-intent": token}
        with self.access.open() as cloud:
            cloud.create(
                CreateCall(
                    name=name, zone="sim-a", accelerator="v5e", hosts=2, token=token, chips_per_host=4, labels=labels
                )
            )

    def services(self) -> Services:
        provider = self.provider()
        return Services(provider=lambda _: provider, host_operations=self.hands, clock=self.clock, follows_logs=False)

    def drive(self, ready: PreparedCommand, *, follow: bool = True) -> CommandResult:
        with self.points.commits():
            return drive_cluster(ready, Listener(), follow=follow, services=self.services())

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        with self.access.open() as cloud:
            cloud.advance()


def sim_candidate(hosts: int = 2, zone: str = "sim-a", market: Market | None = None, **fields: Any) -> Candidate:
    return Candidate(
        provider="simulated",
        accelerator="v5e",
        hosts=hosts,
        chips_per_host=4,
        market=market or OnDemand(),
        zone=zone,
        **fields,
    )


def simulated(ready: PreparedCommand, *candidates: Candidate) -> PreparedCommand:
    """Return the same request for the simulated cloud."""
    if not isinstance(ready.desired, Run) or not ready.desired.create:
        return ready
    chosen = candidates or (sim_candidate(ready.desired.candidates[0].hosts),)
    return replace(ready, desired=replace(ready.desired, candidates=chosen))


def sim_task(**fields: Any) -> Task:
    return local_task(2, **{"run": "true", **fields})


def sim_launch(
    task: Task, *candidates: Candidate, cluster: str = "c", after: TeardownPolicy = TeardownPolicy.KEEP
) -> PreparedCommand:
    return simulated(commands.prepare_launch(task, cluster=cluster, after=after), *candidates)


def durable(root: Path, clock: SharedClock, **fields: Any) -> Access:
    from orchestrator.simulator.durable import Durable

    scenario = Scenario(**{"durations": QUICK, **fields})
    return Durable(root / "cloud" / "cloud.json", scenario, clock)


def stored_records(kind: str) -> Records:
    """Return where a provider of this home keeps its records: in the store, as every command does."""
    where = load_paths()
    return StoredRecords(lambda: store_location(os.environ, where))(where.state / kind)


def use_home(root: Path, server: str | None = None) -> None:
    """Keep all below `root`, and the store in the database at the address `server` when one is given."""
    os.environ["ORCH_HOME"] = str(root / "home")
    if server is None:
        os.environ.pop("ORCH_STORE", None)
    else:
        os.environ["ORCH_STORE"] = server
