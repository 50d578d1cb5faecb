"""RunInstances: what is refused, and what becomes of the rest."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orch_fronts.aws import images
from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2 import blocks, interfaces, network, placement
from orch_fronts.aws.ec2.instances import reservation
from orch_fronts.aws.ec2.kinds import Limits, is_missing_in, is_offered, limits_of, zones_offering
from orch_fronts.aws.ec2.machines import of_look
from orch_fronts.aws.ec2.tags import sent
from orch_fronts.aws.ec2.visit import Visit, region_of
from orch_fronts.aws.ec2.words import answer, dry_run, missing, refused, wrong_combination, wrong_value
from orch_fronts.aws.tables import quotas
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Look
from orchestrator.simulator.capacity import RESERVED
from orchestrator.simulator.rules import HOLDS_MACHINES
from orchestrator.simulator.state import Phase, Resource

LONGEST_USER_DATA = 16_384  # bytes before base64
_TAGGED = ("instance", "volume", "network-interface", "spot-instances-request")
_RESOLVE = "resolve:ssm:"
_NO_NAME = re.compile(r"[^a-z0-9]+")


def run(visit: Visit) -> dict[str, Any]:
    """Raises AwsRefusal; ApiError for what befalls the call itself."""
    kind = str(visit.params.get("InstanceType", "m1.small"))
    limits = limits_of(kind)
    least, most = _counts(visit)
    zone = _zone(visit, kind)
    record = _record(visit, kind, zone, limits)
    if record["group"]:
        placement.check(visit, record["group"], zone)
    market = _market(visit, kind, zone)
    if not limits.on_demand and market == "on-demand":
        raise answer("ec2-unsupported-configuration")
    if visit.params.get("DryRun"):
        raise dry_run()
    record |= {"counts": [least, most]}
    known = _known(visit, zone)
    if known is None:
        _check_addresses(visit, zone, record, least)
        _check_vcpus(visit, record["type"], zone, market, limits.vcpus * least)
    look = _create(visit, record, zone, limits, market, known, least, most)
    return reservation(list(of_look(visit, look)))


def _create(
    visit: Visit, record: dict[str, Any], zone: str, limits: Limits, market: str, known: Resource | None,
    least: int, most: int,
) -> Look:  # fmt: skip
    """As many as there is room for, at least the least."""
    tags = record["tags"].get("instance", {})
    for hosts in [len(known.hosts)] if known else range(most, least - 1, -1):
        call = CreateCall(
            name=known.name if known else _name(visit, tags.get("Name", ""), zone),
            zone=known.zone if known else zone,
            accelerator=record["type"],
            hosts=hosts,
            token=_token(visit, zone),
            chips_per_host=limits.chips,
            market=market,
            labels=tags,
            extra={"ec2": record},
        )
        try:
            return visit.cloud.create(call)
        except ApiError as error:
            if error.code is not Code.NO_CAPACITY or hosts == least:
                raise _refused(visit, error, record["type"], zone, market) from error
    raise AssertionError("there is at least one count to try")


def _refused(visit: Visit, error: ApiError, kind: str, zone: str, market: str) -> AwsRefusal:
    others = ", ".join(one for one in zones_offering(visit, kind) if one != zone)
    match error.code:
        case Code.NO_CAPACITY if market.startswith(RESERVED):
            return _reservation_is_full()
        case Code.NO_CAPACITY:
            choosing = {"others": others} if others else {"choosing": ""}
            return answer("ec2-capacity-p4d", type=kind, zone=zone, **choosing)
        case Code.NOT_OFFERED:
            return _not_offered(kind, zone, others)
        case Code.QUOTA if market == "spot":
            return answer("ec2-max-spot")
        case Code.QUOTA:
            return answer("ec2-vcpu-0", limit=_limit_of(error.words))
        case Code.TOKEN_MISMATCH:
            return answer("ec2-idempotent-mismatch")
        case Code.TOKEN_SPENT:  # rule after_the_end_the_token_is_refused
            words = "The client token you have provided is associated with a terminated instance."
            return AwsRefusal("IdempotentInstanceTerminated", f"{words} Please use a different client token.")
        case _:
            return refused(error)


def _counts(visit: Visit) -> tuple[int, int]:
    least, most = int(visit.params["MinCount"]), int(visit.params["MaxCount"])
    if least < 1 or most < least:
        raise wrong_value(f"Value ({least}, {most}) for MinCount and MaxCount is invalid: 1 <= MinCount <= MaxCount")
    if visit.params.get("LaunchTemplate"):
        raise AwsRefusal("UnsupportedOperation", "this pretend EC2 has no launch templates")
    return least, most


def _zone(visit: Visit, kind: str) -> str:
    """The one asked for, else the first that has the type (rule type_is_offered_in_some_zones). Raises AwsRefusal."""
    zone = interfaces.zone_asked(visit)
    if not is_offered(kind, visit.region):
        raise answer("ec2-unsupported-configuration")
    if zone and is_missing_in(visit, kind, zone):
        raise _not_offered(kind, zone, ", ".join(zones_offering(visit, kind)))
    if zone:
        return zone
    known = _resource_of(visit, str(visit.params.get("ClientToken", "")))
    if known is not None and region_of(visit.cloud, known.zone) == visit.region:
        return known.zone
    return next(iter(zones_offering(visit, kind)), visit.zones()[0])


def _record(visit: Visit, kind: str, zone: str, limits: Limits) -> dict[str, Any]:
    """What was asked for, resolved, as plain values. Raises AwsRefusal."""
    image = _image(visit)
    tags = sent(visit, *_TAGGED)
    market = str(visit.params.get("InstanceMarketOptions", {}).get("MarketType", "on-demand"))
    if "spot-instances-request" in tags and market != "spot":
        raise wrong_value("'spot-instances-request' is not a valid taggable resource type for this operation.")
    if visit.params.get("KeyName"):
        words = f"The key pair '{visit.params['KeyName']}' does not exist"
        raise AwsRefusal("InvalidKeyPair.NotFound", words)
    target = visit.params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return {
        "image": image.ami(visit.region),
        "root": image.root_device,
        "devices": _devices(visit, image),
        "type": kind,
        "token": str(visit.params.get("ClientToken", "")),
        "market": market,
        "spot": dict(visit.params.get("InstanceMarketOptions", {}).get("SpotOptions", {})),
        "interfaces": interfaces.resolved(visit, zone, kind, limits),
        "tags": tags,
        "group": _group(visit),
        "profile": _profile(visit),
        "reservation": str(target.get("CapacityReservationId", "")),
        "reservation_spec": dict(visit.params.get("CapacityReservationSpecification", {})),
        "metadata": dict(visit.params.get("MetadataOptions", {})),
        "shutdown": str(visit.params.get("InstanceInitiatedShutdownBehavior", "stop")),
        "user_data": _user_data(visit),
        "mappings": list(visit.params.get("BlockDeviceMappings", ())),
    }


def _image(visit: Visit) -> images.Image:
    given = str(visit.params.get("ImageId", ""))
    if not given:
        raise missing("ImageId")
    if given.startswith(_RESOLVE):
        found = images.by_parameter().get(given.removeprefix(_RESOLVE))
    else:
        found = images.by_id(visit.region).get(given)
    if found is None and not re.fullmatch(r"ami-[0-9a-f]{8}(?:[0-9a-f]{9})?|resolve:ssm:.*", given):
        raise AwsRefusal("InvalidAMIID.Malformed", f'Invalid id: "{given}" (expecting "ami-...")')
    if found is None:
        raise answer("ec2-image-missing", image=given)
    return found


def _devices(visit: Visit, image: images.Image) -> list[str]:
    """Names of the volumes: the root and further ones. Rule root_volume_holds_the_image."""
    given: Sequence[Mapping[str, Any]] = visit.params.get("BlockDeviceMappings", ())
    for one in given:
        size = int(one.get("Ebs", {}).get("VolumeSize", image.root_gib))
        if one.get("DeviceName") == image.root_device and size < image.root_gib:
            words = f"Volume of size {size}GB is smaller than snapshot, expect size >= {image.root_gib}GB"
            raise AwsRefusal("InvalidBlockDeviceMapping", words)
    return list(dict.fromkeys([image.root_device, *(str(one.get("DeviceName", "")) for one in given)]))


def _group(visit: Visit) -> str:
    """Its name. Raises AwsRefusal."""
    given = visit.params.get("Placement", {})
    name = str(given.get("GroupName") or given.get("GroupId") or "")
    if not name:
        return ""
    found = placement.find(visit, name)
    if found is None:
        raise placement.unknown(name)
    behaviour = visit.params.get("InstanceMarketOptions", {}).get("SpotOptions", {})
    if behaviour.get("InstanceInterruptionBehavior") in ("stop", "hibernate"):
        words = "A Spot Instance that is stopped or hibernated when it is interrupted cannot be in a placement group."
        raise wrong_combination(words)
    return str(found["name"])


def _profile(visit: Visit) -> str:
    """Its ARN."""
    given = visit.params.get("IamInstanceProfile", {})
    arn = f"arn:aws:iam::{visit.account}:instance-profile/{given['Name']}" if given.get("Name") else ""
    return str(given.get("Arn") or arn)


def _user_data(visit: Visit) -> str:
    """As it was sent: base64. Rule user_data_has_a_limit."""
    given = str(visit.params.get("UserData", ""))
    try:
        size = len(base64.b64decode(given, validate=True))
    except binascii.Error as error:
        raise wrong_value("Invalid BASE64 encoding of user data.") from error
    if size > LONGEST_USER_DATA:
        raise wrong_value(f"User data is limited to {LONGEST_USER_DATA} bytes")
    return given


def _market(visit: Visit, kind: str, zone: str) -> str:
    """In the neutral cloud's words. Rules on reservations and blocks. Raises AwsRefusal."""
    asked = str(visit.params.get("InstanceMarketOptions", {}).get("MarketType", "on-demand"))
    spec = visit.params.get("CapacityReservationSpecification", {})
    name = str(spec.get("CapacityReservationTarget", {}).get("CapacityReservationId", ""))
    if asked not in ("on-demand", "spot", "capacity-block"):
        raise AwsRefusal("UnsupportedOperation", f"this pretend EC2 has no market {asked}")
    if name and spec.get("CapacityReservationPreference", "capacity-reservations-only") != "capacity-reservations-only":
        raise wrong_combination("CapacityReservationPreference cannot be combined with CapacityReservationTarget.")
    if not name:
        if asked == "capacity-block":
            raise wrong_combination("The market type capacity-block requires a targeted Capacity Block reservation.")
        return asked
    found = blocks.find(visit, name)
    if (found["ReservationType"] == "capacity-block") != (asked == "capacity-block"):
        words = "A Capacity Block reservation is used with the market type capacity-block, and no other reservation is."
        raise wrong_combination(words)
    ending = float(found.get("EndDate", float("inf"))) - blocks.TAKEN_BEFORE
    if found["State"] != "active" or visit.now >= ending:
        words = f"The Capacity Reservation '{name}' is {found['State']} and cannot be used now"
        raise AwsRefusal("InvalidCapacityReservationState", words)
    if (found["InstanceType"], found["AvailabilityZone"]) != (kind, zone):
        raise _reservation_is_full()
    return RESERVED + name


