"""The steps of a create on EC2: how each is looked for, sent and taken back.

Only RunInstances has a token. Groups and addresses are found by their tags and names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.errors import CapacityError, CloudError, ConflictError, OrchError, UserError
from orchestrator.providers.aws import held_keys, prechecks
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing, read_tags
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.tags import INTENT
from orchestrator.providers.core.faults import Kind, Refused, is_refused_as
from orchestrator.providers.core.journal import Undo
from orchestrator.retries import CLOUD_CONSISTENCY, CLOUD_NEW_PROFILE
from orchestrator.slices import Request
from orchestrator.values import Unknown

LAUNCH = "RunInstances"
READS = ("Describe", "Get")
HELD_KEYS = "HostPublic"  # in the answer of a launch that an earlier request carried out: the keys that EC2 holds
_WITHOUT_TOKEN = frozenset({"AllocateAddress", "CreateSecurityGroup", "CreatePlacementGroup"})


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one slice. Every method may raise Refused."""

    calls: Calls
    record: Record

    def look(self, step: Request, known: Mapping[Unknown, str]) -> Thing | None:
        """Return what a step would make, in the form of its answer, where it exists. Raises ConflictError."""
        mine = AuxiliaryResources(self.calls, self.record.name, self.record.token)
        params = cast(Mapping[str, Any], step.body)
        match step.method:
            case "AllocateAddress":
                taken = set(known.values())  # by another host of the slice
                return next((one for one in mine.addresses() if one["AllocationId"] not in taken), None)
            case "CreateSecurityGroup":
                named = {"group-name": [params["GroupName"]], "vpc-id": [params["VpcId"]]}
                return self._own(self.calls.every("DescribeSecurityGroups", "SecurityGroups", named))
            case "CreatePlacementGroup":
                named = {"group-name": [params["GroupName"]]}
                found = self.calls.every("DescribePlacementGroups", "PlacementGroups", named)
                return self._own([one for one in found if one.get("State") != "deleted"])
            case "RunInstances":
                return self._launched()
            case _:
                return None

    def send(self, step: Request, *, fresh: bool) -> Thing:
        """Send a step. `fresh`: it names something that was just made, which EC2 may not know everywhere yet."""
        params = cast(Mapping[str, Any], step.body)
        if step.method.startswith(READS):
            return self._read(step, params)
        try:
            return self._change(step.method, params, fresh=fresh)
        except Refused as refused:
            if step.method == LAUNCH and refused.answer.kind is Kind.MISMATCH:
                # The same token with other parameters: the image, or a subnet, is another one by now.
                launched = self._launched()
                if launched is not None:
                    return launched
            if step.method.startswith("Authorize") and refused.answer.kind is Kind.TAKEN:
                self._authorize_each(step.method, params, fresh=fresh)
                return {}
            raise

    def read_gives(self, step: Request, answer: Thing) -> list[tuple[str, str]]:
        """Return what an answer makes known.

        Raises:
            OrchError: The answer lacks it, or shows that the machines cannot be there.
        """
        import jmespath

        if step.optional:
            prechecks.judge(step, answer, self.record)
        if step.method == "DescribeSubnets":
            self._check_subnet(answer)
        found: list[tuple[str, str]] = []
        for unknown, path in step.gives:
            value: object = cast(Any, jmespath).search(path, answer)
            if not value:
                raise self._missing(step, unknown)
            found.append((unknown.what, value if isinstance(value, str) else json.dumps(value)))
        return found

    def undo(self, undo: Undo) -> None:
        """Take a step back, by the id of what it made: it may not be shown yet."""
        try:
            self._change(undo.operation, undo.params, fresh=True)
        except Refused as refused:
            if refused.answer.kind is not Kind.NOT_FOUND:
                raise

    def _change(self, operation: str, params: Mapping[str, Any], *, fresh: bool) -> Thing:
        def send() -> Thing:
            return self.calls.change(operation, params)

        def call() -> Thing:
            return CLOUD_NEW_PROFILE.run(send, retry=is_refused_as(Kind.NOT_YET), sleep=self.calls.sleep)

        if not fresh:
            return call()
        return CLOUD_CONSISTENCY.run(call, retry=is_refused_as(Kind.NOT_FOUND), sleep=self.calls.sleep)

    def _read(self, step: Request, params: Mapping[str, Any]) -> Thing:
        """Raise CapacityError for a public parameter that a region does not have: another place may."""
        try:
            return self.calls.read(step.service, step.method, params)
        except Refused as refused:
            if refused.answer.kind is not Kind.NOT_FOUND or step.method != "GetParameter":
                raise
            raise CapacityError(
                f"{self.record.region} has no {step.target.partition('/')[2]}", str(refused.answer), "image_id: ami-…"
            ) from refused

    def _launched(self) -> Thing | None:
        """Return the instances that were made with this token, perhaps by another computer, with the keys they have."""
        made = self.calls.instances({"client-token": [self.record.token]})
        if not made:
            return None
        keys = held_keys.read_host_public(self.calls, str(made[0]["InstanceId"]))
        return {"Instances": made, HELD_KEYS: keys}

    def _authorize_each(self, operation: str, params: Mapping[str, Any], *, fresh: bool) -> None:
        """Authorize rules one by one: of several, one that exists already has kept the others out."""
        rules: list[object] = params["IpPermissions"]
        for rule in rules if len(rules) > 1 else ():
            try:
                self._change(operation, {**params, "IpPermissions": [rule]}, fresh=fresh)
            except Refused as refused:
                if refused.answer.kind is not Kind.TAKEN:
                    raise

    def _own(self, found: Sequence[Thing]) -> Thing | None:
        """Return the group of this name, which must be ours."""
        for one in found:
            if read_tags(one).get(INTENT) != self.record.token:
                raise ConflictError(
                    f"a group '{one['GroupName']}' exists already in {self.record.region}",
                    "it was not made for this slice",
                    "orch status   or take another name: -c NAME",
                )
            return one
        return None

    def _check_subnet(self, answer: Thing) -> None:
        """Raise CapacityError where the zone has no subnet: another zone of the plan may have one."""
        subnets: Sequence[Thing] = answer.get("Subnets", [])
        zone = self.record.zone
        if not subnets:
            fix = f"aws ec2 create-default-subnet --availability-zone {zone}" if zone else "name a subnet: subnets: […]"
            where = zone or self.record.region
            raise CapacityError(f"there is no subnet in {where}", "the account has none there", fix)
        found = str(subnets[0].get("AvailabilityZone", ""))
        if zone and found != zone:
            name, place = subnets[0].get("SubnetId"), f"infra: aws/{self.record.region}/{found}"
            raise CapacityError(f"{name} is not in {zone}", f"it is in {found}", place)

    def _missing(self, step: Request, unknown: Unknown) -> OrchError:
        what = f"{self.record.region} has no {unknown.what}"
        why = f"{step.method} of {step.target.partition('/')[2]} does not report it"
        if step.method == "DescribeImages" and "ImageIds" not in step.body:
            return CapacityError(what, why, "another region may have it   or name one: image_id: ami-…")
        if step.method == "DescribeImages":
            return UserError(what, why, "name another image, or another region")
        return CloudError(what, why, "run the same command again")


def looks_first(step: Request) -> bool:
    """Return whether a step has no token."""
    return step.method in _WITHOUT_TOKEN


def list_undo(step: Request, answer: Thing) -> tuple[Undo, ...]:
    """Return what takes a step back."""
    match step.method:
        case "CreateSecurityGroup":
            return (Undo(operation="DeleteSecurityGroup", params={"GroupId": answer["GroupId"]}),)
        case "CreatePlacementGroup":
            return (Undo(operation="DeletePlacementGroup", params={"GroupName": step.body["GroupName"]}),)
        case "AllocateAddress":
            return (Undo(operation="ReleaseAddress", params={"AllocationId": answer["AllocationId"]}),)
        case _:
            return ()
