"""One look at a slice: what Google says of its machines, its pending create, and what is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.access import SLICE, owner_of
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.compute import hosts, states
from orchestrator.providers.google.compute.api import ComputeApi, failure_of
from orchestrator.providers.google.compute.parts import Part
from orchestrator.providers.google.compute.record import Record, Records
from orchestrator.providers.google.labels import INSTALLATION, INTENT, from_google
from orchestrator.providers.google.looking import KEY_PATIENCE, SETTLE_SECONDS
from orchestrator.providers.google.record import Phase
from orchestrator.providers.google.states import together
from orchestrator.slices import SliceState, SliceView


@dataclass(slots=True, kw_only=True)
class Eyes:
    """ready_since: since when a slice is READY but for its keys; losing it costs only time."""

    api: ComputeApi
    records: Records
    login: Login
    now: Callable[[], float] = time.time
    ready_since: dict[str, float] = field(default_factory=dict[str, float])

    def look(self, record: Record) -> SliceView:
        """Raises Refused, CloudError."""
        found = {path: self.api.get(path) for path in record.machines}
        there = {path: one for path, one in found.items() if one is not None and is_ours(record, one)}
        if not there:
            return self._absent(record)
        owner = next((name for one in there.values() if (name := _installation_of(one))), "")
        return replace(self._judge(record, there), installation=owner)

    def _judge(self, record: Record, there: Mapping[str, Mapping[str, Any]]) -> SliceView:
        views = [self._part(record, part, there.get(record.machine(part))) for part in record.parts]
        view = together(views)
        if view.state is SliceState.READY:
            return self._ready(record)
        if view.state is not SliceState.CREATING and record.checked:
            self.records.write(record, checked=False)  # hosts that come back get their keys anew
        return view

    def is_there(self, record: Record) -> bool | None:
        """True: ours is there, in part or whole. None: nothing is. False: somebody else's has a name of it."""
        found = [one for path in (*record.machines, *record.rest) if (one := self.api.get(path)) is not None]
        if not found:
            return None
        return all(is_ours(record, one) for one in found)

    def left(self, record: Record) -> list[str]:
        """Templates and policies of this slice that are there."""
        return [path for path in record.rest if (one := self.api.get(path)) is not None and is_ours(record, one)]

    def _part(self, record: Record, part: Part, found: Mapping[str, Any] | None) -> SliceView:
        if found is None:
            gone = SliceState.ENDING if record.phase is Phase.ENDING else SliceState.FAILED
            if record.phase is Phase.ASKED:
                return SliceView(state=SliceState.CREATING, reason=f"{part.name} is not requested yet")
            lost = record.seen and record.market == "spot"
            return SliceView(state=SliceState.PREEMPTED if lost else gone, reason=self._why_gone(record, part.name))
        if not part.grouped:
            return states.instance_view(record, found)
        path = record.machine(part)
        members = self.api.members(path)
        quiet = all(one.get("instanceStatus") == "RUNNING" for one in members) and len(members) == part.hosts
        errors = [] if quiet or record.seen else self.api.errors(path)
        return states.group_view(record, part, found, members, errors)

    def _ready(self, record: Record) -> SliceView:
        listed = self.api.instances(record.project, record.zone, SLICE, record.name)
        instances = {str(one["name"]): one for one in listed if is_ours(record, one)}
        view = hosts.ready_view(record, instances, self.login)
        if view.state is not SliceState.READY:
            return view
        if not record.checked:
            record, missing = self._with_keys(record)
            if missing is not None:
                return missing
            view = hosts.ready_view(record, instances, self.login)
        return view

    def _with_keys(self, record: Record) -> tuple[Record, SliceView | None]:
        """Hosts that do not have our key yet are not shown: to connect to one now would look like an impostor."""
        since = self.ready_since.setdefault(record.name, self.now())
        patient = self.now() - since < KEY_PATIENCE
        names = [name for part in record.parts for name in part.instances]
        attributes: list[dict[str, str]] = []
        for name in names:
            said = self._told(record.instance(name))
            if not said and patient:
                words = f"{len(attributes)} of {len(names)} hosts have reported that they have their SSH key"
                return record, SliceView(state=SliceState.CREATING, reason=words)
            attributes.append(said)
        told = hosts.told(record, attributes)
        if told.right < len(names) and patient:
            words = f"{told.right} of {len(names)} hosts have their SSH key"
            return record, SliceView(state=SliceState.CREATING, reason=words)
        self.ready_since.pop(record.name, None)
        seen = record.seen or self.now()
        return self.records.write(record, checked=True, order=told.order, ports=told.ports, seen=seen), None

    def _told(self, path: str) -> dict[str, str]:
        """{} also where guest attributes cannot be read: SSH itself will tell."""
        try:
            return self.api.told(path)
        except Refused as refused:
            if refused.answer.kind not in (Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE):
                raise
            return {}

    def _absent(self, record: Record) -> SliceView:
        """No machines. That is ABSENT, unless a create may still be on its way, or something else is left."""
        age = self.now() - record.asked
        if record.phase is Phase.ASKED and age < SETTLE_SECONDS:
            return SliceView(state=SliceState.UNCLEAR, reason="requested, not shown yet")
        if record.phase is Phase.ENDING and not record.operations and age < SETTLE_SECONDS:
            return SliceView(state=SliceState.UNCLEAR, reason="the create may still be on its way")
        if record.phase is Phase.ACCEPTED and not record.seen:
            view = self._operations(record)
            if view is not None:
                return view
        left = self.left(record)
        if left:
            words = f"its machines are deleted, {len(left)} templates and policies are not"
            return SliceView(state=SliceState.FAILED, reason=words)
        return SliceView(state=SliceState.ABSENT)

    def _operations(self, record: Record) -> SliceView | None:
        """What became of the create, by its operations; None when they tell nothing."""
        for path in record.operations:
            operation = self.api.operation(path)
            if operation is None:
                continue
            if operation.get("status") != "DONE":
                return SliceView(state=SliceState.CREATING, reason="accepted, not shown yet")
            answer = failure_of(operation)
            if answer is not None:
                return SliceView(state=SliceState.FAILED, reason=f"{answer.kind}: {answer.words}")
        return None

    def _why_gone(self, record: Record, name: str) -> str:
        view = self._operations(record) if not record.seen else None
        return view.reason if view is not None else f"{name} is gone"


def _installation_of(found: Mapping[str, Any]) -> str:
    """Whose label an instance carries; "" for a group, which has none."""
    return from_google(found.get("labels") or {}, INSTALLATION)


def is_ours(record: Record, found: Mapping[str, Any]) -> bool:
    """Whether this was made for this very record, by its labels or by its description."""
    labels: Mapping[str, str] = found.get("labels") or {}
    if INTENT in labels:
        return from_google(labels, INTENT) == record.token
    return owner_of(str(found.get("description", ""))).get(INTENT) == record.token
