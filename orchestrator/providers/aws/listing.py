"""What in an account carries our tags: in all of its regions, all pages; a region that does not answer is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from orchestrator.providers.aws.calls import Calls, Filters, Thing, read_tags
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.aws.states import STATES, state_of
from orchestrator.providers.aws.tags import CLUSTER, INSTALLATION, INTENT, MEMBER, PROJECT, SLICE
from orchestrator.slices import OwnedSlice, SliceState

THREADS = 8
# What is left of a slice when its instances are gone: operation, where the answer has it, and its id.
_REST = (
    ("DescribeAddresses", "Addresses", "AllocationId"),
    ("DescribeSecurityGroups", "SecurityGroups", "GroupId"),
    ("DescribePlacementGroups", "PlacementGroups", "GroupId"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing that some orch made. identity: AWS's own. zone: "" but for instances. machine: it is an instance.

    type, spot: of an instance.
    """

    identity: str
    region: str
    zone: str
    tags: Mapping[str, str]
    state: SliceState
    created: float
    machine: bool
    type: str = ""
    spot: bool = False

    @property
    def slice(self) -> str:
        return self.tags[SLICE]

    @property
    def intent(self) -> str:
        return self.tags[INTENT]


def regions(session: AwsSession) -> list[str]:
    """Those that the account may use. Raises Refused."""
    listed = Calls(session, session.region).every("DescribeRegions", "Regions", {})
    return sorted(str(one["RegionName"]) for one in listed)


def found(session: AwsSession, filters: Filters, places: Sequence[str] | None = None) -> list[Found]:
    """Return all that fits the filters and is not gone, in these regions, or in every one. Raises Refused."""
    places = regions(session) if places is None else places
    with ThreadPoolExecutor(THREADS) as pool:
        return [one for part in pool.map(partial(_in_region, session, filters), places) for one in part]


def owned(every: Iterable[Found]) -> tuple[OwnedSlice, ...]:
    """One entry per slice."""
    slices: dict[tuple[str, str], dict[str, Found]] = {}
    for one in every:  # two profiles may be of one account, and show the same thing twice
        slices.setdefault((one.slice, one.intent), {})[one.identity] = one
    return tuple(_owned(list(things.values())) for things in slices.values())


def state_together(things: Sequence[Found]) -> SliceState:
    """Of a slice with all that there is of it. What has no machines any more must be ended: FAILED."""
    states = {one.state for one in things if one.machine}
    if not states:
        return SliceState.FAILED
    if len(states) == 1:
        return states.pop()
    return SliceState.CREATING if states == {SliceState.CREATING, SliceState.READY} else SliceState.FAILED


def where_of(things: Sequence[Found]) -> str:
    one = next((one for one in things if one.machine), things[0])
    return "/".join(part for part in ("aws", one.region, one.zone) if part)


def _owned(things: list[Found]) -> OwnedSlice:
    times = [one.created for one in things if one.created]
    machines = [one for one in things if one.machine]
    tags = (machines or things)[0].tags  # a take-over that was killed has changed those of the machines first
    return OwnedSlice(
        name=things[0].slice,
        cluster=tags.get(CLUSTER, ""),
        installation=tags.get(INSTALLATION, ""),
        state=state_together(things),
        created=min(times, default=0.0),
        where=where_of(things),
        intent=things[0].intent,
        machine=machines[0].type if machines else "",
        count=len(machines),
        spot=any(one.spot for one in machines),
        project=tags.get(PROJECT, ""),
        member=tags.get(MEMBER, ""),
    )


def _in_region(session: AwsSession, filters: Filters, region: str) -> list[Found]:
    calls = Calls(session, region)
    alive = {
        **filters,
        "instance-state-name": [name for name, state in STATES.items() if state is not SliceState.ABSENT],
    }
    every = [_instance(region, one) for one in calls.instances(alive)]
    for operation, key, identity in _REST:
        every += [
            Found(
                identity=str(one[identity]),
                region=region,
                zone="",
                tags=read_tags(one),
                state=SliceState.FAILED,
                created=0.0,
                machine=False,
            )
            for one in calls.every(operation, key, filters)
            if one.get("State") != "deleted"
        ]
    return [one for one in every if one.tags.get(SLICE) and one.tags.get(INTENT)]


def _instance(region: str, one: Thing) -> Found:
    zone = str(one.get("Placement", {}).get("AvailabilityZone", ""))
    state = STATES.get(state_of(one), SliceState.UNCLEAR)
    return Found(
        identity=str(one["InstanceId"]),
        region=region,
        zone=zone,
        tags=read_tags(one),
        state=state,
        created=_made(one),
        machine=True,
        type=str(one.get("InstanceType", "")),
        spot=one.get("InstanceLifecycle") == "spot",
    )


def _made(one: Thing) -> float:
    """When it was made: what LaunchTime says is when it was started last, its disk was attached once."""
    disks = [disk.get("Ebs", {}).get("AttachTime") for disk in one.get("BlockDeviceMappings", ())]
    times = [_seconds(moment) for moment in (one.get("LaunchTime"), *disks)]
    return min((moment for moment in times if moment), default=0.0)


def _seconds(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else 0.0
