"""Taking over a slice that has no record here: what it is, whose it is from now on, and the keys of its hosts.

The keys are those of the user-data, which EC2 keeps with the instance (DescribeInstanceAttribute, EC2 API reference,
2016-11-15, November 2026): no key is accepted because a host presents it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.catalog.accelerators import resolve_instance
from orchestrator.catalog.prices import price_per_hour
from orchestrator.errors import NotFoundError
from orchestrator.providers.aws import userdata
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing, read_tags
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.aws.reach import ranked
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.states import installation_of, lasting
from orchestrator.providers.aws.tags import EPOCH, INSTALLATION, INTENT
from orchestrator.providers.core.faults import Refused
from orchestrator.providers.core.listed import read_owner
from orchestrator.providers.core.record import Phase
from orchestrator.remote.keys import derive_public_key
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    Market,
    OnDemand,
    RecoveredSlice,
    Reservation,
    SliceKeys,
    Spot,
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one slice, in its region. Every method may raise Refused, and NotFoundError when it is deleted."""

    calls: Calls
    name: str
    token: str

    def describe(self) -> RecoveredSlice:
        """Return the slice as it is now."""
        machines = self._machines()
        tags = read_tags(machines[0])
        keys, closed = self._host_keys(machines)
        return RecoveredSlice(
            candidate=self._candidate(machines, self.calls.session.principal),
            installation=installation_of(machines),
            epoch=read_owner(tags).epoch,
            host_public=keys,
            closed=closed,
        )

    def relabel(self, installation: str, epoch: int) -> None:
        """Change the tags of the instances first: they decide who has the slice."""
        tags = [{"Key": INSTALLATION, "Value": installation}, {"Key": EPOCH, "Value": str(epoch)}]
        rest = AuxiliaryResources(self.calls, self.name, self.token)
        others = [str(one["AllocationId"]) for one in rest.addresses()]
        others += [str(one["SpotInstanceRequestId"]) for one in rest.spot_requests()]
        others += [str(one["GroupId"]) for one in (*rest.groups(), *rest.placements())]
        for ids in ([str(one["InstanceId"]) for one in self._machines()], others):
            if ids:
                self.calls.change("CreateTags", {"Resources": ids, "Tags": tags})

    def record(self, recovered: RecoveredSlice, keys: SliceKeys, now: float) -> Record:
        """Return what is noted of it here."""
        machines, candidate = self._machines(), recovered.candidate
        market = candidate.market
        way = self._way(machines)
        return Record(
            name=self.name,
            token=self.token,
            region=self.calls.region,
            profile=candidate.detail("profile"),
            role_arn=candidate.detail("role_arn"),
            external_id=candidate.detail("external_id"),
            zone=candidate.zone,
            hosts=candidate.hosts,
            market=_word(market),
            reservation=_reservation(market),
            way=way,
            jump="",
            user=candidate.detail("user") or userdata.USER,
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=min((one["LaunchTime"].timestamp() for one in machines), default=now),
            changed=now,
            phase=Phase.ACCEPTED,
            instances=tuple(str(one["InstanceId"]) for one in machines),
            associated=way in (Way.EIP, Way.EIPS),
        )

    def _machines(self) -> list[Thing]:
        found = lasting(self.calls.instances({f"tag:{INTENT}": [self.token]}))
        if not found:
            raise NotFoundError(f"'{self.name}' has no instances any more", "", "orch recover   lists what there is")
        return ranked(found)

    def _candidate(self, machines: Sequence[Thing], principal: Principal) -> Candidate:
        kind, market = str(machines[0]["InstanceType"]), _market(machines[0])
        instance = resolve_instance(kind)
        price = price_per_hour(instance, market, self.calls.region)
        arn = str(machines[0].get("IamInstanceProfile", {}).get("Arn", ""))
        rest = {"instance_profile": arn.rpartition("/")[2], "user": self._user(machines)}
        return Candidate(
            provider="aws",
            accelerator=kind,
            hosts=len(machines),
            chips_per_host=instance.chips_per_host,
            market=market,
            region=self.calls.region,
            zone=str(machines[0].get("Placement", {}).get("AvailabilityZone", "")),
            price_per_hour=price.times(len(machines)).high if price is not None else None,
            price_note=price.note if price is not None else "",
            details=(*principal.details, *((key, value) for key, value in rest.items() if value)),
        )

    def _way(self, machines: Sequence[Thing]) -> Way:
        """How the hosts are reached, as far as it shows: what has no public address is reached at its private one."""
        elastic = len(AuxiliaryResources(self.calls, self.name, self.token).addresses())
        if elastic:
            return Way.EIPS if len(machines) == elastic > 1 else Way.EIP
        return Way.PUBLIC if machines[0].get("PublicIpAddress") else Way.PRIVATE

    def _user_data(self, machines: Sequence[Thing]) -> str:
        asked = {"InstanceId": machines[0]["InstanceId"], "Attribute": "userData"}
        found = self.calls.read("ec2", "DescribeInstanceAttribute", asked)
        return base64.b64decode(str(found.get("UserData", {}).get("Value", ""))).decode("utf-8", "replace")

    def _user(self, machines: Sequence[Thing]) -> str:
        try:
            return userdata.login_of(self._user_data(machines))
        except (Refused, ValueError):
            return ""

    def _host_keys(self, machines: Sequence[Thing]) -> tuple[tuple[str, ...], str]:
        """Return the public keys by rank, or why they are not known."""
        try:
            _, private = userdata.unpack(self._user_data(machines))
        except Refused as refused:
            return (), f"the keys of its hosts cannot be read: {refused.answer}"
        except ValueError as error:
            return (), f"the keys of its hosts are not known: {error}"
        if len(private) != len(machines):
            return (), f"{len(machines)} of its {len(private)} machines are there"
        return tuple(map(derive_public_key, private)), ""


def _market(machine: Thing) -> Market:
    reservation = str(machine.get("CapacityReservationId") or "")
    match str(machine.get("InstanceLifecycle", "")):
        case "spot":
            return Spot()
        case "capacity-block":
            return CapacityBlock(reservation)
        case _:
            return Reservation(reservation) if reservation else OnDemand()


def _word(market: Market) -> str:
    """Return the market as Record has it."""
    words: dict[type[object], str] = {Spot: "spot", Reservation: "reservation", CapacityBlock: "block"}
    return words.get(type(market), "")


def _reservation(market: Market) -> str:
    match market:
        case Reservation(name) | CapacityBlock(name):
            return name
        case _:
            return ""
