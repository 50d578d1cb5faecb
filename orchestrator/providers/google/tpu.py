"""The driver of the TPU API: a slice is one node or one queued resource, made by one request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import OrchError, UserError
from orchestrator.providers.core.driver import Changes, Response, SliceDriver
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.core.listed import ListedResource
from orchestrator.providers.core.record import Phase
from orchestrator.providers.google import choices, listing, sending, states
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.alpha import Operation
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.host_keys import HostKeys
from orchestrator.providers.google.observing import Observer
from orchestrator.providers.google.planner import PLANNER, stop_refusal
from orchestrator.providers.google.record import Record, Records
from orchestrator.providers.google.recovering import derive_host_public
from orchestrator.providers.google.retries import explain, read_status
from orchestrator.providers.google.startup import USER
from orchestrator.providers.local.sshd import account
from orchestrator.slices import Candidate, Request, SliceKeys, SliceSpec, SliceState, SliceView
from orchestrator.values import Unknown

_ENDING_ALREADY = (Kind.WRONG_STATE, Kind.TAKEN, Kind.INVALID)


class TpuDriver(SliceDriver[Record]):
    """The slices of the TPU API in some projects. Every slice is one step.

    Args:
        api: Its calls; it names the usual project.
        records: The records of the slices.
        now: Epoch seconds.
        complete: All of the usual project is searched, and nothing else; see protocol.HasPlaces.
    """

    name = "gcp"
    noun = "TPU"

    def __init__(
        self, api: TpuApi, records: Records, now: Callable[[], float] = time.time, *, complete: bool = False
    ) -> None:
        self.api = api
        self._records = records
        self._now = now
        self._complete = complete
        self._login = Login(account().name, own_ports=True) if api.loopback else Login(USER)
        self._keys = HostKeys(now=now)

    def plan_create(self, spec: SliceSpec) -> Request:
        """Return it without the firewall rules before it, which gated.py makes."""
        return replace(PLANNER.create_request(sending.with_project(spec, self.api.project)), before=())

    def new_record(self, spec: SliceSpec, keys: SliceKeys, now: float) -> Record:
        candidate = sending.with_project(spec, self.api.project).candidate
        asked = choices.read(candidate)
        if not len(keys.host_private) == len(keys.host_public) == candidate.hosts:
            raise ValueError(f"{candidate.hosts} hosts need a key pair each, there are {len(keys.host_private)}")
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            project=asked.project.reveal(),
            zone=asked.zone,
            kind=asked.path.kind,
            slices=asked.slices,
            hosts_per_slice=asked.hosts_per_slice,
            internal_ips=asked.internal_ips,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=now,
            changed=now,
            api=asked.path.api,
            valid_seconds=asked.valid_seconds if asked.path.kind == "queued" else 0,
            run_seconds=asked.run_seconds,
        )

    def initial_known(self, record: Record, spec: SliceSpec, keys: SliceKeys) -> Mapping[Unknown, str]:
        return sending.list_known(keys)

    def fill(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Request:
        return sending.fill(step, known)

    def makes_machines(self, step: Request) -> bool:
        return True

    def look(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Response | None:
        """The hosts have the keys that Google holds: another computer may have sent the request."""
        found = self._observer(record).find_created()
        if found is None:
            return None
        try:
            return {"host_public": derive_host_public([dict(found.metadata)])}
        except ValueError:
            return {}

    def send(self, record: Record, step: Request, *, fresh: bool) -> Response:
        return {"operation": self.api.create(step)}

    def note_answer(self, record: Record, step: Request, answer: Response) -> Changes:
        return {field: value for field, value in answer.items() if value}

    def observe(self, record: Record) -> SliceView | None:
        return self._observer(record).observe()

    def observe_pending(self, record: Record) -> SliceView | None:
        """Return what became of the create, by its long-running operation."""
        operation = self._operation(record)
        if operation is None or (operation.done and not operation.code):
            return None
        if not operation.done:
            return SliceView(state=SliceState.CREATING, reason="accepted, not shown yet")
        answer = read_status(operation.code, operation.words)
        refused = explain("create", record.name, answer, record.project)
        return SliceView(state=SliceState.FAILED, reason=str(answer), refused=refused)

    def may_arrive(self, record: Record) -> bool:
        """Return whether a create is under way whose slice is not shown."""
        if not record.operation:  # its answer was lost
            return True
        if record.phase is Phase.ACCEPTED:  # observe_pending has found it done
            return False
        operation = self._operation(record)
        return operation is not None and not operation.done

    def end_machines(self, record: Record) -> bool:
        """The nodes of a queued resource end with it."""
        observer = self._observer(record)
        queued = observer.find_queued() if record.kind == "queued" else None
        if queued is not None:
            # SUSPENDING refuses to be deleted, and becomes SUSPENDED by itself.
            if states.queued_view(queued, self._now()).state is not SliceState.ENDING:
                self.api.delete_queued(record.queued_path)
            return False
        nodes = observer.list_nodes()
        for node in nodes:
            try:
                self.api.delete_node(node.name)
            except Refused as refused:  # an end that is stuck is requested again
                ending = states.node_view(node).state is SliceState.ENDING
                if not ending or refused.answer.kind not in _ENDING_ALREADY:
                    raise
        return not nodes

    def list_resources(self, name: str = "", token: str = "", *, installation: str = "") -> Sequence[ListedResource]:
        """In the usual project, and in every one in which something was requested from here.

        Where one slice is looked for, all zones must answer; else those in which something was requested.
        """
        required: set[str] | None = {zone for _, zone in self._records.places()}
        if name:
            required = set() if self._complete else None
        try:
            parts = [listing.list_labelled(self.api, project, required) for project in sorted(self._projects())]
        except Refused as refused:
            # Without the API there is no TPU of it, unless one was made before it was turned off.
            disabled = refused.answer.kind is Kind.API_DISABLED
            if not (disabled and self._complete) or self.api.project in self.projects():
                raise
            return []
        return [
            one
            for part in parts
            for one in part
            if name in ("", one.owner.slice)
            and token in ("", one.owner.intent)
            and installation in ("", one.owner.installation)
        ]

    def end_listed(self, resources: Sequence[ListedResource]) -> None:
        for one in resources:
            if one.state is not SliceState.ENDING:
                queued = "/queuedResources/" in one.identity
                (self.api.delete_queued if queued else self.api.delete_node)(one.identity)

    def refuse_stop(self, record: Record) -> UserError | None:
        return stop_refusal(f"'{record.name}'", record.kind, record.hosts)

    def observe_power(self, record: Record) -> SliceView | None:
        """Return the state of the node, whether or not its hosts have their keys."""
        nodes = self._observer(record).list_nodes()
        return states.node_view(nodes[0]) if nodes else SliceView(state=SliceState.ABSENT)

    def change_power(self, record: Record, verb: str) -> None:
        (self.api.stop if verb == "stop" else self.api.start)(record.node_paths[0])

    def explain(
        self, verb: str, name: str, answer: Answer, candidate: Candidate | None, record: Record | None
    ) -> OrchError:
        return explain(verb, name, answer, record.project if record is not None else self.api.project)

    def projects(self) -> set[str]:
        """Return those in which something was made from here."""
        return {project for project, _ in self._records.places()}

    def _projects(self) -> set[str]:
        found = (set[str]() if self._complete else self.projects()) | ({self.api.project} - {""})
        if not found:
            raise UserError("no Google project is named", "", "gcloud config set project PROJECT")
        return found

    def _operation(self, record: Record) -> Operation | None:
        return self.api.operation(record.operation, record.api) if record.operation else None

    def _observer(self, record: Record) -> Observer:
        return Observer(
            api=self.api, record=record, records=self._records, login=self._login, keys=self._keys, now=self._now
        )
