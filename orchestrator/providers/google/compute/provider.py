"""The half of the provider "gcp" that does I/O on Compute Engine. See providers/protocol.py; serves also `Stops`.

A slice takes several requests. Each is sent once, with a request id of its own, and what is lost on the way is looked
for by its name; nothing is ended that does not carry its record's token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import AccessError, CloudError, ConflictError, NotFoundError, OrchError, UserError
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.addresses import Login
from orchestrator.providers.google.compute import listing, sending, states
from orchestrator.providers.google.compute.api import ComputeApi, name_of, path_of
from orchestrator.providers.google.compute.hosts import names_by_rank
from orchestrator.providers.google.compute.looking import Eyes, is_ours
from orchestrator.providers.google.compute.parts import read
from orchestrator.providers.google.compute.planner import PLANNER, stop_refusal
from orchestrator.providers.google.compute.record import Record, Records
from orchestrator.providers.google.compute.recovering import ComputeRecovery
from orchestrator.providers.google.labels import INSTALLATION, INTENT
from orchestrator.providers.google.record import Phase
from orchestrator.providers.google.retries import explain
from orchestrator.providers.google.sending import with_project
from orchestrator.providers.google.session import Session
from orchestrator.providers.google.startup import USER
from orchestrator.providers.local.sshd import account
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import OwnedSlice, RecoveredSlice, Request, SliceKeys, SliceSpec, SliceState, SliceView

ROLE = (
    "roles/compute.instanceAdmin.v1"  # holds all that is needed here ("Create a MIG with multi-host TPU slice", 2026)
)


def open_compute(
    session: Session, records: RecordPlace, now: Callable[[], float] = time.time, *, complete: bool = False
) -> ComputeProvider:
    """Sends nothing."""
    return ComputeProvider(ComputeApi(session), records, now, complete=complete)


class ComputeProvider:
    name = "gcp"

    def __init__(
        self,
        api: ComputeApi,
        records: RecordPlace | Path,
        now: Callable[[], float] = time.time,
        *,
        complete: bool = False,
    ) -> None:
        login = Login(account().name, own_ports=True) if api.loopback else Login(USER)
        self._api = api
        self._records = Records(records)
        self._eyes = Eyes(api=api, records=self._records, login=login, now=now)
        self._now = now
        self._complete = complete  # see provider.py

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Raises ConflictError for a name that is somebody else's, CloudError when an answer is lost or when a part of
        the slice was made and the rest was refused: it has to be ended then."""
        spec = with_project(spec, self._api.project)
        steps = sending.ready(PLANNER, spec, keys).in_order
        record = self._new_record(spec, keys)
        with _explained("create", spec.name, record.project):
            repeated = self._before(record)
            if repeated is None:
                return
            record = self._records.write(record, Phase.ASKED)
            operations = [self._step(record, steps, at, repeated=repeated) for at in range(len(steps))]
        made = [path for step, path in zip(steps, operations, strict=True) if path and _makes_machines(step)]
        self._records.write(record, Phase.ACCEPTED, operations=tuple(made))

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
        """Machines first. Called again when they are gone, it takes away templates and policies as well."""
        record = self._record(name, token)
        with _explained("end", name, self._api.project):
            if record is None:
                self._end_elsewhere(name, token)
                return
            if record.phase not in (Phase.ENDING, Phase.REFUSED):
                record = self._records.write(record, Phase.ENDING)
            if not self._end_machines(record):
                for path in self._eyes.left(record):
                    self._delete(path)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Raises CloudError when the listing is not whole."""
        with _explained("list", "", self._api.project):
            every = self._listed()
        return listing.owned(one for one in every if installation in ("", one.owner.get(INSTALLATION)))

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

    def _recovery(self, found: OwnedSlice) -> ComputeRecovery:
        return ComputeRecovery(self._api, self._api.project, found)

    def projects(self) -> set[str]:
        """Those in which something was made from here."""
        return self._records.projects()

    def stop(self, name: str) -> None:
        """Raises UserError for what cannot be stopped and kept, NotFoundError, ConflictError."""
        self._power(name, "stop", done=(SliceState.STOPPED, SliceState.STOPPING), allowed=SliceState.READY)

    def start(self, name: str) -> None:
        self._power(name, "start", done=(SliceState.READY, SliceState.STARTING), allowed=SliceState.STOPPED)

    def instance_names(self, name: str) -> tuple[str, ...]:
        """What Compute Engine calls each host, in rank order."""
        record = self._records.read(name)
        return names_by_rank(record) if record is not None else ()

    def _new_record(self, spec: SliceSpec, keys: SliceKeys) -> Record:
        wanted = read(spec.candidate)
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
            asked=self._now(),
            changed=self._now(),
            wait_seconds=wanted.patience,
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
        return None if there and old.phase is Phase.ACCEPTED else True

    def _step(self, record: Record, steps: tuple[Request, ...], at: int, *, repeated: bool) -> str:
        """Send one request and wait where the next one needs what it makes. Path of its operation, "" for none."""
        step = steps[at]
        path = path_of(step)
        try:
            operation = self._api.send(step)
            if _is_needed(steps, at):
                self._api.settled(path, operation)
        except Refused as refused:
            if not self._is_made(record, step, path, refused):
                self._undo(record, steps[:at], refused, repeated=repeated)
                raise
            return ""
        return name_of(path, operation)

    def _is_made(self, record: Record, step: Request, path: str, refused: Refused) -> bool:
        """After an answer that leaves it open: whether the request has done its work. Raises ConflictError, Refused."""
        kind = refused.answer.kind
        if kind is not Kind.TAKEN and not kind.may_have_acted:
            return False
        found = self._api.get(path)
        if found is not None and not is_ours(record, found):
            self._records.write(record, Phase.REFUSED)
            raise _taken(record.name, refused.answer.words) from refused
        if found is None and kind is Kind.TAKEN:  # by what is not shown: perhaps by our own request, sent twice
            raise CloudError(f"create {record.name}: the name is taken", "what has it is not listed yet", "try again")
        if found is None:
            raise refused
        return not step.target.partition("?")[0].endswith("/resize") or bool(found.get("targetSize"))

    def _undo(self, record: Record, made: tuple[Request, ...], refused: Refused, *, repeated: bool) -> None:
        """After a refusal: take away what came before it. Raises CloudError when machines may be among that.

        A refusal then would say that nothing was made; this says that the slice has to be ended.
        """
        if refused.answer.kind.may_have_acted or repeated:
            return
        words = f"{refused.answer.kind}: {refused.answer.words}"
        partly = CloudError(f"only a part of {record.name} was made", words, "orch down   ends it")
        if any(_makes_machines(step) for step in made):
            raise partly from refused
        try:
            for step in reversed(made):
                self._api.delete(path_of(step))
        except Refused as other:  # what is in use for a moment more
            raise partly from other
        self._records.write(record, Phase.REFUSED)

    def _end_machines(self, record: Record) -> bool:
        """Whether there are any still."""
        found = {path: one for path in record.machines if (one := self._api.get(path)) is not None}
        mine = {path: one for path, one in found.items() if is_ours(record, one)}
        for path, one in mine.items():
            if not _is_going(one):
                self._delete(path)
        return bool(mine)

    def _delete(self, path: str) -> None:
        """What is busy, or still in use, is asked for again when the slice is looked at next."""
        try:
            self._api.delete(path)
        except Refused as refused:
            if refused.answer.kind not in (Kind.INVALID, Kind.WRONG_STATE):
                raise

    def _found(self, name: str, token: str) -> list[listing.Found]:
        """There is no record here: the whole project is searched. token: see providers/protocol.py."""
        every = [one for one in self._listed() if one.slice == name]
        return [one for one in every if token in ("", one.owner.get(INTENT, ""))]

    def _listed(self) -> list[listing.Found]:
        try:
            return listing.found(self._api, self._projects())
        except (
            Refused
        ) as refused:  # without the API there are no machines, unless some were made before it was turned off
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
        state = listing.state_of(found)
        owner = next((one.owner.get(INSTALLATION, "") for one in found if one.kind == "instances"), "")
        if state is SliceState.READY:
            words = f"it is in {found[0].where}, and was made from another computer, which has its keys"
            return SliceView(state=SliceState.UNCLEAR, reason=words, installation=owner)
        return SliceView(state=state, reason=f"in {found[0].where}", installation=owner)

    def _end_elsewhere(self, name: str, token: str) -> None:
        every = self._found(name, token)
        machines = [one for one in every if one.kind in listing.MACHINES]
        for one in machines or every:
            if one.member and any(other.kind == "instanceGroupManagers" for other in machines):
                continue
            self._delete(one.path)

    def _power(self, name: str, verb: str, *, done: tuple[SliceState, ...], allowed: SliceState) -> None:
        record = self._records.read(name)
        if record is None:
            raise NotFoundError(f"there is no TPU '{name}' that was made from here", "", "orch status")
        hosts = record.slices * record.hosts_per_slice
        refusal = stop_refusal(f"'{name}'", hosts, deleted=bool(record.market))
        if refusal is not None:
            raise refusal
        with _explained(verb, name, record.project):
            path = record.machines[0]
            instance = self._api.get(path)
            if instance is None or not is_ours(record, instance):
                raise NotFoundError(f"there is no TPU '{name}'", "", "orch status")
            state = states.instance_view(record, instance).state
            if state in done:
                return
            if state is not allowed:
                raise ConflictError(f"TPU '{name}' is {state}", "that cannot be done to it now", "orch status")
            self._records.write(record, checked=False)
            self._api.power(path, verb)

    def _projects(self) -> set[str]:
        found = (set[str]() if self._complete else self.projects()) | ({self._api.project} - {""})
        if not found:
            raise UserError("no Google project is named", "", "gcloud config set project PROJECT")
        return found


def _makes_machines(step: Request) -> bool:
    path = step.target.partition("?")[0]
    return path.endswith(("/instances", "/resize")) or bool(step.body.get("targetSize"))


def _is_needed(steps: tuple[Request, ...], at: int) -> bool:
    """Whether the request after this one can be sent only when this one is done."""
    return at + 1 < len(steps) and not _makes_machines(steps[at])


def _is_going(machine: dict[str, Any]) -> bool:
    actions: dict[str, int] = machine.get("currentActions") or {}
    return bool(actions.get("deleting")) or machine.get("status") == "DEPROVISIONING"


def _taken(name: str, why: str) -> ConflictError:
    return ConflictError(f"a TPU '{name}' exists already", why, "orch status   or take another name: -c NAME")


@contextmanager
def _explained(verb: str, name: str, project: str) -> Generator[None]:
    """An answer of the API as an error of ours."""
    try:
        yield
    except Refused as refused:
        error = explain(verb, name, refused.answer, project)
        where = f" --project={project}" if project else ""
        if refused.answer.kind is Kind.API_DISABLED:
            error.next_step = f"gcloud services enable compute.googleapis.com{where}   then wait a minute"
        elif isinstance(error, AccessError) and refused.answer.kind is not Kind.CREDENTIALS:
            error.next_step = f"ask the project's owner for the role {ROLE}{where}"
        raise error from refused
    except OSError as error:
        raise CloudError(
            f"{verb} {name} failed on this computer", str(error), "fix that, then run the same command again"
        ) from error
