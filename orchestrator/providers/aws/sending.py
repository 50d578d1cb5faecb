"""The sequence of a create, as the planner wrote it: each request after a look whether it is done, the unknowns filled.

Nothing but RunInstances has a token. So what is to be made is looked for first, by its tags and its name, and what the
first try has read is asked for again by the second one: RunInstances knows a token only with the same parameters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from orchestrator.errors import CapacityError, CloudError, ConflictError, OrchError, UserError
from orchestrator.providers.aws import held_keys
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing, is_refused_as, read_tags
from orchestrator.providers.aws.faults import Kind, Refused
from orchestrator.providers.aws.parameters import filled, revealed
from orchestrator.providers.aws.record import Phase, Record, Records
from orchestrator.providers.aws.tags import INTENT
from orchestrator.providers.aws.unknowns import CALLER
from orchestrator.retries import CLOUD_CONSISTENCY
from orchestrator.slices import Request
from orchestrator.values import Text, Unknown

LAUNCH = "RunInstances"
_READS = ("Describe", "Get")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Sends the request for the machines. now: seconds since the epoch."""

    calls: Calls
    records: Records
    now: Callable[[], float] = time.time

    def launch(self, record: Record, params: Mapping[str, Any], *, fresh: bool = False) -> Record:
        """The record with its machines. fresh: see `sent`. Raises Refused."""
        record = self.records.write(record, asked=self.now())
        try:
            made: Sequence[Thing] = sent(self.calls, LAUNCH, params, fresh=fresh).get("Instances", ())
        except Refused as refused:
            # Asked for by this token with other words: an image, or a subnet, is another one by now.
            lost = refused.answer.kind is Kind.MISMATCH
            made = self.calls.instances({"client-token": [record.token]}) if lost else ()
            if not made:
                raise
            # Perhaps by another computer, or with keys that are lost: what EC2 holds is what the hosts have.
            held = held_keys.read_host_public(self.calls, str(made[0]["InstanceId"]))
            record = self.records.write(record, host_public=held)
        ranked = sorted(made, key=lambda one: int(one.get("AmiLaunchIndex", 0)))
        ids = tuple(str(one["InstanceId"]) for one in ranked)
        return self.records.write(self.records.drop_request(record), Phase.ACCEPTED, instances=ids)


def sent(calls: Calls, operation: str, params: Mapping[str, Any], *, fresh: bool) -> Thing:
    """fresh: something it names was made just now. Then EC2 may not know it everywhere, and is asked again for a while.

    Raises Refused.
    """
    if not fresh:
        return calls.change(operation, params)
    unknown = is_refused_as(Kind.NOT_FOUND)
    return CLOUD_CONSISTENCY.run(lambda: calls.change(operation, params), retry=unknown, sleep=calls.sleep)


