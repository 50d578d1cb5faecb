"""Observe a slice: what Compute Engine reports of its machines, of its create and of what is left. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.core.record import Phase
from orchestrator.providers.google.access import SLICE, owner_of
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.compute import hosts, serial, states
from orchestrator.providers.google.compute.api import ComputeApi, failure_of
from orchestrator.providers.google.compute.parts import Part
from orchestrator.providers.google.compute.record import Record
from orchestrator.providers.google.host_keys import HostKeys
from orchestrator.providers.google.labels import INSTALLATION, INTENT, from_google
from orchestrator.providers.google.states import together
from orchestrator.slices import SliceState, SliceView

CONSOLE_AFTER = 60.0  # seconds after which a host without its key is not merely booting


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes one slice. Every method may raise Refused.

    Attributes:
        api: Of Compute Engine.
        record: Of the slice.
        login: How its hosts are logged in to.
        keys: Checks that its hosts have our keys.
        reported: What the hosts that have our keys reported, by the slice's name, until it is recorded.
    """

    api: ComputeApi
    record: Record
    login: Login
    keys: HostKeys
    reported: dict[str, hosts.Reported]

    def observe(self) -> SliceView | None:
        """Return the view of the slice; None where none of its machines is shown."""
        found = self.find_machines()
        if not found:
            return None
        views = [self._observe_part(part, found.get(self.record.machine(part))) for part in self.record.parts]
        ending = self.record.phase is Phase.ENDING
        if ending:  # machines that are not being deleted decide, so that their deletion is requested again soon
            views = [view for view in views if view.state is not SliceState.ENDING] or views
        view = together(views, "machines" if not self.record.parts[0].grouped else "groups")
        if view.state is SliceState.READY and not ending:
            view = self._observe_hosts()
        owner = next((name for one in found.values() if (name := _installation_of(one))), "")
        return replace(view, installation=owner)

    def find_machines(self) -> dict[str, Mapping[str, Any]]:
        """Return the instances and groups of the slice that exist, by path."""
        return {path: one for path in self.record.machines if (one := self.find_own(path)) is not None}

    def read_console(self, name: str) -> str:
        """Return what the serial console of an instance says of a failure, in words; also why it cannot be read."""
        try:
            return serial.describe(self.api.read_serial_output(self.record.instance(name), serial.LAST_BYTES))
        except Refused as refused:
            if refused.answer.kind is not Kind.PERMISSION:
                raise
            return "its serial console needs the permission compute.instances.getSerialPortOutput"

    def find_own(self, path: str) -> Mapping[str, Any] | None:
        """Return a resource of the slice; None where there is none, or one of another owner."""
        found = self.api.get(path)
        return found if found is not None and is_ours(self.record, found) else None

    def list_left(self) -> list[str]:
        """Return the paths of the templates and policies of the slice that exist."""
        return [path for path in self.record.rest if self.find_own(path) is not None]

    def observe_operations(self) -> SliceView | None:
        """Return what became of the create by its operations; None where they do not say."""
        for path in self.record.operations:
            operation = self.api.operation(path)
            if operation is None:
                continue
            if operation.get("status") != "DONE":
                return SliceView(state=SliceState.CREATING, reason="accepted, not shown yet")
            answer = failure_of(operation)
            if answer is not None:
                return states.refused_view(self.record, answer)
        return None

    def may_arrive(self) -> bool:
        """Return whether a request for machines is unanswered, or still being carried out."""
        record = self.record
        if record.phase is not Phase.ENDING or len(record.operations) < len(record.machines):
            return record.phase is not Phase.ACCEPTED
        operations = [self.api.operation(path) for path in record.operations]
        return any(one is not None and one.get("status") != "DONE" for one in operations)

    def _observe_part(self, part: Part, found: Mapping[str, Any] | None) -> SliceView:
        record = self.record
        if found is None:
            if record.phase is Phase.ASKED:
                return SliceView(state=SliceState.CREATING, reason=f"{part.name} is not requested yet")
            deleted = SliceState.ENDING if record.phase is Phase.ENDING else SliceState.FAILED
            lost = record.seen and record.market == "spot"
            return SliceView(state=SliceState.PREEMPTED if lost else deleted, reason=self._explain_absence(part.name))
        if not part.grouped:
            return states.instance_view(record, found)
        path = record.machine(part)
        try:
            members = self.api.members(path)
            quiet = all(one.get("instanceStatus") == "RUNNING" for one in members) and len(members) == part.hosts
            errors = [] if quiet or record.seen else self.api.errors(path)
        except Refused as refused:
            if refused.answer.kind is not Kind.NOT_FOUND:
                raise
            return self._observe_part(part, None)  # deleted since it was found
        return states.group_view(record, part, found, members, errors)

    def _observe_hosts(self) -> SliceView:
        """Return READY with the hosts, or what they wait for.

        Hosts that do not have our key yet are not shown: to connect to one now would look like an impostor.
        """
        record = self.record
        listed = self.api.instances(record.project, record.zone, SLICE, record.name)
        instances = {str(one["name"]): one for one in listed if is_ours(record, one)}
        view = hosts.ready_view(record, instances, self.login)
        if view.state is not SliceState.READY or record.checked:
            return view
        attributes: list[Mapping[str, str]] = []
        waiting = self.keys.check(record.name, record.host_public, partial(self._read_keys, attributes))
        if waiting is not None:
            return self._explain_wait(waiting, len(attributes))
        attributes += [self._read_attributes(name) for name in record.instances[len(attributes) :]]
        reported = hosts.read_reports(record, attributes)
        self.reported[record.name] = reported
        return hosts.ready_view(replace(record, order=reported.order, ports=reported.ports), instances, self.login)

    def _explain_wait(self, waiting: SliceView, reported: int) -> SliceView:
        """Add the console of the first host that reports nothing, once it had the time to boot."""
        if self.keys.waited(self.record.name) < CONSOLE_AFTER:
            return waiting
        console = self.read_console(self.record.instances[max(reported - 1, 0)])
        return replace(waiting, reason=f"{waiting.reason}; {console}"[:300]) if console else waiting

    def _read_keys(self, attributes: list[Mapping[str, str]]) -> list[str]:
        """Read the guest attributes of the hosts up to the first that reports nothing; return their keys."""
        for name in self.record.instances:
            attributes.append(self.api.read_guest_attributes(self.record.instance(name)))
            if not attributes[-1]:
                break
        return [one.get(hosts.HOST_KEY, "") for one in attributes]

    def _read_attributes(self, name: str) -> Mapping[str, str]:
        """Return the guest attributes of a host; {} also where they cannot be read."""
        try:
            return self.api.read_guest_attributes(self.record.instance(name))
        except Refused as refused:
            if refused.answer.kind not in (Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE):
                raise
            return {}

    def _explain_absence(self, name: str) -> str:
        view = self.observe_operations() if not self.record.seen else None
        return view.reason if view is not None else f"{name} is deleted"


def is_ours(record: Record, found: Mapping[str, Any]) -> bool:
    """Return whether this was made for this very record, by its labels or by its description."""
    labels: Mapping[str, str] = found.get("labels") or {}
    if INTENT in labels:
        return from_google(labels, INTENT) == record.token
    return owner_of(str(found.get("description", ""))).get(INTENT) == record.token


def _installation_of(found: Mapping[str, Any]) -> str:
    """Return whose label an instance carries; "" for a group, which has none."""
    return from_google(found.get("labels") or {}, INSTALLATION)
