"""The half of the provider "aws" that does I/O. See providers/protocol.py; serves also `Stops`.

A slice is one RunInstances call, with a few requests before it that make what the machines need. The record is written
before the first of them; what is lost on the way is looked for by its tags, and nothing is ended that does not carry
its record's token.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.clock import RealClock, ServerClock
from orchestrator.errors import (
    AccessError,
    CapacityError,
    CloudError,
    ConflictError,
    NotFoundError,
    OrchError,
    UserError,
)
from orchestrator.providers.aws import (
    admitting,
    choices,
    configured,
    market,
    quotas,
    reservations,
    states,
    userdata,
)
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.faults import Answer, Kind, Refused, explain
from orchestrator.providers.aws.finishing import Finisher
from orchestrator.providers.aws.identity import read_account, refuse_other_account
from orchestrator.providers.aws.looking import Eyes
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.reach import Login
from orchestrator.providers.aws.record import Phase, Record, Records
from orchestrator.providers.aws.recovering import Recovery
from orchestrator.providers.aws.sending import Creation, Launcher
from orchestrator.providers.aws.session import AwsSession, import_library, open_session
from orchestrator.providers.aws.tags import INSTALLATION
from orchestrator.providers.aws.unknowns import USER_DATA
from orchestrator.providers.aws.unrecorded import Sightings, UnrecordedSlices
from orchestrator.providers.aws.waiting import keep_waiting
from orchestrator.providers.caller import CallerAddress
from orchestrator.providers.local.sshd import account
from orchestrator.providers.records import FolderRecords, RecordSource
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    Market,
    OnDemand,
    OwnedSlice,
    RecoveredSlice,
    Reservation,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
    Spot,
)

FOLDER = "aws"  # of the records, below the state folder
_FINAL = (CapacityError, AccessError, UserError, ConflictError)  # a create that ends so is never sent again


def open_provider(state: Path, clock: ServerClock | None = None, records: RecordSource = FolderRecords) -> AwsProvider:
    """Raises UserError without the library. Credentials are looked for by profile, when they are needed."""
    import_library()
    clock = clock or RealClock()
    return AwsProvider(partial(open_session, learn=clock.learn), records(state.absolute() / FOLDER), clock.now)


class AwsProvider:
    """sessions: one by profile. sleep: between tries of what is throttled, or not known everywhere yet."""

    name = "aws"
    place_word = "profile"
    searched = "every region"

    def __init__(
        self,
        sessions: Callable[[str], AwsSession],
        records: RecordPlace | Path,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._open = sessions
        self._opened: dict[str, AwsSession] = {}
        self._callers: dict[str, CallerAddress] = {}
        self._records = Records(records)
        self._now = now
        self._sleep = sleep
        self._only: str | None = None  # a profile: the one place that is asked
        self._bound: tuple[str, str] | None = None  # profile and account
        self._sightings = Sightings()

    def account(self, candidate: Candidate) -> str:
        """See protocol.HasAccounts."""
        with _explained("ask for the account of the credentials", ""):
            return read_account(self._session(candidate.detail("profile")))

    def within(self, account: str, candidate: Candidate) -> AwsProvider:
        """See protocol.HasAccounts."""
        profile = candidate.detail("profile")
        with _explained("ask for the account of the credentials", ""):
            refuse_other_account(self._session(profile), account)
        bound = copy.copy(self)
        bound._bound = (profile, account)
        return bound

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """A slice of a capacity block that has not begun is accepted, and waits. A refusal leaves nothing behind.

        Raises ConflictError for a name that is somebody else's, CloudError when an answer is lost, or when a part was
        made that could not be taken away again.
        """
        spec.token.reveal()
        asked = choices.read(spec.candidate)
        new = self._new_record(spec, keys, asked)
        with _explained("create", spec.name, spec.candidate):
            calls = self._calls(new)
            begun = self._begun(new)
            if begun is None:
                return
            record, repeated = begun
            caller = self._caller(record.profile)
            creation = Creation(calls=calls, records=self._records, record=record, caller=caller.read)
            try:
                self._reserve(creation, spec.candidate, repeated=repeated)
                self._make(creation, spec, keys, asked.max_hours)
            except (Refused, OrchError) as error:
                if not repeated and _is_final(error):
                    self._withdraw(creation, error)
                raise

    def observe(self, name: str, token: str = "") -> SliceView:
        """Never raises for what AWS says: UNCLEAR with its words."""
        return self._viewed(self._look, UnrecordedSlices.observe, name, token)

    def finish(self, name: str, token: str = "") -> SliceView:
        """See protocol.Finishes."""
        return self._viewed(self._finish, UnrecordedSlices.finish, name, token)

    def _viewed(
        self,
        look: Callable[[Record], SliceView],
        unrecorded: Callable[[UnrecordedSlices, str, str], SliceView],
        name: str,
        token: str,
    ) -> SliceView:
        try:
            record = self._record(name, token)
            return unrecorded(self._unrecorded(), name, token) if record is None else look(record)
        except Refused as refused:
            return SliceView(state=SliceState.UNCLEAR, reason=f"{refused.answer.kind}: {refused.answer}")
        except (OrchError, OSError, LookupError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def end(self, name: str, token: str = "") -> None:
        """Instances first. Called again when they are gone, it takes away what they have left behind."""
        record = self._record(name, token)
        with _explained("end", name):
            if record is None:
                self._unrecorded().end(name, token)
            elif record.phase is not Phase.REFUSED:
                if record.phase is not Phase.ENDING:
                    record = self._records.write(self._records.drop_request(record), Phase.ENDING)
                self._end(record)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Raises CloudError when the listing is not whole, AccessError."""
        with _explained("list", ""):
            filters = {f"tag:{INSTALLATION}": [installation]} if installation else {"tag-key": [INSTALLATION]}
            return self._unrecorded().owned(filters)

    def places(self, *, named: bool) -> tuple[str, ...]:
        """See protocol.HasPlaces."""
        usual = configured.usual_profile(os.environ, Path.home())
        found = self._records.profiles() | ({""} if usual is not None else set[str]())
        if named:
            found |= {*configured.list_profiles(os.environ, Path.home())}
        return tuple(sorted(found - {usual or ""} | ({""} if usual is not None else set[str]()))) or ("",)

    def at(self, place: str) -> AwsProvider:
        """See protocol.HasPlaces."""
        bound = copy.copy(self)
        bound._only = place
        return bound

    def place_account(self) -> str:
        """See protocol.NamesAccounts."""
        with _explained("ask for the account of the credentials", ""):
            return read_account(self._session(self._only or ""))

    def place_of(self, account: str) -> str:
        """See protocol.NamesAccounts: which account a profile is of, only its credentials say."""
        return ""

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """See protocol.Recovers."""
        with _explained("look at", found.name):
            return self._recovery(found).describe(self._profile_of(found))

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """See protocol.Recovers."""
        with _explained("label", found.name):
            self._recovery(found).relabel(installation, epoch)

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """See protocol.Recovers."""
        with _explained("look at", found.name):
            self._records.put(self._recovery(found).record(recovered, keys, self._now()))

    def needs_admission(self, candidate: Candidate) -> bool:
        """See protocol.PlansAdmission."""
        return PLANNER.needs_admission(candidate)

    def own_address(self, candidate: Candidate) -> str:
        """See protocol.AdmitsAddresses."""
        return self._caller(candidate.detail("profile")).read()

    def change_addresses(
        self, name: str, token: str, candidate: Candidate, admitted: Mapping[str, str], withdrawn: Collection[str]
    ) -> None:
        """See protocol.AdmitsAddresses."""
        record, place = self._record(name, token), choices.read(candidate).place
        region = record.region if record is not None else place.region
        with _explained("admit this computer to", name):
            calls = Calls(self._session(place.profile), region, self._sleep)
            admitting.change_addresses(calls, name, token, admitted, withdrawn)

    def stop(self, name: str) -> None:
        """Raises UserError for what cannot be stopped and kept, NotFoundError, ConflictError."""
        self._power(name, "stop", done=(SliceState.STOPPED, SliceState.STOPPING), allowed=SliceState.READY)

    def start(self, name: str) -> None:
        self._power(name, "start", done=(SliceState.READY, SliceState.STARTING), allowed=SliceState.STOPPED)

    def _new_record(self, spec: SliceSpec, keys: SliceKeys, asked: choices.Choices) -> Record:
        if not len(keys.host_private) == len(keys.host_public) == asked.hosts:
            raise ValueError(f"{asked.hosts} hosts need a key pair each, there are {len(keys.host_private)}")
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            region=asked.place.region,
            profile=asked.place.profile,
            zone=asked.zone,
            hosts=asked.hosts,
            market=_word(asked.market),
            reservation=market.reservation_of(asked.market),
            way=asked.access.way,
            jump=asked.access.jump,
            user=asked.user,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=self._now(),
            changed=self._now(),
        )

    def _begun(self, new: Record) -> tuple[Record, bool] | None:
        """The record of this create, and whether it was asked for before. None: it is accepted already."""
        self._records.sweep()
        old = self._records.read(new.name)
        if old is None or old.phase is Phase.REFUSED:
            return self._records.put(new), False
        if old.token == new.token and old.phase in (Phase.ACCEPTED, Phase.WAITING):
            return None
        if old.token == new.token and old.phase is Phase.ASKED:
            return self._records.put(replace(new, known=old.known)), True
        view = self._finish(old)
        if view.state is SliceState.UNCLEAR:
            raise CloudError(f"create {new.name}: it is not known whether the name is free", view.reason, "try again")
        if view.state is not SliceState.ABSENT:
            why = "it is being ended" if old.phase is Phase.ENDING else "it was made for another request"
            raise ConflictError(f"a slice '{new.name}' exists already", why, "take another name: -c NAME")
        return self._records.put(new), old.token == new.token

    def _make(self, creation: Creation, spec: SliceSpec, keys: SliceKeys, max_hours: float | None) -> None:
        user = creation.record.user
        creation.known[USER_DATA] = userdata.render(
            keys.user_public, keys.host_private, user, max_hours, recovery_public=keys.recovery_public
        )
        request = PLANNER.create_request(spec)
        creation.prepare(request)
        params = creation.params(request)
        if creation.record.begins:
            keep_waiting(self._records, replace(creation.record, phase=Phase.WAITING), params)
        else:
            Launcher(creation.calls, self._records, self._now).launch(creation.record, params, fresh=creation.fresh)

    def _reserve(self, creation: Creation, candidate: Candidate, *, repeated: bool) -> None:
        """Look at the reservation that the machines come from, where there is one."""
        if not creation.record.reservation:
            return
        found = reservations.checked(creation.calls, candidate, repeated=repeated)
        block = isinstance(candidate.market, CapacityBlock)
        creation.record = self._records.write(
            creation.record,
            zone=creation.record.zone or found.zone,
            begins=(found.begins or self._now()) if block and found.coming else 0.0,
            ends=found.ends if block else 0.0,
        )

    def _withdraw(self, creation: Creation, error: Exception) -> None:
        """After a refusal nobody looks again. Raises CloudError when something of it is left."""
        try:
            creation.withdraw()
        except Refused as refused:
            words = f"{error}; and then: {refused.answer}"
            raise CloudError(f"only a part of {creation.record.name} was made", words, "orch down   ends it") from error
        self._records.write(creation.record, Phase.REFUSED)

    def _look(self, record: Record) -> SliceView:
        if record.phase is Phase.REFUSED:
            return SliceView(state=SliceState.ABSENT)
        calls = self._calls(record)
        return self._eyes(calls).look(calls, record)

    def _finish(self, record: Record) -> SliceView:
        if record.phase is Phase.REFUSED:
            return SliceView(state=SliceState.ABSENT)
        calls = self._calls(record)
        return Finisher(eyes=self._eyes(calls), calls=calls).finish(record)

    def _end(self, record: Record) -> None:
        calls = self._calls(record)
        shown = self._eyes(calls).instances(calls, record)
        ids = [str(one["InstanceId"]) for one in states.lasting(shown)]
        if ids:
            calls.change("TerminateInstances", {"InstanceIds": ids})
        known = {str(one["InstanceId"]) for one in shown}
        unseen = [identity for identity in record.instances if identity not in known]
        for identity in unseen if not self._eyes(calls).settled(record) else ():
            try:  # not shown yet, but made
                calls.change("TerminateInstances", {"InstanceIds": [identity]})
            except Refused as refused:
                if refused.answer.kind is not Kind.NOT_FOUND:
                    raise
        if all(states.state_of(one) == "terminated" for one in shown):
            AuxiliaryResources(calls, record.name, record.token).remove()

    def _unrecorded(self) -> UnrecordedSlices:
        """In the account that this is bound to; else in every one in which something was requested from here."""
        only = self._only if self._bound is None else self._bound[0]
        profiles = {only} if only is not None else self._records.profiles() or {""}
        return UnrecordedSlices(
            sessions=[self._session(profile) for profile in sorted(profiles)],
            bound=self._bound is not None,
            sightings=self._sightings,
            now=self._now,
            sleep=self._sleep,
        )

    def _power(self, name: str, verb: str, *, done: tuple[SliceState, ...], allowed: SliceState) -> None:
        record = self._record(name, "")
        if record is None:
            raise NotFoundError(f"there is no slice '{name}' that was made from here", "", "orch status")
        refusal = market.stop_refusal(f"'{name}'", _market(record))
        if refusal is not None:
            raise refusal
        with _explained(verb, name):
            view = self._look(record)
            if view.state in done:
                return
            if view.state is SliceState.ABSENT:
                raise NotFoundError(f"there is no slice '{name}'", "", "orch status")
            if view.state is not allowed:
                raise ConflictError(f"'{name}' is {view.state}", view.reason or "not now", "orch status")
            record = self._records.write(record, power=verb)
            self._calls(record).change(f"{verb.capitalize()}Instances", {"InstanceIds": list(record.instances)})

    def _profile_of(self, found: OwnedSlice) -> str:
        return self._only or ""

    def _recovery(self, found: OwnedSlice) -> Recovery:
        session = self._session(self._profile_of(found))
        region = found.where.split("/")[1]
        return Recovery(Calls(session, region, self._sleep), found.name, found.intent)

    def _record(self, name: str, token: str) -> Record | None:
        """Of two slices of one name it may be the other one's."""
        record = self._records.read(name)
        return None if record is not None and token not in ("", record.token) else record

    def _calls(self, record: Record) -> Calls:
        return Calls(self._session(record.profile), record.region, self._sleep)

    def _session(self, profile: str) -> AwsSession:
        if profile not in self._opened:
            self._opened[profile] = self._open(profile)
        return self._opened[profile]

    def _caller(self, profile: str) -> CallerAddress:
        return self._callers.setdefault(profile, CallerAddress(self._session(profile), instead="access: ssm"))

    def _eyes(self, calls: Calls) -> Eyes:
        login = Login(account().name) if calls.session.loopback else Login()
        return Eyes(self._records, login, self._now)


def _is_final(error: Refused | OrchError) -> bool:
    if isinstance(error, Refused):
        return isinstance(explain("create", "", error.answer), _FINAL)
    return isinstance(error, _FINAL)


def _word(asked: Market) -> str:
    match asked:
        case Spot():
            return "spot"
        case Reservation():
            return "reservation"
        case CapacityBlock():
            return "block"
        case _:
            return ""


def _market(record: Record) -> Market:
    found: dict[str, Market] = {"spot": Spot(), "block": CapacityBlock(record.reservation)}
    return found.get(record.market, OnDemand())


@contextmanager
def _explained(verb: str, name: str, candidate: Candidate | None = None) -> Generator[None]:
    """An answer of AWS as an error of ours."""
    try:
        yield
    except Refused as refused:
        raise explain(verb, name, refused.answer, _advice(refused.answer, candidate)) from refused
    except OSError as error:
        raise CloudError(
            f"{verb} {name} failed on this computer", str(error), "fix that, then run the same command again"
        ) from error


def _advice(answer: Answer, candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    place = (candidate.region, candidate.detail("profile"))
    return quotas.advice(answer.code, candidate.accelerator, candidate.hosts, candidate.market, *place)
