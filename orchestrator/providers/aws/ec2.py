"""The driver of EC2: a slice is one RunInstances, with the requests before it that make what the machines need."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import OrchError, UserError
from orchestrator.providers.aws import choices, listing, market, quotas, reservations, states, status, steps, userdata
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.associating import associate_addresses
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.observing import Observer
from orchestrator.providers.aws.parameters import fill_request
from orchestrator.providers.aws.planner import PLANNER
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.aws.reach import Login, ranked
from orchestrator.providers.aws.record import Record, Records
from orchestrator.providers.aws.session import AwsSession, option_of
from orchestrator.providers.aws.tags import INSTALLATION, INTENT, SLICE
from orchestrator.providers.aws.unknowns import CALLER, USER_DATA
from orchestrator.providers.caller import CallerAddress
from orchestrator.providers.core.driver import Changes, Response, SliceDriver
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.core.journal import Undo
from orchestrator.providers.core.listed import ListedResource
from orchestrator.providers.local.sshd import account
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    Market,
    OnDemand,
    Request,
    Reservation,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
    Spot,
)
from orchestrator.values import Unknown


class Ec2Driver(SliceDriver[Record]):
    """The slices of EC2 in the accounts of some profiles.

    Args:
        sessions: Opens the session of a profile.
        records: The records of the slices.
        now: Epoch seconds.
        sleep: Waits between tries of what is throttled, or not known everywhere yet.
    """

    name = "aws"
    listing_lags = True  # "Eventual consistency", EC2 API reference, November 2026

    def __init__(
        self,
        sessions: Callable[[str], AwsSession],
        records: Records,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._open = sessions
        self._opened: dict[tuple[str, str], AwsSession] = {}  # by principal and name of the role's session
        self._callers: dict[str, CallerAddress] = {}
        self._records = records
        self._now = now
        self._sleep = sleep
        self._shown: dict[tuple[str, str], dict[str, list[str]]] = {}  # regions by principal that showed a slice
        self.only: str | None = None  # the one principal that is asked
        self.bound_to: str | None = None  # the principal in whose account the slices were made
        self.caller = ""  # for whom this acts, where a role is assumed

    @property
    def bound(self) -> bool:
        return self.bound_to is not None

    def session(self, place: str) -> AwsSession:
        """Return the session of a principal, given as text. Raises AccessError without credentials."""
        principal = Principal.parse(place)
        if not principal.role_arn:
            return self._session(principal.profile)
        key = (place, self.caller)
        if key not in self._opened:
            self._opened[key] = self._session(principal.profile).assume(principal, self.caller)
        return self._opened[key]

    def _session(self, profile: str) -> AwsSession:
        if (profile, "") not in self._opened:
            self._opened[profile, ""] = self._open(profile)
        return self._opened[profile, ""]

    def address(self, place: str) -> CallerAddress:
        """Return how this computer's public address is found."""
        return self._callers.setdefault(place, CallerAddress(self.session(place), instead="access: ssm"))

    def calls(self, place: str, region: str) -> Calls:
        """Return the calls of a region."""
        return Calls(self.session(place), region, self._sleep)

    def plan_create(self, spec: SliceSpec) -> Request:
        return PLANNER.create_request(spec)

    def new_record(self, spec: SliceSpec, keys: SliceKeys, now: float) -> Record:
        asked = choices.read(spec.candidate)
        if not len(keys.host_private) == len(keys.host_public) == asked.hosts:
            raise ValueError(f"{asked.hosts} hosts need a key pair each, there are {len(keys.host_private)}")
        return Record(
            name=spec.name,
            token=spec.token.reveal(),
            region=asked.place.region,
            profile=asked.place.profile,
            role_arn=asked.options.role_arn,
            external_id=asked.options.external_id,
            zone=asked.zone,
            hosts=asked.hosts,
            market=_name_market(asked.market),
            reservation=market.reservation_of(asked.market),
            way=asked.access.way,
            jump=asked.access.jump,
            user=asked.user,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=now,
            changed=now,
        )

    def renew(self, old: Record, new: Record) -> Record:
        return replace(new, request=old.request)

    def prepare(self, record: Record, spec: SliceSpec, *, repeated: bool) -> Changes:
        """Check the reservation that the machines come from, where there is one."""
        if not record.reservation:
            return {}
        found = reservations.checked(self._calls(record), spec.candidate, repeated=repeated)
        block = isinstance(spec.candidate.market, CapacityBlock)
        return {
            "zone": record.zone or found.zone,
            "begins": (found.begins or self._now()) if block and found.coming else 0.0,
            "ends": found.ends if block else 0.0,
        }

    def initial_known(self, record: Record, spec: SliceSpec, keys: SliceKeys) -> Mapping[Unknown, str]:
        hours = choices.read(spec.candidate).max_hours
        text = userdata.render(
            keys.user_public, keys.host_private, record.user, hours, recovery_public=keys.recovery_public
        )
        return {USER_DATA: text}

    def fill(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Request:
        return fill_request(step, known, {CALLER: lambda: self.address(str(record.principal)).read()})

    def is_read(self, step: Request) -> bool:
        return step.method.startswith(steps.READS)

    def makes_machines(self, step: Request) -> bool:
        return step.method == steps.LAUNCH

    def looks_first(self, step: Request) -> bool:
        return steps.looks_first(step)

    def look(self, record: Record, step: Request, known: Mapping[Unknown, str]) -> Response | None:
        return self._steps(record).look(step, known)

    def send(self, record: Record, step: Request, *, fresh: bool) -> Response:
        return self._steps(record).send(step, fresh=fresh)

    def list_undo(self, step: Request, answer: Response) -> Sequence[Undo]:
        return steps.list_undo(step, answer)

    def undo(self, record: Record, undo: Undo) -> None:
        self._steps(record).undo(undo)

    def read_gives(self, record: Record, step: Request, answer: Response) -> Sequence[tuple[str, str]]:
        return self._steps(record).read_gives(step, answer)

    def note_answer(self, record: Record, step: Request, answer: Response) -> Changes:
        if step.method != steps.LAUNCH:
            return {}
        return {
            "instances": tuple(str(one["InstanceId"]) for one in ranked(answer.get("Instances", ()))),
            "host_public": answer.get(steps.HELD_KEYS, record.host_public),
            "request": "",
        }

    def defer(self, record: Record, step: Request) -> Changes | None:
        """Keep the request until the Capacity Block begins, without the private host keys that are in it."""
        if not record.begins:
            return None
        text = userdata.without_host_keys(str(step.body["UserData"]))
        return {"request": json.dumps({**step.body, "UserData": text})}

    def resume(self, record: Record) -> tuple[Changes, Request]:
        """Return the request with host keys that are made now, and pinned before it leaves.

        Any server may send it. Sent again, it has other keys: EC2 answers with
        IdempotentParameterMismatch when an earlier one took effect, and the keys that EC2 holds are pinned then (Amazon
        EC2 API, "Ensuring idempotency", 2026-11).
        """
        block = reservations.reserved(reservations.look(self._calls(record), record.reservation))
        params = self._records.read_request(record)
        pairs = [make_host_key() for _ in range(record.hosts)]
        mine = Path(f"{record.identity_file}.pub")
        user = mine.read_text(encoding="ascii") if mine.exists() else ""
        text = userdata.with_keys(str(params["UserData"]), user, [private for private, _ in pairs])
        changes = {"ends": block.ends, "host_public": tuple(public for _, public in pairs)}
        target = f"{record.region}/{record.name}"
        body = {**params, "UserData": text}
        return changes, Request(service="ec2", method=steps.LAUNCH, target=target, body=body)

    def observe(self, record: Record) -> SliceView | None:
        return self._observer(record).observe()

    def diagnose(self, record: Record, ranks: Sequence[int]) -> Mapping[int, str]:
        ids = {record.instances[rank]: rank for rank in ranks if rank < len(record.instances)}
        if not ids:
            return {}
        asked = {"InstanceIds": list(ids), "IncludeAllInstances": True}
        found = self._calls(record).read("ec2", "DescribeInstanceStatus", asked).get("InstanceStatuses", ())
        return {ids[one["InstanceId"]]: status.describe(one) for one in found if one.get("InstanceId") in ids}

    def list_left(self, record: Record) -> list[str]:
        return self._auxiliary(record).left()

    def note_view(self, record: Record, view: SliceView) -> Changes:
        return {"seen": self._now()} if view.state is SliceState.READY and not record.seen else {}

    def finish_ready(self, record: Record) -> SliceView | None:
        hosts = ranked(self._observer(record).list_instances())
        return associate_addresses(
            self._calls(record), self._auxiliary(record), hosts[:1] if record.way == Way.EIP else hosts
        )

    def note_finished(self, record: Record) -> Changes:
        return {"associated": True}

    def note_end(self, record: Record) -> Changes:
        return {"request": ""}

    def end_machines(self, record: Record) -> bool:
        calls, observer = self._calls(record), self._observer(record)
        shown = observer.list_instances()
        ids = [str(one["InstanceId"]) for one in states.lasting(shown)]
        if ids:
            calls.change("TerminateInstances", {"InstanceIds": ids})
        known = {str(one["InstanceId"]) for one in shown}
        unseen = [identity for identity in record.instances if identity not in known]
        for identity in () if observer.settled else unseen:
            try:  # made, and not shown yet
                calls.change("TerminateInstances", {"InstanceIds": [identity]})
            except Refused as refused:
                if refused.answer.kind is not Kind.NOT_FOUND:
                    raise
        return all(states.state_of(one) == "terminated" for one in shown)

    def remove_left(self, record: Record) -> list[str]:
        return self._auxiliary(record).remove()

    def list_resources(self, name: str = "", token: str = "", *, installation: str = "") -> Sequence[ListedResource]:
        """In the account that this is bound to; else in every one in which something was requested from here.

        A slice is looked for where it was shown before; in every region at first, and when nothing is left there.
        """
        filters: dict[str, Sequence[str]] = {f"tag:{SLICE}": [name]} if name else {}
        filters |= {f"tag:{INTENT}": [token]} if token else {}
        if not name:
            filters = {f"tag:{INSTALLATION}": [installation]} if installation else {"tag-key": [INSTALLATION]}
        shown = self._shown.get((name, token), {}) if name else {}
        found = [
            one
            for place, regions in shown.items()
            for one in listing.list_tagged(self.session(place), filters, regions)
        ]
        if not found:
            found = [one for session in self._sessions() for one in listing.list_tagged(session, filters)]
        if name:
            self._remember((name, token), found)
            return found
        for key in {one.key for one in found}:
            self._remember(key, [one for one in found if one.key == key])
        return found

    def end_listed(self, resources: Sequence[ListedResource]) -> None:
        for one in resources:
            if one.counts:
                self.calls(*_place(one)).change("TerminateInstances", {"InstanceIds": [one.identity]})

    def remove_listed(self, resources: Sequence[ListedResource]) -> None:
        for one in resources:
            AuxiliaryResources(self.calls(*_place(one)), *one.key).remove()

    def refuse_stop(self, record: Record) -> UserError | None:
        return market.stop_refusal(f"'{record.name}'", _market_of(record))

    def note_power(self, record: Record, verb: str) -> Changes:
        return {"power": verb}

    def change_power(self, record: Record, verb: str) -> None:
        self._calls(record).change(f"{verb.capitalize()}Instances", {"InstanceIds": list(record.instances)})

    def explain(
        self, verb: str, name: str, answer: Answer, candidate: Candidate | None, record: Record | None
    ) -> OrchError:
        more = ""
        profile = record.profile if record is not None else candidate.detail("profile") if candidate is not None else ""
        if answer.kind is Kind.CREDENTIALS and not answer.next_step:
            answer = replace(answer, next_step=_how_to_log_in(profile))
        if candidate is not None:
            place = (candidate.region, candidate.detail("profile"))
            more = quotas.advice(
                answer.code, candidate.accelerator, candidate.hosts, candidate.market, *place, words=answer.words
            )
        return explain(verb, name, answer, more)

    def _remember(self, key: tuple[str, str], found: Sequence[ListedResource]) -> None:
        regions: dict[str, set[str]] = {}
        for one in found:
            place, region = _place(one)
            regions.setdefault(place, set()).add(region)
        self._shown[key] = {place: sorted(listed) for place, listed in regions.items()}

    def _sessions(self) -> list[AwsSession]:
        only = self.only if self.bound_to is None else self.bound_to
        used = {place[0] for place in self._records.places()} or {""}
        return [self.session(place) for place in sorted({only} if only is not None else used)]

    def _calls(self, record: Record) -> Calls:
        return self.calls(str(record.principal), record.region)

    def _steps(self, record: Record) -> steps.Steps:
        return steps.Steps(self._calls(record), record)

    def _auxiliary(self, record: Record) -> AuxiliaryResources:
        return AuxiliaryResources(self._calls(record), record.name, record.token)

    def _observer(self, record: Record) -> Observer:
        calls = self._calls(record)
        login = Login(account().name) if calls.session.loopback else Login()
        return Observer(calls, record, login, self._now)


def _how_to_log_in(profile: str) -> str:
    option = option_of(profile)
    return f"aws sso login{option}   or: aws configure{option}   then: aws sts get-caller-identity{option}"


def _place(one: ListedResource) -> tuple[str, str]:
    place, region = one.place
    return place, region


def _name_market(asked: Market) -> str:
    match asked:
        case Spot():
            return "spot"
        case Reservation():
            return "reservation"
        case CapacityBlock():
            return "block"
        case _:
            return ""


def _market_of(record: Record) -> Market:
    found: dict[str, Market] = {"spot": Spot(), "block": CapacityBlock(record.reservation)}
    return found.get(record.market, OnDemand())
