"""The driver of a cloud that makes one machine by one request. Such a cloud adds a MachineService, and no more.

A slice of N hosts is N machines, one step each. A machine is found by its labels: the slice, its token and the rank.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from orchestrator.catalog.plain import PlainType
from orchestrator.errors import CannotStopError, OrchError, UserError
from orchestrator.hosts import HostAddress
from orchestrator.providers.core.cloud_init import render_user_data, user_data_of
from orchestrator.providers.core.driver import Changes, Response, SliceDriver
from orchestrator.providers.core.faults import Answer, ErrorTable
from orchestrator.providers.core.journal import open_journals
from orchestrator.providers.core.listed import ListedResource, read_owner
from orchestrator.providers.core.provider import StoppableProvider
from orchestrator.providers.core.record import Phase, SliceRecord, SliceRecords, name_host
from orchestrator.providers.protocol import Place
from orchestrator.providers.records import Records
from orchestrator.slices import (
    Candidate,
    HostFacts,
    Market,
    OnDemand,
    Request,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
    Spot,
)
from orchestrator.values import Text, Unknown, to_text

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

SLICE, INTENT, RANK = "orch-slice", "orch-intent", "orch-rank"
_INSTALLATION = "orch-installation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as the cloud shows it.

    Attributes:
        identity: The cloud's id; it is deleted, stopped and started by it.
        state: As that of a slice of this one machine.
        labels: All of them.
        zone: Where it is.
        address: Its public address; "" while it has none.
        internal_address: Inside its network.
        port: Of SSH.
        type: The machine type.
        spot: Whether the cloud may preempt it.
        created: Epoch seconds; 0 where the cloud does not say.
        reason: The cloud's message on its state.
    """

    identity: str
    state: SliceState
    labels: Mapping[str, str]
    zone: str
    address: str = ""
    internal_address: str = ""
    port: int = 22
    type: str = ""
    spot: bool = False
    created: float = 0.0
    reason: str = ""


class MachineService(ABC):
    """The calls of one cloud. Each is sent once, and may raise Refused.

    Attributes:
        errors: Its error table.
        listing_lags: Whether a machine that exists may be missing in one listing.
        user: The default account of its images.
    """

    errors: ErrorTable
    listing_lags: ClassVar[bool] = False
    user: ClassVar[str] = "ubuntu"

    @abstractmethod
    def create(self, body: Mapping[str, Any]) -> Machine:
        """Make a machine. The body is that of the planned request; see PlainPlanner."""

    @abstractmethod
    def list_machines(self, labels: Mapping[str, str]) -> Sequence[Machine]:
        """Return all machines with these labels, "" for any value, on all pages. Missing places are an error."""

    @abstractmethod
    def delete(self, identity: str) -> None:
        """Request the end of a machine. One that does not exist is no error."""

    @abstractmethod
    def stop(self, identity: str) -> None:
        """Request the stop of a machine, whose disk stays."""

    @abstractmethod
    def start(self, identity: str) -> None:
        """Request the start of a stopped machine."""


