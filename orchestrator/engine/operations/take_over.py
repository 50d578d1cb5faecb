"""Take over machines that have no record here: labels first, then the record, then the hosts.

The labels in the cloud decide who has a slice: of two that take it over at the same moment, the last to write them.
Each writes, waits, and reads again, so one of them sees the other and stops. The hosts follow the labels: the winner
presents a higher epoch than any host has. Killed anywhere, the same command completes it: until the record is written
the slice still counts as lost, and after that only the hosts are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.claim import HostClaim, write_labels
from orchestrator.engine.operations.recover import LostSlice, find_price_per_hour, select_named
from orchestrator.engine.operations.report_wait import report_wait
from orchestrator.engine.operations.sweep import PlaceFindings, judge_again, open_place
from orchestrator.engine.services import Services
from orchestrator.engine.state.keys import make_user_key
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import ConflictError, NotFoundError, UserError
from orchestrator.paths import Paths
from orchestrator.plan.sweep import SweepVerdict
from orchestrator.providers.protocol import HasAccounts, Recovers
from orchestrator.slices import OwnedSlice, RecoveredSlice, SliceKeys, SliceState
from orchestrator.store.admission_records import NewSliceRecord
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

_LOST = frozenset({SliceState.ABSENT, SliceState.ENDING, SliceState.FAILED, SliceState.PREEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """The result.

    Attributes:
        cluster: Its name here.
        name: Of the slice; `where`: its place.
        intent: Its intent label.
        price_per_hour: List price in dollars; None when it is not known.
        closed: Why the hosts cannot be entered from here; "" when they can.
    """

    cluster: str
    name: str
    intent: str
    where: str
    price_per_hour: float | None
    closed: str


def take_over_slice(
    store: Store, services: Services, where: Paths, narrator: Narrator, lost: LostSlice, name: str = ""
) -> TakeOver:
    """Make this installation the owner of a slice, and record it here as cluster `name`, by default that of its labels.

    Raises:
        UserError: Machines of this provider, or in this state, can only be ended.
        ConflictError: It is on record here, or another cluster has the name.
        TakenOverError: Another installation took it over at the same moment.
        OrchError: The provider or the store failed.
    """
    found = lost.slice
    cluster = name or found.cluster or found.name
    with (
        LeaseKeeper(store, found.intent, "recover", narrator, kind="intent") as intent,
        LeaseKeeper(store, cluster, "recover", narrator) as keeper,
    ):
        intent.hold()
        keeper.hold()
        provider = require_recoverable(store, services, lost, cluster)
        _judge(store, services, narrator, lost)
        narrator.note(f"changing the labels of {found.name} ({found.intent}) in {found.where}")
        with report_wait(narrator, f"waiting until the labels of {found.name} are changed"):
            recovered = write_labels(store, services.clock, provider, found, cluster)
        if recovered.host_public:
            provider.keep_recovered(found, recovered, _keys(where, found.name, recovered))
        record = store.record_take_over(keeper.lease, _record_of(provider, found, recovered, cluster))
        claim = HostClaim(store, services, where, narrator, keeper, provider=provider, found=found, record=record)
        closed = claim.present_epoch(recovered)
    return _result(cluster, found, closed)


def complete_take_over(
    store: Store,
    services: Services,
    where: Paths,
    narrator: Narrator,
    findings: Sequence[PlaceFindings],
    name: str,
    intent: str = "",
    given: str = "",
) -> TakeOver | None:
    """Claim the hosts of machines that were taken over here before, perhaps by a command that was killed after that.

    Args:
        store: The records.
        services: Has the clock.
        where: The folders of this installation.
        narrator: Gets the progress.
        findings: What the clouds list.
        name: Of the slice or its cluster.
        intent: Only this one; "" for any.
        given: The name that the cluster is to have here; "" for any.

    Returns:
        The result; None when no slice of this name was taken over here.

    Raises:
        UserError: Another slice of this name is not on record here.
        TakenOverError: Another installation has taken it over since.
        OrchError: The provider or the store failed.
    """
    named = select_named(findings, name, intent)
    others = [one for one in named if one.swept.verdict not in (SweepVerdict.TRACKED, SweepVerdict.LEAVING)]
    for one in named:
        found, owner = one.slice, store.slice_owner(one.slice.intent)
        record = _find_record(store, found.intent)
        if one.swept.verdict is not SweepVerdict.TRACKED or owner is None or owner.holder or record is None:
            continue
        provider = open_place(services, one.finding)
        if not isinstance(provider, Recovers) or given not in ("", record.name):
            continue
        if others:
            why = f"{found.intent} is on record here as '{record.name}'; {others[0].slice.intent} is not"
            step = f"orch recover {name} --take-over --intent {others[0].slice.intent} --as NAME"
            raise UserError(f"{len(named)} slices are called '{name}'", why, step)
        with LeaseKeeper(store, record.name, "recover", narrator, key=f"cluster:{record.qualified_name}") as keeper:
            keeper.hold()
            claim = HostClaim(store, services, where, narrator, keeper, provider=provider, found=found, record=record)
            closed = claim.present_epoch(provider.describe_owned(found))
        return _result(record.name, found, closed)
    return None


def _result(cluster: str, found: OwnedSlice, closed: str) -> TakeOver:
    price = find_price_per_hour(found)
    return TakeOver(
        cluster=cluster,
        name=found.name,
        intent=found.intent,
        where=found.where,
        price_per_hour=price,
        closed=closed,
    )


def _find_record(store: Store, token: str) -> ClusterRecord | None:
    return next((one for one in store.clusters() if any(intent.token == token for intent in store.intents(one))), None)


def require_recoverable(store: Store, services: Services, lost: LostSlice, cluster: str) -> Recovers:
    """Return the provider of a slice that may be taken over as `cluster`. Changes nothing.

    Raises:
        UserError: Machines of this provider, or in this state, can only be ended.
        ConflictError: Another cluster has the name.
    """
    found, provider = lost.slice, open_place(services, lost.finding)
    end = f"orch recover {found.cluster or found.name} --end   ends them"
    if not isinstance(provider, Recovers):
        raise UserError(f"machines of '{lost.finding.provider}' can only be ended", "", end)
    if found.state in _LOST:
        raise UserError(f"'{found.name}' can only be ended", f"it is {found.state}", end)
    if store.cluster(cluster) is not None:
        why, step = "a record has one slice", f"another name: --as NAME   or end it first: orch down {cluster}"
        raise ConflictError(f"there is a cluster '{cluster}' here already", why, step)
    return provider


def _judge(store: Store, services: Services, narrator: Narrator, lost: LostSlice) -> None:
    still = judge_again(store, services, narrator, lost.finding, lost.slice)
    if still is None or still.verdict is SweepVerdict.LEAVING:
        raise NotFoundError(f"'{lost.slice.name}' is deleted meanwhile", "", "orch recover   lists what there is")
    if still.verdict is SweepVerdict.TRACKED:
        raise ConflictError(f"'{lost.slice.name}' is on record here", "", "orch status")


def _keys(where: Paths, name: str, recovered: RecoveredSlice) -> SliceKeys:
    key = make_user_key(where)
    return SliceKeys(
        user_public=key.with_suffix(".pub").read_text().strip(),
        identity_file=str(key),
        known_hosts=str(where.keys(name) / "known_hosts"),
        host_public=recovered.host_public,
    )


def _record_of(provider: Recovers, found: OwnedSlice, recovered: RecoveredSlice, cluster: str) -> NewSliceRecord:
    candidate = recovered.candidate
    generation = found.intent.rpartition("-")[2]
    return NewSliceRecord(
        cluster=cluster,
        summary=f"{candidate.accelerator} on {candidate.where}, taken over",
        generation=int(generation) if generation.isdecimal() else 1,
        name=found.name,
        token=found.intent,
        candidate=candidate,
        account=provider.account(candidate) if isinstance(provider, HasAccounts) else "",
        created=found.created,
        installation=found.installation,
        epoch=recovered.epoch,
    )
