"""The simulated cloud: its API, what a tester may do to it, and the oracles of tests.

A state machine without threads, files or sleep. Each call first lets pass what is due until `clock.now()`, then asks
the scenario for a fault, then acts, and leaves a line in the audit log. For use by several threads or processes see
`access.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from orchestrator.clock import Clock
from orchestrator.simulator import faults, happenings, hosts, lifecycle, queue, reading, requests
from orchestrator.simulator.calls import (
    ApiError,
    Code,
    CreateCall,
    Label,
    Look,
    Page,
    QueueCall,
    QueueLook,
    ReadOnlyViolation,
)
from orchestrator.simulator.programs import Program
from orchestrator.simulator.scenario import Deed, Fault, FaultKind, Happening, Scenario
from orchestrator.simulator.state import Call, CloudState, Host, Phase, Resource
from orchestrator.simulator.world import World

MUTATING = frozenset({"create", "end", "stop", "start", "amend", "queue", "queue-delete", "queue-reset"})

_Result = TypeVar("_Result")


class _Trace:
    """Details of one call for the audit log, beyond its result."""

    __slots__ = ("acted", "foreign", "uid")

    def __init__(self) -> None:
        self.acted, self.uid, self.foreign = False, "", False

    def about(self, resource: Resource) -> None:
        self.uid, self.foreign = resource.uid, resource.foreign


class SimulatedCloud:
    """Simulated cloud, created now unless `state` is given; see the module docstring."""

    def __init__(self, scenario: Scenario, clock: Clock, state: CloudState | None = None) -> None:
        self.clock = clock
        self._world = World.create(scenario, clock.now()) if state is None else World(scenario, state)

    @property
    def scenario(self) -> Scenario:
        return self._world.scenario

    @property
    def state(self) -> CloudState:
        return self._world.state

    def advance(self) -> None:
        """Process everything that is due until now."""
        happenings.advance_to(self._world, self.clock.now())

    # --- the API: every method raises ApiError ------------------------------------------------------------

    def create(self, call: CreateCall) -> Look:
        def work(fault: Fault | None, trace: _Trace) -> Look:
            if fault is not None and fault.kind is FaultKind.LATE:
                requests.create_later(self._world, call, fault.seconds)
                raise ApiError(Code.TIMEOUT, "no answer within the deadline")
            before = self.state.numbers
            resource = requests.create(self._world, call, fault)
            trace.about(resource)
            trace.acted = self.state.numbers != before
            return reading.describe_resource(resource)

        return self._call("create", call.name, call.token, work, machines=True)

    def get(self, name: str, zone: str = "") -> Look:
        """Return a resource as the API shows it; zone "" means any."""

        def work(fault: Fault | None, trace: _Trace) -> Look:
            found = reading.get(self._world, name, zone, fault)
            trace.uid = found.uid
            return found

        return self._call("get", name, "", work)

    def list_page(self, page: str = "", size: int | None = None) -> Page:
        """List all resources of the account, foreign ones included, in order of creation."""
        return self._call("list", page, "", lambda fault, _: reading.listing(self._world, page, size, fault))

    def end(self, name: str, zone: str = "", only: Label | None = None) -> None:
        """Begin to end a resource; with `only` a resource without this label is refused."""

        def work(fault: Fault | None, trace: _Trace) -> None:
            resource = self._allowed(name, zone, trace, only)
            if fault is not None and fault.kind is FaultKind.LATE:
                self._world.due(fault.seconds, "late-end", resource.uid)
                raise ApiError(Code.TIMEOUT, "no answer within the deadline")
            requests.end(self._world, resource, fault)
            trace.acted = True

        self._call("end", name, "", work)

    def stop(self, name: str, zone: str = "", only: Label | None = None) -> None:
        def work(fault: Fault | None, trace: _Trace) -> None:
            requests.stop(self._world, self._allowed(name, zone, trace, only), fault)
            trace.acted = True

        self._call("stop", name, "", work)

    def start(self, name: str, zone: str = "", only: Label | None = None) -> None:
        def work(fault: Fault | None, trace: _Trace) -> None:
            requests.start(self._world, self._allowed(name, zone, trace, only), fault)
            trace.acted = True

        self._call("start", name, "", work)

    def queue(self, call: QueueCall) -> QueueLook:
        def work(_: Fault | None, trace: _Trace) -> QueueLook:
            before = self.state.numbers
            nodes = [asdict(replace(node, labels=dict(node.labels), extra=dict(node.extra))) for node in call.nodes]
            queued = queue.add(self._world, call, nodes)
            trace.uid, trace.acted = queued.uid, self.state.numbers != before
            return reading.queue_shown(self._world, queued)

        return self._call("queue", call.name, call.request_id, work, machines=True)

    def get_queued(self, name: str, zone: str = "") -> QueueLook:
        world = self._world
        return self._call(
            "queue-get", name, "", lambda fault, _: reading.queue_shown(world, queue.find(world, name, zone))
        )

    def list_queued(self) -> tuple[QueueLook, ...]:
        return self._call("queue-list", "", "", lambda fault, _: reading.queue_listing(self._world))

    def delete_queued(self, name: str, zone: str = "", *, force: bool = False) -> None:
        def work(_: Fault | None, trace: _Trace) -> None:
            queued = queue.find(self._world, name, zone)
            trace.uid = queued.uid
            queue.delete(self._world, queued, force=force)
            trace.acted = True

        self._call("queue-delete", name, "", work)

    def reset_queued(self, name: str, zone: str = "") -> None:
        def work(_: Fault | None, trace: _Trace) -> None:
            queued = queue.find(self._world, name, zone)
            trace.uid = queued.uid
            queue.reset(self._world, queued)
            trace.acted = True

        self._call("queue-reset", name, "", work)

    def amend(self, name: str, zone: str, labels: Mapping[str, str], extra: Mapping[str, Any]) -> None:
        """Give a resource other labels and other extra data."""

        def work(_: Fault | None, trace: _Trace) -> None:
            resource = self._allowed(name, zone, trace, None)
            resource.labels, resource.extra = dict(labels), dict(extra)
            trace.acted = True

        self._call("amend", name, "", work)

    def ask(self, op: str, name: str) -> None:
        """Record a front's call that reads no resource: faults apply, and the audit log names it."""
        self._call(op, name, "", lambda fault, trace: None)

    # --- what a tester does to it -------------------------------------------------------------------------

    def do(self, name: str, deed: Deed, rank: int | None = None, **fields: Any) -> None:
        """Let an event happen to an existing resource now.

        Args:
            name: The resource.
            deed: What happens.
            rank: The host, where it is about one.
            fields: Further fields of Happening.

        Raises:
            KeyError: There is no such resource.
        """
        self.advance()
        resource = self._world.find(name)
        if resource is None:
            raise KeyError(name)
        happenings.do(self._world, resource, Happening(do=deed, rank=rank, **fields))

    def preempt(self, name: str, rank: int | None = None, notice: float = 0.0) -> None:
        self.do(name, Deed.PREEMPT, rank, notice=notice)

    def report_step(self, name: str, rank: int, step: int) -> None:
        """Report a step of a real program behind the slice: events that wait for it happen."""
        self.advance()
        resource = self._world.find(name)
        if resource is not None and resource.phase is Phase.READY:
            happenings.step_reached(self._world, resource, rank, step)

    def set_program(self, pattern: str, program: Program) -> None:
        """Set the program of jobs whose names match the pattern (fnmatch); the newest pattern wins."""
        self.state.programs.insert(0, (pattern, program.to_json()))

    def seed_foreign(self, name: str, labels: Mapping[str, str] | None = None, zone: str = "", hosts: int = 1) -> Look:
        """Create a READY resource of another owner, which orch must never change."""
        self.advance()
        place = zone or self.scenario.zones[0].name
        call = CreateCall(name=name, zone=place, accelerator="cpu", hosts=hosts, labels=labels or {})
        resource = requests.create(self._world, call, None)
        resource.foreign = True
        lifecycle.move(self._world, resource, Phase.READY)
        return reading.describe_resource(resource)

    # --- oracles ------------------------------------------------------------------------------------------

    def live(self) -> tuple[Look, ...]:
        """Return our existing resources: those that are billed or must still be ended."""
        self.advance()
        return tuple(reading.describe_resource(resource) for resource in self._world.living() if not resource.foreign)

    def made_for(self, token: str) -> tuple[Look, ...]:
        """Return every resource that was ever created for this token, existing or not."""
        made = (resource for resource in self.state.resources.values() if resource.token == token)
        return tuple(reading.describe_resource(resource) for resource in made)

    def made(self) -> tuple[Look, ...]:
        """Return every resource of ours that was ever created."""
        return tuple(
            reading.describe_resource(resource) for resource in self.state.resources.values() if not resource.foreign
        )

    def calls(self, op: str = "") -> tuple[Call, ...]:
        """Return the audit log, complete or of one operation."""
        return tuple(call for call in self.state.calls if op in ("", call.op))

    def mutations(self) -> tuple[Call, ...]:
        """Return the mutating calls, accepted or not."""
        return tuple(call for call in self.state.calls if call.op in MUTATING)

    def trespasses(self) -> tuple[Call, ...]:
        """Return the mutating calls on resources of other owners: must stay empty."""
        return tuple(call for call in self.mutations() if call.foreign)

    # --- the hosts, for SimulatedHands --------------------------------------------------------------------

    def host_world(self) -> World:
        """Return the world for `hosts.py`, advanced to now."""
        self.advance()
        return self._world

    def next_change(self) -> float | None:
        """Return when the next agenda entry or end of a program is due."""
        times = [self.state.agenda[0].at] if self.state.agenda else []
        ends = (hosts.next_end(self._world, host) for host in self._hosts())
        return min([*times, *(end for end in ends if end is not None)], default=None)

    # --- inside -------------------------------------------------------------------------------------------

    def _hosts(self) -> list[Host]:
        return [host for resource in self._world.living() for host in resource.hosts]

    def _allowed(self, name: str, zone: str, trace: _Trace, only: Label | None) -> Resource:
        """Return the resource if the call may change it (rule call_may_be_limited_to_a_label).

        A refused call is no trespass, so its line names no resource.
        """
        resource = self._world.find(name, zone)
        if resource is None:
            raise ApiError(Code.NOT_FOUND, f"there is no {name}" + (f" in {zone}" if zone else ""))
        if only is not None and not only.fits(resource.labels):
            raise ApiError(
                Code.DENIED, f"{name} does not carry the label {only.key}" + f"={only.value}" * bool(only.value)
            )
        trace.about(resource)
        return resource

    def _call(
        self,
        op: str,
        name: str,
        token: str,
        work: Callable[[Fault | None, _Trace], _Result],
        *,
        machines: bool = False,
    ) -> _Result:
        self.advance()
        fault = faults.pick(self._world, op)
        if machines and fault is None and faults.MACHINES in self.scenario.faulty:
            fault = faults.pick(self._world, faults.MACHINES)
        trace = _Trace()
        result_word = "ok"
        try:
            if self.scenario.read_only and op in MUTATING:
                result_word = "read-only"
                raise ReadOnlyViolation(f"{op} {name}: nothing may change in this cloud")
            faults.refuse(fault)
            result = work(fault, trace)
            if fault is not None and fault.kind is FaultKind.DUPLICATE:
                result = work(None, trace)
            if fault is not None and fault.kind is FaultKind.TIMEOUT_AFTER:
                raise ApiError(Code.TIMEOUT, "no answer within the deadline")
        except ApiError as error:
            result_word = error.code.value
            raise
        finally:
            call = Call(self.state.now, op, name, token, result_word, trace.acted, trace.uid, trace.foreign)
            self.state.calls.append(call)
        return result
