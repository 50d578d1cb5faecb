"""Reserved machines that are asked for, and what earlier slices have left behind."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.providers.aws import reservations
from orchestrator.providers.aws.calls import Calls, Thing, read_tags
from orchestrator.providers.aws.check_asked import Asked, as_block
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.tags import INSTALLATION, SLICE
from orchestrator.providers.checks import Outcome, finding_from_error, fix, ok
from orchestrator.providers.core.faults import Refused

_LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")
_KINDS = (  # (operation, key of its answer, what it is called, its name)
    ("DescribeAddresses", "Addresses", "Elastic IP", "PublicIp"),
    ("DescribeSecurityGroups", "SecurityGroups", "security group", "GroupName"),
    ("DescribePlacementGroups", "PlacementGroups", "placement group", "GroupName"),
)


def reservation(asked: Asked) -> Outcome:
    """A reservation or a capacity block, and whether it has what is asked of it."""
    name = asked.ask.reservation
    try:
        found = reservations.look(asked.calls, name)
        candidate = asked.candidate(str(found.get("AvailabilityZone", "")) if not asked.ask.zone else "")
        block = found.get("ReservationType") == "capacity-block"
        if asked.instance is None:
            one = reservations.reserved(found)
        else:
            one = reservations.checked(asked.calls, as_block(candidate) if block else candidate, repeated=False)
    except OrchError as error:
        return finding_from_error("reservation", error)
    except Refused as refused:
        return finding_from_error("reservation", explain("read", name, refused.answer))
    what = "capacity block" if block else "reservation"
    machines = f"{found.get('TotalInstanceCount', 0)} {found.get('InstanceType', '')} in {one.zone}"
    span = f", {_moment(one.begins)} to {_moment(one.ends)}" if one.ends else ""
    return ok("reservation", f"the {what} {name} is {one.state}: {machines}{span}")


def leftovers(asked: Asked) -> Outcome:
    """Addresses and groups of this installation whose slice has no machines, and no record here."""
    installation = asked.ask.installation
    if not installation:
        return ok("leftovers", "none: this installation has made nothing yet")
    try:
        left = _left(asked.calls, asked, installation)
    except Refused as refused:
        return finding_from_error("leftovers", explain("look for", "what earlier slices left", refused.answer))
    if not left:
        return ok("leftovers", f"none in {asked.region}")
    words = f"{asked.region}: {', '.join(left[:4])}{f' and {len(left) - 4} more' if len(left) > 4 else ''}"
    return fix("leftovers", f"{words}; no slice has them any more", "orch reap", Exit.FAILURE)


def _left(calls: Calls, asked: Asked, installation: str) -> list[str]:
    """Raises Refused."""
    mine = {f"tag:{INSTALLATION}": [installation]}
    living = {_slice(one) for one in calls.instances({**mine, "instance-state-name": _LIVING})}
    return [
        f"{what} {one[name]}"
        for operation, key, what, name in _KINDS
        for one in calls.every(operation, key, mine)
        if one.get("State") != "deleted" and _slice(one) not in living and not _known(asked, _slice(one))
    ]


def _slice(thing: Thing) -> str:
    return read_tags(thing).get(SLICE, "")


def _known(asked: Asked, name: str) -> bool:
    """Whether this computer has a record of it: then it may be in the making, or on its way out."""
    return bool(name) and (asked.ask.state / "aws" / f"{name}.json").exists()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
