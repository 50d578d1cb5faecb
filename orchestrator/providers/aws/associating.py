"""Associate the Elastic IPs of a slice with its hosts, which is possible only when these run."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.reach import primary
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.slices import SliceState, SliceView

_PASSING = frozenset(
    {Kind.WRONG_STATE, Kind.NOT_FOUND, Kind.CAPACITY, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER}
)


def associate_addresses(calls: Calls, mine: AuxiliaryResources, hosts: Sequence[Thing]) -> SliceView | None:
    """Associate an Elastic IP with the first interface of each host; return why one could not be, or None."""
    ours = sorted(mine.addresses(), key=lambda one: one["AllocationId"])
    associated = {str(one.get("NetworkInterfaceId")) for one in ours}
    free = [one for one in ours if not one.get("AssociationId")]
    for host in hosts:
        interface = str(primary(host)["NetworkInterfaceId"])
        if interface in associated:
            continue
        if not free:
            reason = "one of its Elastic IPs is deleted, or belongs to another machine"
            return SliceView(state=SliceState.FAILED, reason=reason)
        problem = _associate(calls, free.pop(0), interface)
        if problem is not None:
            return problem
    return None


def _associate(calls: Calls, address: Thing, interface: str) -> SliceView | None:
    params = {"AllocationId": address["AllocationId"], "NetworkInterfaceId": interface, "AllowReassociation": False}
    try:
        calls.change("AssociateAddress", params)
    except Refused as refused:
        if refused.answer.kind not in _PASSING:
            raise
        return SliceView(state=SliceState.CREATING, reason=f"an Elastic IP waits: {refused.answer}", due=True)
    return None
