"""What in an account carries our tags: in all of its regions, all pages; a region that does not answer is an error."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

from orchestrator.providers.aws.calls import Calls, Filters, Thing, read_tags
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.aws.states import STATES, state_of
from orchestrator.providers.core.listed import ListedResource, read_owner
from orchestrator.slices import SliceState

THREADS = 8
# What is left of a slice when its instances are gone: operation, where the answer has it, and its id.
_REST = (
    ("DescribeAddresses", "Addresses", "AllocationId"),
    ("DescribeSecurityGroups", "SecurityGroups", "GroupId"),
    ("DescribePlacementGroups", "PlacementGroups", "GroupId"),
)


def list_regions(session: AwsSession) -> list[str]:
    """Return the regions that the account may use. Raises Refused."""
    listed = Calls(session, session.region).every("DescribeRegions", "Regions", {})
    return sorted(str(one["RegionName"]) for one in listed)


def list_tagged(session: AwsSession, filters: Filters, regions: Sequence[str] | None = None) -> list[ListedResource]:
    """Return everything that fits the filters and exists, in these regions, or in every one. Raises Refused."""
    places = list_regions(session) if regions is None else regions
    with ThreadPoolExecutor(THREADS) as pool:
        return [one for part in pool.map(partial(_in_region, session, filters), places) for one in part]


def _in_region(session: AwsSession, filters: Filters, region: str) -> list[ListedResource]:
    calls = Calls(session, region)
    alive = {
        **filters,
        "instance-state-name": [name for name, state in STATES.items() if state is not SliceState.ABSENT],
    }
    place = (str(session.principal), region)
    every = [_instance(place, one) for one in calls.instances(alive)]
    for operation, key, identity in _REST:
        every += [
            ListedResource(
                identity=str(one[identity]),
                owner=read_owner(read_tags(one)),
                where=f"aws/{region}",
                state=SliceState.FAILED,
                place=place,
            )
            for one in calls.every(operation, key, filters)
            if one.get("State") != "deleted"
        ]
    return [one for one in every if all(one.key)]


def _instance(place: tuple[str, str], one: Thing) -> ListedResource:
    zone = str(one.get("Placement", {}).get("AvailabilityZone", ""))
    return ListedResource(
        identity=str(one["InstanceId"]),
        owner=read_owner(read_tags(one)),
        where="/".join(part for part in ("aws", place[1], zone) if part),
        state=STATES.get(state_of(one), SliceState.UNCLEAR),
        created=_made(one),
        holds=True,
        counts=1,
        machine=str(one.get("InstanceType", "")),
        spot=one.get("InstanceLifecycle") == "spot",
        place=place,
    )


def _made(one: Thing) -> float:
    """When it was made: what LaunchTime says is when it was started last, its disk was attached once."""
    disks = [disk.get("Ebs", {}).get("AttachTime") for disk in one.get("BlockDeviceMappings", ())]
    times = [_seconds(moment) for moment in (one.get("LaunchTime"), *disks)]
    return min((moment for moment in times if moment), default=0.0)


def _seconds(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else 0.0
