"""TPU VMs by the TPU API. See providers/protocol.py; serves also `Stops`, for single hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.clock import RealClock, ServerClock
from orchestrator.errors import CloudError, ConflictError, NotFoundError, OrchError, UserError
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google import choices, sending, states
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.adopting import Adopter
from orchestrator.providers.google.both import COMPUTE, TPU, Both
from orchestrator.providers.google.client import TpuApi, error_of, open_api
from orchestrator.providers.google.gated import GATES, Gated
from orchestrator.providers.google.labels import INTENT
from orchestrator.providers.google.listing import Listed, listed
from orchestrator.providers.google.looking import Eyes
from orchestrator.providers.google.planner import PLANNER, stop_refusal
from orchestrator.providers.google.record import Phase, Record, Records
from orchestrator.providers.google.recovering import TpuRecovery
from orchestrator.providers.google.session import Session, open_session
from orchestrator.providers.google.startup import USER
from orchestrator.providers.local.sshd import account
from orchestrator.providers.records import FolderRecords, RecordSource
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import (
    OwnedSlice,
    RecoveredSlice,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
    UnmanagedSlice,
)

if TYPE_CHECKING:
    from orchestrator.providers.google.compute.provider import ComputeProvider


def open_provider(state: Path, clock: ServerClock | None = None, records: RecordSource = FolderRecords) -> Gated:
    """The provider "gcp".

    Raises AccessError without credentials, UserError without the library or for a wrong ORCH_GCP_ENDPOINT.
    """
    clock = clock or RealClock()
    session = open_session(clock.learn)

    @cache
    def opened(project: str, *, complete: bool) -> Gated:
        return _open(
            replace(session, project=project),
            lambda kind: records(state.absolute() / kind),
            clock.now,
            partial(opened, complete=True),
            partial(opened, complete=complete),
            complete=complete,
        )

    return opened(session.project, complete=False)


def _open(
    session: Session,
    place: Callable[[str], RecordPlace],
    now: Callable[[], float],
    at: Callable[[str], Gated],
    in_project: Callable[[str], Gated],
    *,
    complete: bool,
) -> Gated:
    """complete: it searches all of the session's project, and nothing else; see protocol.HasPlaces."""

    def compute() -> ComputeProvider:
        from orchestrator.providers.google.compute.provider import open_compute

        return open_compute(session, place(COMPUTE), now, complete=complete)

    tpu = GoogleProvider(open_api(session), place(TPU), now, complete=complete)
    both = Both(place, tpu, compute, complete=complete)
    return Gated(both, session, place(GATES), now, at=at, in_project=in_project, complete=complete)