@dataclass(slots=True, kw_only=True)
class Creation:
    """What comes before the machines. record: as it was written last. caller: the CIDR of this computer, asked for only
    when needed. undo: what takes away what was made just now, by operation and parameters.
    """

    calls: Calls
    records: Records
    record: Record
    caller: Callable[[], str]
    known: dict[Unknown, str] = field(default_factory=dict[Unknown, str])
    undo: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])

    def __post_init__(self) -> None:
        self.known |= {Unknown(what): value for what, value in self.record.known}

    @property
    def fresh(self) -> bool:
        """Whether something was made just now."""
        return bool(self.undo)

    def withdraw(self) -> None:
        """Take away what was made just now, by its id: it may not be shown yet. Raises Refused."""
        for operation, params in reversed(self.undo):
            sent(self.calls, operation, params, fresh=True)
        self.undo.clear()

    def prepare(self, request: Request) -> None:
        """All that comes before the machines. Raises Refused, CapacityError for a zone without a subnet, ConflictError
        for a name that is somebody else's, UserError."""
        for step in request.before:
            if step.method.startswith(_READS):
                self._read(step)
            else:
                self._make(step)

    def params(self, step: Request) -> dict[str, Any]:
        """What is sent. Raises ValueError while a part is unknown, CloudError when our own address is not told."""
        if CALLER not in self.known and _has(step.body, CALLER):
            self.known[CALLER] = self.caller()
        return cast(dict[str, Any], revealed(filled(step.body, self.known)))

    def _read(self, step: Request) -> None:
        if all(unknown in self.known for unknown, _ in step.gives):
            return
        answer = self._asked(step)
        if step.method == "DescribeSubnets":
            self._check_subnet(step, answer)
        self._take(step, answer)
        read = tuple((unknown.what, self.known[unknown]) for unknown, _ in step.gives)
        self.record = self.records.write(self.record, known=(*self.record.known, *read))

    def _asked(self, step: Request) -> Thing:
        """Raises CapacityError for a public parameter that a region does not have: another place may."""
        try:
            return self.calls.read(step.service, step.method, self.params(step))
        except Refused as refused:
            if refused.answer.kind is not Kind.NOT_FOUND or step.method != "GetParameter":
                raise
            raise CapacityError(
                f"{self.record.region} has no {step.target.partition('/')[2]}", str(refused.answer), "image_id: ami-…"
            ) from refused

    def _make(self, step: Request) -> None:
        params = self.params(step)
        answer = self._there(step, params)
        if answer is None:
            try:
                answer = sent(self.calls, step.method, params, fresh=self.fresh)
            except Refused as refused:
                if refused.answer.kind is not Kind.TAKEN:
                    raise
                answer = self._taken(step, params, refused)
            self.undo += _undoing(step.method, params, answer)
        self._take(step, answer)

    def _taken(self, step: Request, params: Mapping[str, Any], refused: Refused) -> Thing:
        """After "exists already": by a request of ours whose answer was lost, or by somebody else's."""
        if step.method.startswith("Authorize"):
            self._authorize_each(step.method, params)
            return {}
        found = self._there(step, params)
        if found is None:
            raise CloudError(
                f"{self.record.name}: a name is taken", "what has it is not listed yet", "try again"
            ) from refused
        return found

    def _authorize_each(self, operation: str, params: Mapping[str, Any]) -> None:
        """Of several rules, one that is there already has kept the others out."""
        rules: list[object] = params["IpPermissions"]
        for rule in rules if len(rules) > 1 else ():
            try:
                sent(self.calls, operation, {**params, "IpPermissions": [rule]}, fresh=self.fresh)
            except Refused as refused:
                if refused.answer.kind is not Kind.TAKEN:
                    raise

    def _there(self, step: Request, params: Mapping[str, Any]) -> Thing | None:
        """What the request would make, in the form of its answer, when it is there already. Raises ConflictError."""
        mine = AuxiliaryResources(self.calls, self.record.name, self.record.token)
        match step.method:
            case "AllocateAddress":
                taken = set(self.known.values())  # by another host of it
                return next((one for one in mine.addresses() if one["AllocationId"] not in taken), None)
            case "CreateSecurityGroup":
                wanted = {"group-name": [params["GroupName"]], "vpc-id": [params["VpcId"]]}
                return self._own(self.calls.every("DescribeSecurityGroups", "SecurityGroups", wanted))
            case "CreatePlacementGroup":
                wanted = {"group-name": [params["GroupName"]]}
                found = self.calls.every("DescribePlacementGroups", "PlacementGroups", wanted)
                return self._own([one for one in found if one.get("State") != "deleted"])
            case _:
                return None

    def _own(self, found: list[Thing]) -> Thing | None:
        """The one of this name, which must be ours."""
        for one in found:
            if read_tags(one).get(INTENT) != self.record.token:
                name, where = one["GroupName"], self.record.region
                raise ConflictError(
                    f"a group '{name}' exists already in {where}",
                    "it was not made for this slice",
                    "orch status   or take another name: -c NAME",
                )
            return one
        return None

    def _check_subnet(self, step: Request, answer: Thing) -> None:
        """Raises CapacityError: another zone of the plan may have one."""
        subnets: list[Thing] = answer.get("Subnets", [])
        zone = self.record.zone
        if not subnets:
            fix = f"aws ec2 create-default-subnet --availability-zone {zone}" if zone else "name a subnet: subnets: […]"
            raise CapacityError(
                f"there is no subnet in {zone or self.record.region}", "the account has none there", fix
            )
        found = str(subnets[0].get("AvailabilityZone", ""))
        if zone and found != zone:
            name = subnets[0].get("SubnetId")
            raise CapacityError(
                f"{name} is not in {zone}", f"it is in {found}", f"infra: aws/{self.record.region}/{found}"
            )

    def _take(self, step: Request, answer: Thing) -> None:
        import jmespath

        for unknown, path in step.gives:
            value: object = cast(Any, jmespath).search(path, answer)
            if not value:
                raise self._lacking(step, unknown)
            self.known[unknown] = value if isinstance(value, str) else json.dumps(value)

    def _lacking(self, step: Request, unknown: Unknown) -> OrchError:
        what = f"{self.record.region} has no {unknown.what}"
        why = f"{step.method} of {step.target.partition('/')[2]} says nothing of it"
        if step.method == "DescribeImages" and "ImageIds" not in step.body:
            return CapacityError(what, why, "another region may have it   or name one: image_id: ami-…")
        if step.method == "DescribeImages":
            return UserError(what, why, "name another image, or another region")
        return CloudError(what, why, "run the same command again")


def _undoing(operation: str, params: Mapping[str, Any], answer: Thing) -> list[tuple[str, Mapping[str, Any]]]:
    match operation:
        case "CreateSecurityGroup":
            return [("DeleteSecurityGroup", {"GroupId": answer["GroupId"]})]
        case "CreatePlacementGroup":
            return [("DeletePlacementGroup", {"GroupName": params["GroupName"]})]
        case "AllocateAddress":
            return [("ReleaseAddress", {"AllocationId": answer["AllocationId"]})]
        case _:
            return []


def _has(value: object, unknown: Unknown) -> bool:
    if isinstance(value, Text):
        return unknown in value.parts
    if isinstance(value, Mapping):
        return any(_has(one, unknown) for one in cast(Mapping[str, object], value).values())
    return isinstance(value, list) and any(_has(one, unknown) for one in cast(list[object], value))