def _check_addresses(visit: Visit, zone: str, record: Mapping[str, Any], hosts: int) -> None:
    """Rule subnet_has_so_many_addresses."""
    free = network.ROOM - len(network.used(visit, zone))
    if interfaces.addresses_of(record["interfaces"]) * hosts > free:
        subnet = record["interfaces"][0]["subnet"]
        raise answer("ec2-subnet-full", subnet=subnet)


def _check_vcpus(visit: Visit, kind: str, zone: str, market: str, vcpus: int) -> None:
    """Rule quotas_count_vcpus: of a new account, by family and market in the region."""
    quota = next((one for one in quotas().values() if one.counts(kind, market)), None)
    if not visit.cloud.scenario.new_account or quota is None:
        return
    used = sum(
        limits_of(one.accelerator).vcpus * len(one.hosts)
        for one in visit.cloud.state.resources.values()
        if one.phase in HOLDS_MACHINES and one.zone[:-1] == zone[:-1] and quota.counts(one.accelerator, one.market)
    )
    if used + vcpus > quota.default:
        raise answer("ec2-max-spot") if market == "spot" else answer("ec2-vcpu-0", limit=f"{quota.default:.0f}")


def _token(visit: Visit, zone: str) -> str:
    """The client's token; in another region or zone the same word is another token (rule token_is_of_one_zone)."""
    token = str(visit.params.get("ClientToken", ""))
    if len(token) > 64:
        raise AwsRefusal("InvalidClientToken", "The client token is longer than 64 characters")
    first = _resource_of(visit, token)
    return token if first is None or first.zone == zone else f"{token}@{zone}"