class GoogleProvider:
    """Every create is sent once and then looked for; nothing is ended that does not carry its record's token."""

    name = "gcp"

    def __init__(
        self, api: TpuApi, records: RecordPlace | Path, now: Callable[[], float] = time.time, *, complete: bool = False
    ) -> None:
        login = Login(account().name, own_ports=True) if api.loopback else Login(USER)
        self._api = api
        self._records = Records(records)
        self._eyes = Eyes(api=api, records=self._records, login=login, now=now)
        self._now = now
        self._complete = complete
        self._adopter = Adopter(api, self._records, self._eyes, now)

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Raises ConflictError for a name that is somebody else's, CloudError when Google's answer is lost."""
        if spec.candidate.adopted:
            with _explained("adopt", spec.candidate.adopted, spec.candidate.detail("project")):
                self._adopter.adopt(spec, keys)
            return
        request = sending.ready(PLANNER, spec, keys, self._api.project)
        record = self._new_record(sending.with_project(spec, self._api.project), keys)
        with _explained("create", spec.name, record.project):
            repeated = self._before(record)
            if repeated is None:
                return
            record = self._records.write(record, Phase.ASKED)
            try:
                operation = self._api.create(request)
            except Refused as refused:
                self._after_refusal(record, refused, repeated=repeated)
                return
        self._records.write(record, Phase.ACCEPTED, operation)

    def observe(self, name: str, token: str = "") -> SliceView:
        """Never raises for what Google says: UNCLEAR with its words."""
        try:
            record = self._record(name, token)
            if record is None:
                return self._elsewhere(name, token)
            if record.phase is Phase.REFUSED:
                return SliceView(state=SliceState.ABSENT)
            return self._eyes.look(record)
        except Refused as refused:
            return SliceView(state=SliceState.UNCLEAR, reason=f"{refused.answer.kind}: {refused.answer.words}")
        except (OrchError, OSError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def end(self, name: str, token: str = "") -> None:
        """Raises ConflictError for what no orch has made, CloudError when it has to be asked again."""
        choices.check_name(name)
        record = self._record(name, token)
        with _explained("end", name, self._api.project):
            if record is None:
                self._end_elsewhere(name, token)
                return
            if record.phase not in (Phase.ENDING, Phase.REFUSED):
                record = self._records.write(record, Phase.ENDING)
            if record.kind == "queued" and self._end_queued(record):
                return
            for node in self._eyes.own_nodes(record):
                self._delete(node)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Raises CloudError when the listing is not whole."""
        with _explained("list", "", self._api.project):
            zones = {zone for _, zone in self._records.places()}
            found = [one.owned() for one in self._listed(zones)]
        return tuple(one for one in found if installation in ("", one.installation))

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """See protocol.Recovers."""
        with _explained("look at", found.name, self._api.project):
            return self._recovery(found).describe()

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """See protocol.Recovers."""
        with _explained("label", found.name, self._api.project):
            self._recovery(found).relabel(installation, epoch)

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """See protocol.Recovers."""
        with _explained("look at", found.name, self._api.project):
            self._records.put(self._recovery(found).record(recovered, keys, self._now()))

    def _recovery(self, found: OwnedSlice) -> TpuRecovery:
        return TpuRecovery(self._api, self._api.project, found)

    def projects(self) -> set[str]:
        """Those in which something was made from here."""
        return {project for project, _ in self._records.places()}

    def find(self, name: str, zone: str, project: str = "", user: str = "") -> UnmanagedSlice:
        """See protocol.Adopts."""
        with _explained("find", name, project):
            return self._adopter.find(name, zone, project, user)

    def release(self, name: str) -> None:
        record = self._records.read(name)
        if record is not None:
            with _explained("release", name, record.project):
                self._adopter.release(record)

    def stop(self, name: str) -> None:
        """Raises UserError for slices of several hosts and for queued ones, NotFoundError, ConflictError."""
        self._power(name, "stop", done=(SliceState.STOPPED, SliceState.STOPPING), allowed=SliceState.READY)

    def start(self, name: str) -> None:
        self._power(name, "start", done=(SliceState.READY, SliceState.STARTING), allowed=SliceState.STOPPED)

    def instance_names(self, name: str) -> tuple[str, ...]:
        """What Compute Engine calls each host, in rank order; "" for one that has not said it."""
        record = self._records.read(name)
        with _explained("look at", name, self._api.project):
            paths = record.node_paths if record is not None else ()
            return tuple(one for path in paths for one in self._api.instance_names(path))

    def _new_record(self, spec: SliceSpec, keys: SliceKeys) -> Record:
        asked = choices.read(spec.candidate)
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            project=asked.project.reveal(),
            zone=asked.zone,
            kind=asked.path.kind,
            slices=asked.slices,
            hosts_per_slice=asked.hosts_per_slice,
            internal_ips=asked.internal_ips,
            api=asked.path.api,
            valid_seconds=asked.valid_seconds if asked.path.kind == "queued" else 0,
            run_seconds=asked.run_seconds,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=self._now(),
            changed=self._now(),
        )

    def _before(self, new: Record) -> bool | None:
        """What an earlier create has left. None: it is there already. True: asked before. False: never asked before."""
        self._records.sweep()
        old = self._records.read(new.name)
        if old is None or old.phase is Phase.REFUSED:
            return False
        there = self._eyes.is_there(old)
        if old.token != new.token:
            if there:
                raise _taken(new.name, "it was made for another request")
            return False
        if old.phase is Phase.ENDING:
            if there is None:
                return True
            raise _taken(new.name, "it is being ended")
        if there is False:
            raise _taken(new.name, "one with another owner has this name")
        if there and old.phase is Phase.ASKED:
            self._records.write(old, Phase.ACCEPTED)
        return None if there else True

    def _after_refusal(self, record: Record, refused: Refused, *, repeated: bool) -> None:
        """Find out what happened; returns when the slice is there and ours. Raises OrchError, Refused."""
        kind = refused.answer.kind
        if kind is not Kind.TAKEN and not kind.may_have_acted:
            if not repeated:
                self._records.write(record, Phase.REFUSED)
            raise refused
        there = self._eyes.is_there(record)
        if there:
            self._records.write(record, Phase.ACCEPTED)
            return
        if there is False:
            self._records.write(record, Phase.REFUSED)
            raise _taken(record.name, refused.answer.words) from refused
        if kind is Kind.TAKEN:  # by something that is not shown: perhaps by our own request, sent twice on its way
            raise CloudError(f"create {record.name}: the name is taken", "what has it is not listed yet", "try again")
        raise refused

    def _found(self, name: str, token: str) -> list[Listed]:
        """There is no record here: the whole project is searched. token: see providers/protocol.py."""
        sure = set[str]() if self._complete else None
        every = [one for one in self._listed(sure) if one.slice == name]
        return [one for one in every if token in ("", one.owned().intent)]

    def _listed(self, sure: set[str] | None) -> list[Listed]:
        try:
            return listed(self._api, self._projects(), sure)
        except (
            Refused
        ) as refused:  # without the API there is no TPU of it, unless one was made before it was turned off
            off = refused.answer.kind is Kind.API_DISABLED
            if not (off and self._complete) or self._api.project in self.projects():
                raise
            return []

    def _record(self, name: str, token: str) -> Record | None:
        """Of two slices of one name it may be the other one's."""
        record = self._records.read(name)
        return None if record is not None and token not in ("", record.token) else record

    def _elsewhere(self, name: str, token: str) -> SliceView:
        found = self._found(name, token)
        if not found:
            return SliceView(state=SliceState.ABSENT)
        if found[0].state is SliceState.READY:
            words = f"it is in {found[0].zone}, and was made from another computer, which has its keys"
            return SliceView(state=SliceState.UNCLEAR, reason=words, installation=found[0].owned().installation)
        owner = found[0].owned().installation
        return SliceView(state=found[0].state, reason=f"in {found[0].zone}", installation=owner)

    def _end_elsewhere(self, name: str, token: str) -> None:
        for one in self._found(name, token):
            self._end_listed(one)

    def _end_listed(self, one: Listed) -> None:
        if INTENT not in one.labels or one.state is SliceState.ENDING:
            return
        if one.adopted:
            words = "it was adopted from another computer, and only that one knows all of it"
            raise UserError(f"{one.path} is not ended from here", words, "there: orch down   or: orch release")
        if one.queued:
            self._api.delete_queued(one.path)
        else:
            self._api.delete_node(one.path)

    def _end_queued(self, record: Record) -> bool:
        """Whether the queued resource is there; then its nodes go with it."""
        queued = self._api.queued(record.queued_path)
        if queued is None or not self._eyes.has_queued(record, queued):
            return False
        state = states.queued_view(queued, self._now()).state
        if state is not SliceState.ENDING:  # SUSPENDING refuses to be deleted and becomes SUSPENDED by itself
            self._api.delete_queued(record.queued_path)
        return True

    def _delete(self, node: Any) -> None:
        """What is said to be going may be stuck there, and is asked again: that it is going already is no error."""
        try:
            self._api.delete_node(node.name)
        except Refused as refused:
            going = states.node_view(node).state is SliceState.ENDING
            if not going or refused.answer.kind not in (Kind.WRONG_STATE, Kind.TAKEN, Kind.INVALID):
                raise

    def _power(self, name: str, verb: str, *, done: tuple[SliceState, ...], allowed: SliceState) -> None:
        record = self._records.read(name)
        if record is None:
            raise NotFoundError(f"there is no TPU '{name}' that was made from here", "", "orch status")
        refusal = stop_refusal(f"'{name}'", record.kind, record.slices * record.hosts_per_slice)
        if refusal is not None:
            raise refusal
        with _explained(verb, name, record.project):
            nodes = self._eyes.own_nodes(record)
            if not nodes:
                raise NotFoundError(f"there is no TPU '{name}'", "", "orch status")
            state = states.node_view(nodes[0]).state
            if state in done:
                return
            if state is not allowed:
                raise ConflictError(f"TPU '{name}' is {state}", "that cannot be done to it now", "orch status")
            (self._api.stop if verb == "stop" else self._api.start)(nodes[0].name)

    def _projects(self) -> set[str]:
        found = (set[str]() if self._complete else self.projects()) | ({self._api.project} - {""})
        if not found:
            raise UserError("no Google project is named", "", "gcloud config set project PROJECT")
        return found


def _taken(name: str, why: str) -> ConflictError:
    return ConflictError(f"a TPU '{name}' exists already", why, "orch status   or take another name: -c NAME")


@contextmanager
def _explained(verb: str, name: str, project: str) -> Generator[None]:
    """An answer of the API as an error of ours."""
    try:
        yield
    except Refused as refused:
        raise error_of(verb, name, refused, project) from refused
    except OSError as error:
        raise CloudError(
            f"{verb} {name} failed on this computer", str(error), "fix that, then run the same command again"
        ) from error