class PlainPlanner:
    """The pure half of such a provider: one request a machine.

    Args:
        name: Of the provider.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def list_places(self, task: Task, choice: Resources, market: Market) -> Sequence[Place]:
        """Return the named place, or every place in which the type is offered."""
        named = Place(choice.infra.region, choice.infra.zone)
        offered = choice.machine.places if isinstance(choice.machine, PlainType) else ()
        found = [Place(*place.split("/", 1)) for place in offered]
        fitting = [one for one in found if named.region in ("", one.region) and named.zone in ("", one.zone)]
        return fitting or (named,)

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        """Return no details: such a cloud has no options."""
        return ()

    def create_request(self, spec: SliceSpec) -> Request:
        """Return the request for the last machine, with those for the others before it."""
        check_market(spec.candidate)
        machines = [self._machine(spec, rank) for rank in range(spec.candidate.hosts)]
        return replace(machines[-1], before=tuple(machines[:-1]))

    def end_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that ends the machines of a slice."""
        return self._on_machines("delete", name)

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that stops the machines of a slice."""
        if (refusal := refuse_stop(f"'{name}'", spot=isinstance(candidate.market, Spot))) is not None:
            raise refusal
        return self._on_machines("stop", name)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        """Return the request that starts the machines of a slice."""
        return replace(self.stop_request(name, candidate), method="start")

    def host_facts(self, candidate: Candidate) -> HostFacts:
        """Return what is known of the hosts beforehand."""
        return HostFacts()

    def _machine(self, spec: SliceSpec, rank: int) -> Request:
        candidate = spec.candidate
        labels = {**dict(spec.labels), SLICE: to_text(spec.name), INTENT: spec.token, RANK: to_text(str(rank))}
        body: dict[str, object] = {
            "name": f"{spec.name}-{rank}",
            "type": candidate.accelerator,
            "region": candidate.region,
            "zone": candidate.zone,
            "spot": isinstance(candidate.market, Spot),
            "disk_gib": candidate.disk_gib,
            "labels": labels,
            "user_data": Text.of(user_data_of(rank)),
        }
        return Request(service=self.name, method="create", target=f"{spec.name}/{rank}", body=body)

    def _on_machines(self, verb: str, name: str) -> Request:
        return Request(service=self.name, method=verb, target=name, body={"labels": {SLICE: name}})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRecord(SliceRecord):
    """The record of a slice of plain machines.

    Attributes:
        region: Of the machines.
        hosts: How many there are.
        spot: Whether the cloud may preempt them.
        user: The account that they are logged in with.
        machines: Their ids, as far as the create was answered.
        seen: Epoch seconds at which they were READY first; 0 for never.
        power: "stop" or "start", whichever was requested last.
    """

    region: str
    hosts: int
    spot: bool
    user: str
    machines: tuple[str, ...] = ()
    seen: float = 0.0
    power: str = ""


class PlainRecords(SliceRecords[PlainRecord]):
    """The records of such a provider."""

    kind = PlainRecord
    tuples = ("host_public", "machines")

    @staticmethod
    def place_of(record: PlainRecord) -> tuple[str, ...]:
        return (record.region,)


class PlainDriver(SliceDriver[PlainRecord]):
    """The slices of a cloud that makes one machine by one request.

    Args:
        planner: The pure half.
        service: The calls of the cloud.
        now: Epoch seconds.
    """

    def __init__(self, planner: PlainPlanner, service: MachineService, now: Callable[[], float] = time.time) -> None:
        self.name = planner.name
        self.listing_lags = service.listing_lags
        self._planner = planner
        self._service = service
        self._now = now

    def plan_create(self, spec: SliceSpec) -> Request:
        return self._planner.create_request(spec)

    def new_record(self, spec: SliceSpec, keys: SliceKeys, now: float) -> PlainRecord:
        candidate = spec.candidate
        if not len(keys.host_private) == len(keys.host_public) == candidate.hosts:
            raise ValueError(f"{candidate.hosts} hosts need a key pair each, there are {len(keys.host_private)}")
        return PlainRecord(
            name=spec.name,
            token=spec.token.reveal(),
            region=candidate.region,
            zone=candidate.zone,
            hosts=candidate.hosts,
            spot=isinstance(candidate.market, Spot),
            user=self._service.user,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=now,
            changed=now,
        )

    def initial_known(self, record: PlainRecord, spec: SliceSpec, keys: SliceKeys) -> Mapping[Unknown, str]:
        return {
            user_data_of(rank): render_user_data(keys.login_keys, private, record.host_public[rank])
            for rank, private in enumerate(keys.host_private)
        }

    def fill(self, record: PlainRecord, step: Request, known: Mapping[Unknown, str]) -> Request:
        return replace(step, body=cast(dict[str, object], _reveal(step.body, known)))

    def makes_machines(self, step: Request) -> bool:
        return True

    def look(self, record: PlainRecord, step: Request, known: Mapping[Unknown, str]) -> Response | None:
        labels = cast(Mapping[str, str], step.body["labels"])
        found = self._service.list_machines({INTENT: record.token, RANK: labels[RANK]})
        return {"identity": found[0].identity} if found else None

    def send(self, record: PlainRecord, step: Request, *, fresh: bool) -> Response:
        return {"identity": self._service.create(step.body).identity}

    def note_answer(self, record: PlainRecord, step: Request, answer: Response) -> Changes:
        return {"machines": tuple(dict.fromkeys((*record.machines, str(answer["identity"]))))}

    def may_arrive(self, record: PlainRecord) -> bool:
        return len(record.machines) < record.hosts

    def observe(self, record: PlainRecord) -> SliceView | None:
        machines = self._machines(record)
        if not machines:
            return None
        owner = machines[0].labels.get(_INSTALLATION, "")
        return replace(_judge(record, machines), installation=owner)

    def note_view(self, record: PlainRecord, view: SliceView) -> Changes:
        return {"seen": self._now()} if view.state is SliceState.READY and not record.seen else {}

    def end_machines(self, record: PlainRecord) -> bool:
        machines = self._machines(record)
        for machine in machines:
            self._service.delete(machine.identity)
        return not machines

    def list_resources(self, name: str = "", token: str = "", *, installation: str = "") -> Sequence[ListedResource]:
        labels = {SLICE: name} | ({INTENT: token} if token else {}) if name else {_INSTALLATION: installation}
        return [_listed(self.name, one) for one in self._service.list_machines(labels)]

    def end_listed(self, resources: Sequence[ListedResource]) -> None:
        for one in resources:
            self._service.delete(one.identity)

    def refuse_stop(self, record: PlainRecord) -> UserError | None:
        return refuse_stop(f"'{record.name}'", spot=record.spot)

    def note_power(self, record: PlainRecord, verb: str) -> Changes:
        return {"power": verb}

    def change_power(self, record: PlainRecord, verb: str) -> None:
        change = self._service.stop if verb == "stop" else self._service.start
        for machine in self._machines(record):
            change(machine.identity)

    def explain(
        self, verb: str, name: str, answer: Answer, candidate: Candidate | None, record: PlainRecord | None
    ) -> OrchError:
        return self._service.errors.explain(verb, name, answer)

    def _machines(self, record: PlainRecord) -> list[Machine]:
        found = self._service.list_machines({SLICE: record.name, INTENT: record.token})
        return sorted((one for one in found if one.state is not SliceState.ABSENT), key=_rank)


def check_market(candidate: Candidate) -> None:
    """Raise UserError for a market that such a cloud does not have."""
    if not isinstance(candidate.market, OnDemand | Spot):
        raise UserError(
            f"{candidate.provider} sells no machines as '{candidate.market}'",
            "it has on demand and spot",
            "remove provisioning, or: use_spot: true",
        )


def refuse_stop(name: str, *, spot: bool) -> UserError | None:
    """Return why machines cannot be stopped and kept; None when they can.

    No rule of a vendor: the core promises a later start, and a market that preempts promises none.
    """
    if not spot:
        return None
    why = "no later start is promised for a spot machine"
    return CannotStopError(name, why)


def _judge(record: PlainRecord, machines: Sequence[Machine]) -> SliceView:
    states = {one.state for one in machines}
    reason = next((one.reason for one in machines if one.reason), "")
    if record.phase is Phase.ENDING:
        ending = states <= {SliceState.ENDING}
        return SliceView(state=SliceState.ENDING if ending else SliceState.FAILED, reason=reason or "its end hangs")
    if lost := states & {SliceState.PREEMPTED, SliceState.FAILED, SliceState.ENDING}:
        preempted = SliceState.PREEMPTED in lost or record.spot
        return SliceView(state=SliceState.PREEMPTED if preempted else SliceState.FAILED, reason=reason)
    if len(machines) < record.hosts:
        shown = f"{len(machines)} of {record.hosts} machines are shown"
        if record.phase is Phase.ASKED or not record.seen:
            return SliceView(state=SliceState.CREATING, reason=shown)
        return SliceView(state=SliceState.PREEMPTED if record.spot else SliceState.FAILED, reason=shown)
    if len(states) > 1:
        changing = {"stop": SliceState.STOPPING, "start": SliceState.STARTING}
        return SliceView(state=changing.get(record.power, SliceState.CREATING), reason=reason)
    state = states.pop()
    if state is not SliceState.READY:
        return SliceView(state=state, reason=reason)
    waiting = [rank for rank, one in enumerate(machines) if not one.address]
    if waiting:
        return SliceView(state=SliceState.CREATING, reason=f"host {waiting[0]} has no public address yet")
    return SliceView(state=SliceState.READY, hosts=tuple(_address(record, one) for one in machines))


def _address(record: PlainRecord, machine: Machine) -> HostAddress:
    rank = _rank(machine)
    return HostAddress(
        rank=rank,
        alias=name_host(record, rank),
        host=machine.address,
        port=machine.port,
        user=record.user,
        identity_file=Path(record.identity_file),
        known_hosts=Path(record.known_hosts),
        internal_ip=machine.internal_address or machine.address,
        host_key=" ".join(record.host_public[rank].split()[:2]),
    )


def _rank(machine: Machine) -> int:
    return int(machine.labels.get(RANK, "0"))


def _listed(provider: str, machine: Machine) -> ListedResource:
    region = machine.zone.rpartition("-")[0] or machine.zone
    return ListedResource(
        identity=machine.identity,
        owner=read_owner(machine.labels),
        where="/".join(part for part in (provider, region, machine.zone) if part),
        state=machine.state,
        created=machine.created,
        holds=True,
        counts=1,
        machine=machine.type,
        spot=machine.spot,
    )


def _reveal(value: object, known: Mapping[Unknown, str]) -> object:
    if isinstance(value, Text):
        return value.fill(known).reveal()
    if isinstance(value, Mapping):
        return {key: _reveal(one, known) for key, one in cast(Mapping[str, object], value).items()}
    return value


def open_plain_provider(
    planner: PlainPlanner, service: MachineService, records: Records, now: Callable[[], float] = time.time
) -> StoppableProvider[PlainRecord]:
    """Return the provider of such a cloud."""
    driver = PlainDriver(planner, service, now)
    return StoppableProvider(driver, PlainRecords(records), open_journals(records), now)
