"""Hands in memory: what the engine does on hosts, done to the hosts of the simulated cloud.

Everything lies in the cloud's state, so it outlives a client that is killed. Each method takes the scenario's `contact`
seconds once, however many hosts it contacts, because it contacts them in parallel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.hosts import EndedBy, Failure, HostAddress, HostJob, HostOutcome, JobPhase
from orchestrator.remote.host_operations import EnvFile, JobReport, MarksReport, Sink, StacksReport
from orchestrator.remote.jobs import signal_name
from orchestrator.remote.marks import mark_name
from orchestrator.simulator import faults, hosts
from orchestrator.simulator.access import Access
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Fault, FaultKind
from orchestrator.simulator.state import Host, Resource
from orchestrator.simulator.world import World

if TYPE_CHECKING:
    from orchestrator.remote.tree import Tree

PATIENCE = 10.0  # seconds in which `follow` tries to come back to a host that it lost, as the real one does

_Deed = Callable[[World, Resource, Host, int], None]  # the number: rank in the slice, which may be several resources


class SimulatedHands:
    """Host operations on the simulated cloud.

    Attributes:
        pause: Longest sleep of `follow_job` between two reads, in the clock's seconds.
    """

    def __init__(self, access: Access, addresses: tuple[HostAddress, ...], pause: float = 1.0) -> None:
        self._access = access
        self._addresses = addresses
        self._pause = pause

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        return self._addresses

    def read_job(self, job: str, ranks: Sequence[int] | None = None, *, chips: bool = False) -> JobReport:
        del chips  # simulated hosts have none
        jobs: dict[int, HostJob] = {}

        def look(world: World, _: Resource, host: Host, rank: int) -> None:
            jobs[rank] = replace(hosts.look_at(world, host, job), rank=rank)

        outcomes = self._each("look", ranks, look)
        seen = tuple(jobs[outcome.rank] for outcome in outcomes if outcome.ok)
        return JobReport(seen, tuple(outcome for outcome in outcomes if not outcome.ok))

    def read_marks(self, ranks: Sequence[int] | None = None) -> MarksReport:
        held: dict[int, Mapping[str, str]] = {}

        def read(_: World, __: Resource, host: Host, rank: int) -> None:
            held[rank] = dict(host.marks)

        outcomes = self._each("marks", ranks, read)
        seen = {outcome.rank: held[outcome.rank] for outcome in outcomes if outcome.ok}
        return MarksReport(seen, tuple(outcome for outcome in outcomes if not outcome.ok))

    def write_mark(self, label: str, digest: str, ranks: Sequence[int] | None = None) -> tuple[HostOutcome, ...]:
        def note(_: World, __: Resource, host: Host, ___: int) -> None:
            host.marks[mark_name(label)] = digest

        return self._each("mark", ranks, note)

    def sync_tree(
        self, tree: Tree, destination: str, ranks: Sequence[int], on_progress: Callable[[int, int], None]
    ) -> tuple[HostOutcome, ...]:
        def copy(_: World, __: Resource, host: Host, ___: int) -> None:
            host.trees[destination] = tree.digest

        outcomes = self._each("sync", ranks, copy)
        on_progress(1, 1)
        return outcomes

    def run_script(self, content: bytes, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Succeed without running the script, unless the scenario plants a fault."""
        del content
        return self._each("script", ranks, lambda _world, _resource, _host, _rank: None)

    def start_job(self, job: str, script: bytes, env: EnvFile, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        del script
        for address in self._addresses:
            env(address)  # what would be sent is made, so that its faults show

        return self._each("start", ranks, lambda world, resource, host, _: hosts.begin(world, resource, host, job))

    def kill_job(self, job: str, ended_by: EndedBy, grace: float, ranks: Sequence[int]) -> tuple[HostOutcome, ...]:
        """Kill the job; simulated programs end at TERM."""
        del grace
        return self._each("kill", ranks, lambda world, _, host, __: hosts.kill(world, host, job, ended_by))

    def follow_job(
        self,
        job: str,
        sink: Sink,
        offsets: Mapping[int, int],
        ranks: Sequence[int],
        *,
        stop: threading.Event | None = None,
        on_end: Callable[[HostOutcome], None] | None = None,
        on_away: Callable[[int], None] | None = None,
    ) -> tuple[HostOutcome, ...]:
        follower = _Follower(job, dict(offsets))
        open_hosts = {address.rank: address for address in self._addresses if address.rank in ranks}
        ended: dict[int, HostOutcome] = {}
        while open_hosts and not (stop is not None and stop.is_set()):
            blocks: list[tuple[HostAddress, bytes]] = []
            with self._access.open() as cloud:
                new = follower.look(cloud.host_world(), open_hosts, blocks)
                wait = self._until_next(cloud)
            for address, block in blocks:
                sink(address, block)
            for outcome in new:
                del open_hosts[outcome.rank]
                ended[outcome.rank] = outcome
                if on_end is not None:
                    on_end(outcome)
            if open_hosts and not (stop is not None and stop.is_set()):
                self._access.clock.sleep(wait)
        return tuple(ended[rank] for rank in sorted(ended))

    def collect_stacks(self, job: str, ranks: Sequence[int] | None = None) -> StacksReport:
        stacks: dict[int, bytes] = {}

        def dump(world: World, _: Resource, host: Host, rank: int) -> None:
            state = hosts.look_at(world, host, job)
            if state.phase is JobPhase.RUNNING:
                stacks[rank] = f"simulated program of rank {rank}, in step {state.step}\n".encode()

        outcomes = self._each("stacks", ranks, dump)
        return StacksReport(stacks, tuple(outcome for outcome in outcomes if not outcome.ok))

    def close(self) -> None:
        return

    def _until_next(self, cloud: SimulatedCloud) -> float:
        change = cloud.next_change()
        left = self._pause if change is None else change - cloud.state.now
        return min(self._pause, max(left, 0.01))

    def _each(self, verb: str, ranks: Sequence[int] | None, deed: _Deed) -> tuple[HostOutcome, ...]:
        """Do the same on each of these hosts, in one step of the cloud."""
        chosen = [address for address in self._addresses if ranks is None or address.rank in ranks]
        with self._access.open() as cloud:
            world = cloud.host_world()
            fault = faults.pick(world, f"host.{verb}")
            unlucky = None if fault is None or not chosen else _unlucky(fault, chosen)
            outcomes = tuple(
                _on_host(world, address, deed, fault if address.rank == unlucky else None) for address in chosen
            )
            contact = cloud.scenario.durations.contact
        if contact and chosen:
            self._access.clock.sleep(contact)
        return outcomes


class _Follower:
    """Follower of a job's logs: the offset of each host, and since when it does not answer."""

    def __init__(self, job: str, offsets: dict[int, int]) -> None:
        self._job, self._offsets = job, offsets
        self._lost: dict[int, float] = {}

    def look(
        self, world: World, open_hosts: Mapping[int, HostAddress], blocks: list[tuple[HostAddress, bytes]]
    ) -> list[HostOutcome]:
        """Append new output to `blocks` and return the outcomes of the hosts on which the job has ended."""
        found = (self._host(world, address, blocks) for address in open_hosts.values())
        return [outcome for outcome in found if outcome is not None]

    def _host(self, world: World, address: HostAddress, blocks: list[tuple[HostAddress, bytes]]) -> HostOutcome | None:
        rank, now = address.rank, world.state.now
        reached = hosts.reach(world, address)
        if isinstance(reached, Failure):
            since = self._lost.setdefault(rank, now)
            if reached is Failure.IDENTITY or now - since >= PATIENCE:
                return _failed(address, reached)
            return None
        self._lost.pop(rank, None)
        host = reached[1]
        offset = self._offsets.get(rank, 0)
        block = hosts.log_of(world, host, self._job)[offset:]
        if block:
            blocks.append((address, block))
            self._offsets[rank] = offset + len(block)
        return _ended(address, hosts.look_at(world, host, self._job))


def _on_host(world: World, address: HostAddress, deed: _Deed, fault: Fault | None) -> HostOutcome:
    reached = hosts.reach(world, address)
    if isinstance(reached, Failure):
        return _failed(address, reached)
    kind = fault.kind if fault is not None else None
    if kind is FaultKind.HOST_LOST_BEFORE:
        return _failed(address, Failure.LOST)
    if kind is FaultKind.HOST_FAILS:
        return HostOutcome(
            rank=address.rank, host=address.host, exit_code=1, last_line="the scenario says that this fails"
        )
    deed(world, *reached, address.rank)
    if kind is FaultKind.HOST_LOST_AFTER:
        return _failed(address, Failure.LOST)
    return HostOutcome(rank=address.rank, host=address.host, exit_code=0, seconds=world.scenario.durations.contact)


def _unlucky(fault: Fault, chosen: Sequence[HostAddress]) -> int:
    ranks = [address.rank for address in chosen]
    return fault.rank if fault.rank in ranks else ranks[-1]


def _failed(address: HostAddress, failure: Failure) -> HostOutcome:
    details = {
        Failure.UNREACHABLE: "nothing answers at this address",
        Failure.IDENTITY: "another host answers at this address",
        Failure.LOST: "the connection broke",
    }
    return HostOutcome(rank=address.rank, host=address.host, failure=failure, detail=details[failure])


def _ended(address: HostAddress, job: HostJob) -> HostOutcome | None:
    """Return how the job ended on the host, in the texts of orchestrator.remote.jobs.follow; None while it runs."""
    if job.phase is JobPhase.RUNNING:
        return None
    outcome = HostOutcome(rank=address.rank, host=address.host, last_line=job.last_line, ended_by=job.ended_by)
    if job.phase is JobPhase.FINISHED and job.exit_code is not None:
        name = signal_name(job.exit_code)
        return replace(outcome, signal=name) if name else replace(outcome, exit_code=job.exit_code)
    detail = "the job was killed hard or the host was started again: it left no exit status"
    if job.phase is JobPhase.ABSENT:
        detail = "the job was never started on this host"
    return replace(outcome, failure=Failure.LOST, detail=detail)
