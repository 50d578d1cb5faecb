"""Capacity Blocks: machines that are bought for days to come, paid at once, and never given back for money.

Rules: "Capacity Blocks for ML" (EC2 User Guide, 2026) and the EC2 API reference: 1 to 14 whole days, or up to 182 days
in weeks; up to 64 instances; AWS begins to take the instances 30 minutes before the end. An offering has an id and no
operation asks for one by its id: what was found is looked for again by what it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar, cast

from orchestrator.catalog.ec2 import find_instance, load_instances, make_unlisted_type
from orchestrator.errors import CapacityError, CloudError, OrchError, UserError
from orchestrator.options import Details
from orchestrator.providers.aws.calls import Calls, Thing, read_tags
from orchestrator.providers.aws.commands import kebab
from orchestrator.providers.aws.faults import explain, understood
from orchestrator.providers.aws.market import MOST_IN_BLOCK
from orchestrator.providers.aws.parameters import revealed
from orchestrator.providers.aws.principal import Principal
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.aws.session import AwsSession, open_principal
from orchestrator.providers.aws.tags import INSTALLATION, by_tag
from orchestrator.providers.block_market import HOUR, Answers, Block, BlockSearch, Offering
from orchestrator.providers.core.faults import Refused
from orchestrator.slices import Request
from orchestrator.values import Text, to_text

TAKEN_EARLY = 1800.0  # seconds before its end from which AWS takes a block's instances
PLATFORM = "Linux/UNIX"
__all__ = [
    "bought",
    "buy",
    "every_region",
    "find",
    "look_again",
    "name_place",
    "open_session",
    "plan_search",
    "purchase_request",
    "regions_of",
]
_AT_ONCE = 8  # regions that are asked at the same time
_LONGEST_IN_DAYS, _LONGEST = 14, 182  # days
_Found = TypeVar("_Found")


def name_place(details: Details) -> str:
    """Return the name of the place that a profile and a role are, for `open_session`."""
    return str(Principal.of_details(details))


def open_session(place: str) -> AwsSession:
    """See block_market.BlockSeller."""
    return open_principal(Principal.parse(place))


def plan_search(
    name: str, count: int, hours: int, earliest: float | None = None, latest: float | None = None
) -> BlockSearch:
    """Checked before anything is asked. Raises UserError for what AWS does not sell."""
    instance = find_instance(name) or make_unlisted_type(name)
    if instance is None:
        raise UserError(f"'{name}' is not an instance type", "expected a type such as p5.48xlarge", "orch accelerators")
    if not instance.capacity_block:
        raise UserError(
            f"there are no Capacity Blocks of {instance.name}",
            "AWS offers none (its tables of May 2026)",
            "use_spot: true",
        )
    if not 1 <= count <= MOST_IN_BLOCK:
        raise UserError(
            f"{count} instances are not possible",
            f"a Capacity Block has 1 to {MOST_IN_BLOCK}",
            f"--nodes {MOST_IN_BLOCK}",
        )
    _check_hours(hours)
    if earliest is not None and latest is not None and latest < earliest:
        raise UserError("the latest start is before the earliest", next_step="exchange the two times")
    return BlockSearch(instance_type=instance.name, count=count, hours=hours, earliest=earliest, latest=latest)


def regions_of(instance_type: str) -> tuple[str, ...]:
    """Where it is offered, as far as our table knows. Raises UserError where that is not recorded."""
    known = load_instances().get(instance_type)
    if known is None or not known.regions:
        raise UserError(f"it is not recorded where {instance_type} is offered", "", "name regions: --region us-east-1")
    return known.regions


def every_region() -> tuple[str, ...]:
    """Where blocks of some type can be."""
    return tuple(sorted({one for known in load_instances().values() if known.capacity_block for one in known.regions}))


def find_request(want: BlockSearch, place: Place) -> Request:
    parameters: dict[str, object] = {
        "InstanceType": want.instance_type,
        "InstanceCount": want.count,
        "CapacityDurationHours": want.hours,
    }
    if want.earliest is not None:
        parameters["StartDateRange"] = _iso(want.earliest)
    if want.latest is not None:
        parameters["EndDateRange"] = _iso(want.latest + want.hours * HOUR)
    return request(place, "DescribeCapacityBlockOfferings", want.instance_type, parameters)


def purchase_request(offering: Offering, installation: str | Text, profile: str = "") -> Request:
    """It has no token that would make a second one harmless (EC2 API reference): it is sent once."""
    tags = [{"Key": INSTALLATION, "Value": to_text(installation)}]
    parameters: dict[str, object] = {
        "CapacityBlockOfferingId": offering.id,
        "InstancePlatform": PLATFORM,
        "TagSpecifications": [{"ResourceType": "capacity-reservation", "Tags": tags}],
    }
    return request(Place(offering.region, profile), "PurchaseCapacityBlock", offering.id, parameters)


def find(session: AwsSession, want: BlockSearch, regions: Sequence[str]) -> Answers:
    """What can be bought now, the cheapest first, then the earliest. Every region is asked, all at the same time."""

    def ask(region: str) -> list[Offering]:
        sent = find_request(want, Place(region, session.profile))
        listed = _pages(session, sent, "CapacityBlockOfferings", "find", f"blocks in {region}")
        return [_offering(one, region, want.hours) for one in listed]

    found, problems = _everywhere(regions, ask)
    fitting = [one for one in found if want.latest is None or one.start <= want.latest]
    fitting = [one for one in fitting if want.earliest is None or one.start >= want.earliest]
    return Answers(tuple(sorted(fitting, key=lambda one: (one.fee, one.start, one.id))), (), problems)


def look_again(session: AwsSession, offering: Offering) -> Offering:
    """The offering as it is now; under its new id when AWS lists it under another. Raises CapacityError, or as find."""
    want = BlockSearch(instance_type=offering.instance_type, count=offering.count, hours=offering.searched_hours)
    answers = find(session, want, (offering.region,))
    if answers.problems:
        raise answers.problems[0][1]
    for one in answers.offerings:
        if one.id == offering.id:
            return one
    for one in answers.offerings:
        if one.same_terms(offering):
            return one
    again = f"orch blocks find {offering.instance_type} --nodes {offering.count} --hours {offering.searched_hours}"
    raise CapacityError(f"{offering.id} is not offered any more", "nothing was bought", again)


def buy(session: AwsSession, offering: Offering, typed: str, installation: str) -> Block:
    """Buy it, if `typed` is exactly its price. Raises UserError when it is not, and nothing was sent then.

    Raises CloudError when it is not known whether it was bought; then nothing must be sent again before a look.
    """
    if typed != offering.confirmation:
        raise UserError(
            f"'{typed}' is not the price", "nothing was bought", f"the price is {offering.confirmation}, without more"
        )
    sent = purchase_request(offering, installation, session.profile)
    calls = Calls(session, offering.region)
    try:
        answer = calls.change(sent.method, _plain(sent))
    except Refused as refused:
        if refused.answer.kind.may_have_acted:
            raise CloudError(
                f"it is not known whether {offering.id} was bought",
                str(refused.answer),
                f"orch blocks list --region {offering.region}   first: a second purchase is paid as well",
            ) from refused
        raise explain("buy", offering.id, refused.answer) from refused
    return _block(answer["CapacityReservation"], offering.region)


def bought(session: AwsSession, installation: str, regions: Sequence[str]) -> Answers:
    """Blocks that carry our tag, by their start."""

    def ask(region: str) -> list[Block]:
        body: dict[str, object] = {"Filters": [by_tag(INSTALLATION, installation)]}
        sent = request(Place(region, session.profile), "DescribeCapacityReservations", "ours", body)
        listed = _pages(session, sent, "CapacityReservations", "list", f"blocks in {region}")
        blocks = [one for one in listed if one.get("ReservationType") == "capacity-block"]
        return [_block(one, region) for one in blocks if read_tags(one).get(INSTALLATION) == installation]

    found, problems = _everywhere(regions, ask)
    return Answers((), tuple(sorted(found, key=lambda one: (one.start, one.id))), problems)


def _check_hours(hours: int) -> None:
    days = [*range(1, _LONGEST_IN_DAYS + 1), *range(_LONGEST_IN_DAYS + 7, _LONGEST + 1, 7)]
    possible = [day * 24 for day in days]
    if hours in possible:
        return
    near = (
        [*possible[:1], *(one for one in possible if one < hours)][-1],
        next((one for one in possible if one > hours), possible[-1]),
    )
    nearest = " or ".join(f"--hours {one}" for one in sorted(set(near)))
    raise UserError(
        f"AWS sells no Capacity Block of {hours} hours", "1 to 14 whole days, or up to 182 days in weeks", nearest
    )


def _everywhere(
    regions: Sequence[str], ask: Callable[[str], list[_Found]]
) -> tuple[list[_Found], tuple[tuple[str, OrchError], ...]]:
    """In the order of the regions. Raises the first problem when no region could be asked."""

    def one(region: str) -> tuple[list[_Found], OrchError | None]:
        try:
            return ask(region), None
        except OrchError as error:
            return [], error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(one, regions))
    problems = [(region, error) for region, (_, error) in zip(regions, answers, strict=True) if error is not None]
    if problems and len(problems) == len(regions):
        raise problems[0][1]
    return [item for found, _ in answers for item in found], tuple(problems)


def _pages(session: AwsSession, sent: Request, key: str, verb: str, name: str) -> list[Thing]:
    """All pages of a read. Raises OrchError."""
    client = session.client("ec2", sent.target.partition("/")[0])
    try:
        pages = client.get_paginator(kebab(sent.method).replace("-", "_")).paginate(**_plain(sent))
        return [one for page in pages for one in page.get(key, ())]
    except Exception as error:
        answer = understood(error, sent.method)
        if answer is None:
            raise
        raise explain(verb, name, answer) from error


def _plain(sent: Request) -> dict[str, Any]:
    return cast(dict[str, Any], revealed(sent.body))


def _offering(thing: Mapping[str, Any], region: str, searched_hours: int) -> Offering:
    return Offering(
        id=str(thing["CapacityBlockOfferingId"]),
        region=region,
        zone=str(thing.get("AvailabilityZone", "")),
        instance_type=str(thing["InstanceType"]),
        count=int(thing["InstanceCount"]),
        start=_seconds(thing["StartDate"]),
        end=_seconds(thing["EndDate"]),
        fee=Decimal(str(thing["UpfrontFee"])),
        currency=str(thing.get("CurrencyCode", "USD")),
        searched_hours=searched_hours,
        taken_early=TAKEN_EARLY,
    )


def _block(thing: Mapping[str, Any], region: str) -> Block:
    free = thing.get("AvailableInstanceCount")
    return Block(
        id=str(thing["CapacityReservationId"]),
        region=region,
        zone=str(thing.get("AvailabilityZone", "")),
        instance_type=str(thing.get("InstanceType", "")),
        count=int(thing.get("TotalInstanceCount", 0)),
        free=None if free is None else int(free),
        state=str(thing.get("State", "")),
        start=_seconds(thing["StartDate"]) if "StartDate" in thing else 0.0,
        end=_seconds(thing["EndDate"]) if "EndDate" in thing else 0.0,
        taken_early=TAKEN_EARLY,
    )


def _seconds(value: datetime) -> float:
    return value.timestamp()


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
