"""The driver of Compute Engine: a slice is some instances, or managed instance groups with what these need.

Every request has an id, so that one that is sent again makes nothing twice. All names follow from that of the slice:
what a request would make is looked for by its path, and is ours when it carries the record's token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import AccessError, CloudError, ConflictError, OrchError, UserError
from orchestrator.providers.core.driver import Changes, Response, SliceDriver
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.core.journal import Undo
from orchestrator.providers.core.listed import ListedResource
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.compute import listing, states
from orchestrator.providers.google.compute.api import DONE, ComputeApi, name_of, path_of
from orchestrator.providers.google.compute.hosts import Reported, names_by_rank
from orchestrator.providers.google.compute.observing import Observer, is_ours
from orchestrator.providers.google.compute.parameters import known_values
from orchestrator.providers.google.compute.parts import read
from orchestrator.providers.google.compute.planner import PLANNER, stop_refusal
from orchestrator.providers.google.compute.record import Record, Records
from orchestrator.providers.google.host_keys import HostKeys
from orchestrator.providers.google.retries import explain
from orchestrator.providers.google.sending import fill, with_project
from orchestrator.providers.google.startup import USER
from orchestrator.providers.local.sshd import account
from orchestrator.slices import Candidate, Request, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Unknown

ROLE = "roles/compute.instanceAdmin.v1"  # holds all that is needed ("Create a MIG with multi-host TPU slice", 2026)


class ComputeDriver(SliceDriver[Record]):
    """The slices of Compute Engine.

    Args:
        api: Of Compute Engine.
        records: The records of the slices.
        now: Epoch seconds.
        complete: Whether all of the configured project is searched for slices, and nothing else.
    """

    name = "gcp"

    def __init__(
        self, api: ComputeApi, records: Records, now: Callable[[], float] = time.time, *, complete: bool = False
    ) -> None:
        self._api = api
        self._records = records
        self._now = now
        self._complete = complete
        self._login = Login(account().name, own_ports=True) if api.loopback else Login(USER)
        self._keys = HostKeys(now=now)
        self._reported: dict[str, Reported] = {}

    def plan_create(self, spec: SliceSpec) -> Request:
        return PLANNER.create_request(with_project(spec, self._api.project))

    def new_record(self, spec: SliceSpec, keys: SliceKeys, now: float) -> Record:
        wanted = read(with_project(spec, self._api.project).candidate)
        asked = wanted.asked
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            project=asked.project.reveal(),
            zone=asked.zone,
            slices=asked.slices,
            hosts_per_slice=asked.hosts_per_slice,
            market="spot" if asked.spot else "flex" if asked.flex else "",
            internal_ips=asked.internal_ips,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=now,
            changed=now,
            wait_seconds=wanted.patience,
        )

    def renew(self, old: Record, new: Record) -> Record:
        return replace(new, operations=old.operations)

    def initial_known(self, record: Record, spec: SliceSpec, keys: SliceKeys) -> Mapping[Unknown, str]:
        return known_values(with_project(spec, record.project), keys)

    def fill(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Request:
        return fill(step, known)

    def makes_machines(self, step: Request) -> bool:
        return _is_resize(step) or path_of(step).split("/")[-2] == "instances" or bool(step.body.get("targetSize"))

    def look(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Response | None:
        """Return a finished operation where the resource exists."""
        path = path_of(step)
        found = self._api.get(path)
        if found is None:
            return None
        if not is_ours(record, found):
            raise ConflictError(
                f"a slice '{record.name}' exists already",
                f"{path} belongs to another owner",
                "orch status   or take another name: -c NAME",
            )
        if found.get("status") == "CREATING":  # a policy that a group may not name yet (compute v1, ResourcePolicy)
            raise CloudError(f"{path} is not ready", "Google is still creating it", "run the same command again")
        return None if _is_resize(step) and not found.get("targetSize") else DONE

    def send(self, record: Record, step: Request, *, fresh: bool) -> Response:
        """Send a step, and wait for what the next one names."""
        operation = self._api.send(step)
        if not self.makes_machines(step):
            self._api.settled(path_of(step), operation)
        return operation

    def list_undo(self, step: Request, answer: Response) -> Sequence[Undo]:
        return () if _is_resize(step) else (Undo(operation="delete", params={"path": path_of(step)}),)

    def undo(self, record: Record, undo: Undo) -> None:
        path = str(undo.params["path"])
        if self._observer(record).find_own(path) is not None:
            self._api.settled(path, self._api.delete(path))

    def note_answer(self, record: Record, step: Request, answer: Response) -> Changes:
        if not self.makes_machines(step) or "name" not in answer:
            return {}
        operation = name_of(path_of(step), answer)
        return {"operations": tuple(dict.fromkeys((*record.operations, operation)))}

    def observe(self, record: Record) -> SliceView | None:
        return self._observer(record).observe()

    def observe_pending(self, record: Record) -> SliceView | None:
        return None if record.seen else self._observer(record).observe_operations()

    def may_arrive(self, record: Record) -> bool:
        return self._observer(record).may_arrive()

    def diagnose(self, record: Record, ranks: Sequence[int]) -> Mapping[int, str]:
        names, observer = names_by_rank(record), self._observer(record)
        return {rank: observer.read_console(names[rank]) for rank in ranks if rank < len(names)}

    def list_left(self, record: Record) -> list[str]:
        return [_short(path) for path in self._observer(record).list_left()]

    def note_view(self, record: Record, view: SliceView) -> Changes:
        reported = self._reported.pop(record.name, None)
        if reported is not None:
            seen = record.seen or self._now()
            return {"checked": True, "order": reported.order, "ports": reported.ports, "seen": seen}
        if record.checked and view.state not in (SliceState.READY, SliceState.CREATING):
            return {"checked": False}  # hosts that come back get their keys again
        return {}

    def end_machines(self, record: Record) -> bool:
        machines = self._observer(record).find_machines()
        for path, one in machines.items():
            if not states.is_being_deleted(one):
                self._delete(path)
        return not machines

    def remove_left(self, record: Record) -> list[str]:
        for path in self._observer(record).list_left():
            self._delete(path)
        return self.list_left(record)

    def list_resources(self, name: str = "", token: str = "", *, installation: str = "") -> Sequence[ListedResource]:
        """In the projects in which something was requested from here, and the configured one."""
        return [
            one
            for one in self._list_projects()
            if name in ("", one.owner.slice)
            and token in ("", one.owner.intent)
            and installation in ("", one.owner.installation)
        ]

    def end_listed(self, resources: Sequence[ListedResource]) -> None:
        for path in listing.list_ends(resources):
            self._delete(path)

    def remove_listed(self, resources: Sequence[ListedResource]) -> None:
        for one in resources:
            self._delete(one.identity)

    def refuse_stop(self, record: Record) -> UserError | None:
        deleted = bool(record.market)
        return stop_refusal(f"'{record.name}'", record.slices, record.hosts_per_slice, deleted=deleted)

    def observe_power(self, record: Record) -> SliceView:
        """Return the state of the instance, whether or not its host has its keys."""
        machines = list(self._observer(record).find_machines().values())
        return states.instance_view(record, machines[0]) if machines else SliceView(state=SliceState.ABSENT)

    def note_power(self, record: Record, verb: str) -> Changes:
        return {"checked": False}

    def change_power(self, record: Record, verb: str) -> None:
        for path in record.machines:
            self._api.power(path, verb)

    def explain(
        self, verb: str, name: str, answer: Answer, candidate: Candidate | None, record: Record | None
    ) -> OrchError:
        project = self._api.project if record is None else record.project
        error = explain(verb, name, answer, project)
        where = f" --project={project}" if project else ""
        if answer.kind is Kind.API_DISABLED:
            error.next_step = f"gcloud services enable compute.googleapis.com{where}   then wait a minute"
        elif isinstance(error, AccessError) and answer.kind is not Kind.CREDENTIALS:
            error.next_step = f"ask the project's owner for the role {ROLE}{where}"
        return error

    def list_used_projects(self) -> set[str]:
        """Return the projects in which something was made from here."""
        return {place[0] for place in self._records.places()}

    def _list_projects(self) -> list[ListedResource]:
        try:
            return listing.list_resources(self._api, self._projects())
        except Refused as refused:
            # Without the API there are no machines, unless some were made before it was turned off.
            off = refused.answer.kind is Kind.API_DISABLED
            if not (off and self._complete) or self._api.project in self.list_used_projects():
                raise
            return []

    def _projects(self) -> set[str]:
        found = (set[str]() if self._complete else self.list_used_projects()) | ({self._api.project} - {""})
        if not found:
            raise UserError("no Google project is named", "", "gcloud config set project PROJECT")
        return found

    def _delete(self, path: str) -> None:
        """Request a deletion. What is busy, or still in use, is requested again at the next observation."""
        try:
            self._api.delete(path)
        except Refused as refused:
            if refused.answer.kind not in (Kind.INVALID, Kind.WRONG_STATE):
                raise

    def _observer(self, record: Record) -> Observer:
        return Observer(self._api, record, self._login, self._keys, self._reported)


def _is_resize(step: Request) -> bool:
    return step.target.partition("?")[0].endswith("/resize")


def _short(path: str) -> str:
    """Return the kind and the name of a resource."""
    return "/".join(path.split("/")[-2:])
