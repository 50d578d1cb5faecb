"""Resources that a cloud lists with our labels: put together as slices, observed and ended without a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.slices import OwnedSlice, SliceState, SliceView


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What the labels of a resource say.

    Attributes:
        slice: Name of the slice.
        intent: Token of the slice.
        installation: Of the owner.
        cluster: Of the slice.
        project: Of the cluster; "" where there is none.
        member: The cluster's owner; "" where there is none.
        epoch: That of the last take-over; 1 where there was none.
    """

    slice: str
    intent: str
    installation: str = ""
    cluster: str = ""
    project: str = ""
    member: str = ""
    epoch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One resource that some orch made.

    Attributes:
        identity: The cloud's own id, unique within the account.
        owner: What its labels say.
        where: provider/region/zone.
        state: Its state as that of a slice.
        created: Epoch seconds; 0 where the cloud does not say.
        holds: Whether its end is what ends machines.
        counts: How many machines it is; 0 for an auxiliary resource.
        machine: What the cloud calls one of its machines.
        spot: Whether the cloud may preempt it.
        place: Where the driver asks for it, such as a profile and a region.
    """

    identity: str
    owner: Owner
    where: str
    state: SliceState
    created: float = 0.0
    holds: bool = False
    counts: int = 0
    machine: str = ""
    spot: bool = False
    place: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.owner.slice, self.owner.intent


@dataclass(slots=True)
class Sightings:
    """What earlier observations of unrecorded slices showed, by name and token. It ends with the process.

    Attributes:
        empty_since: Epoch seconds of the first observation that showed nothing.
        ended: What was shown, and ended from here.
    """

    empty_since: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    ended: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


def group_slices(resources: Iterable[ListedResource]) -> tuple[OwnedSlice, ...]:
    """Return one entry per slice."""
    slices: dict[tuple[str, str], dict[str, ListedResource]] = {}
    for one in resources:  # two places may be of one account, and show the same resource twice
        slices.setdefault(one.key, {})[one.identity] = one
    return tuple(_to_slice(list(found.values())) for found in slices.values())


def judge_together(resources: Sequence[ListedResource]) -> SliceState:
    """Return the state of a slice with everything that exists of it. Without machines it must be ended: FAILED."""
    states = {one.state for one in resources if one.counts}
    if not states:
        return SliceState.CREATING if any(one.holds for one in resources) else SliceState.FAILED
    if len(states) == 1:
        return states.pop()
    return SliceState.CREATING if states == {SliceState.CREATING, SliceState.READY} else SliceState.FAILED


def view_unrecorded(resources: Sequence[ListedResource]) -> SliceView:
    """Return the view of a slice that has no record here. Its hosts' keys are not known, so it is never READY."""
    state, where = judge_together(resources), _leading(resources).where
    owner = next((one.owner.installation for one in resources if one.counts), "")
    if state is SliceState.READY:
        reason = f"it is in {where}, and was made from another computer, which has its keys"
        return SliceView(state=SliceState.UNCLEAR, reason=reason, installation=owner)
    return SliceView(state=state, reason=f"in {where}", installation=owner)


def list_unused(resources: Sequence[ListedResource]) -> dict[tuple[str, ...], ListedResource]:
    """Return one auxiliary resource for each place of a slice whose machines are deleted."""
    busy = {one.owner.intent for one in resources if one.holds}
    return {(*one.place, *one.key): one for one in resources if one.owner.intent not in busy}


def read_owner(labels: Mapping[str, str]) -> Owner:
    """Return the owner by labels under their common names, such as "orch-slice"."""
    epoch = labels.get("orch-epoch", "")  # only on what was taken over
    return Owner(
        slice=labels.get("orch-slice", ""),
        intent=labels.get("orch-intent", ""),
        installation=labels.get("orch-installation", ""),
        cluster=labels.get("orch-cluster", ""),
        project=labels.get("orch-project", ""),
        member=labels.get("orch-member", ""),
        epoch=int(epoch) if epoch.isdecimal() else 1,
    )


def _leading(resources: Sequence[ListedResource]) -> ListedResource:
    """Return a machine, else what holds machines, else the first one: a take-over changes the labels of these first."""
    return max(resources, key=lambda one: (bool(one.counts), one.holds))  # the first one of several


def _to_slice(resources: Sequence[ListedResource]) -> OwnedSlice:
    leading = _leading(resources)
    owner = leading.owner
    return OwnedSlice(
        name=owner.slice,
        cluster=owner.cluster,
        installation=owner.installation,
        state=judge_together(resources),
        created=min((one.created for one in resources if one.created), default=0.0),
        where=leading.where,
        intent=owner.intent,
        machine=next((one.machine for one in resources if one.counts), ""),
        count=sum(one.counts for one in resources),
        spot=any(one.spot for one in resources),
        project=owner.project,
        member=owner.member,
    )