def _known(visit: Visit, zone: str) -> Resource | None:
    """What an earlier call with this token has made."""
    return _resource_of(visit, _token(visit, zone)) if visit.cloud.scenario.honour_tokens else None


def _resource_of(visit: Visit, token: str) -> Resource | None:
    uid, until = visit.cloud.state.tokens.get(token, ("", None)) if token else ("", None)
    forgotten = until is not None and visit.now > until
    return visit.cloud.state.resources[uid] if uid and not forgotten else None


def _name(visit: Visit, given: str, zone: str) -> str:
    """For the neutral cloud: the instances' Name where it is free. Names mean nothing on EC2."""
    plain = _NO_NAME.sub("-", given.lower()).strip("-")[:48].rstrip("-") or "unnamed"
    taken = {one.name for one in visit.cloud.state.resources.values() if one.phase is not Phase.ABSENT}
    if plain not in taken or not visit.cloud.scenario.honour_tokens:
        return plain
    return next(name for number in range(2, len(taken) + 3) if (name := f"{plain}-{number}") not in taken)


def _limit_of(words: str) -> str:
    """Return the limit that the neutral cloud names, "… of 96 in use in …"."""
    return words.partition(" in use in ")[0].rpartition(" ")[2]


def _not_offered(kind: str, zone: str, others: str) -> AwsRefusal:
    if not others:
        return answer("ec2-unsupported-configuration")
    return answer("ec2-unsupported-az-m5", type=kind, zone=zone, others=others)


def _reservation_is_full() -> AwsRefusal:
    return answer("ec2-reservation-exceeded")
