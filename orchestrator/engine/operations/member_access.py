"""Let members of a service log in to the hosts of a cluster with their own keys, and take these off again.

A job's driver writes the keys too, so an order that waits for the cluster's lease may find it done.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Sequence

from orchestrator.computer import read_computer
from orchestrator.engine.loop.admission import HostKeys, admits, list_admitted, write_keys
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import find_gated_intent, open_gate
from orchestrator.engine.services import Services
from orchestrator.engine.state.fences import fence_hosts
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.pins import StorePins
from orchestrator.errors import AccessError, ConflictError, DeadlineError, HostError, NotFoundError
from orchestrator.formatting import format_utc
from orchestrator.hosts import HostOutcome, fingerprint
from orchestrator.paths import Paths
from orchestrator.plan.observed import Intent
from orchestrator.plan.ranks import format_hosts
from orchestrator.store.access_records import AccessGrant, access_from_order, may_enter
from orchestrator.store.admission_records import AdmissionRecord
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store
from orchestrator.store.token_parents import KnownEntries

ORDER_SECONDS = 600.0  # after which an order that found the cluster busy or its hosts silent has failed


def admit_member(store: Store, services: Services, where: Paths, narrator: Narrator, order: OrderRecord) -> str:
    """Write the key of an order to the hosts of its cluster, and return what was done, in words.

    Raises:
        ConflictError: Another process works on the cluster: it is to be tried again.
        OrchError: It cannot be done.
    """
    grant, now = access_from_order(order), services.clock.now()
    record = store.cluster(order.cluster)
    if record is None or record.uid != grant.cluster_uid:
        raise NotFoundError(f"the cluster '{order.cluster}' of this order is deleted", "", "orch status")
    if not may_enter(grant, record.owner, KnownEntries.read(store), now):
        raise AccessError(f"{grant.member} may not log in to '{record.name}' any more", "", "orch login")
    intent = _find_hosts(store, record)
    if intent is None:
        raise NotFoundError(f"cluster '{record.name}' has no hosts now", "", f"orch status {record.name}")
    failed: tuple[HostOutcome, ...] = ()
    if not _is_written(store, record, intent, grant):
        try:
            failed = _write_under_lease(store, services, where, narrator, record, intent, grant)
        except ConflictError as error:
            if now - order.created > ORDER_SECONDS:
                raise DeadlineError(error.what, error.why, "the same command again") from error
            raise
    if failed and len(failed) == len(record.hosts):
        why = failed[0].detail or failed[0].last_line or failed[0].verdict
        raise HostError(f"no host of '{record.name}' took the key", why, f"orch status {record.name}")
    silent = f", but not {format_hosts(one.rank for one in failed)}" if failed else ""
    key = fingerprint(a2b_base64(grant.public_key.split()[1]))
    until = format_utc(grant.until)
    return f"{grant.member} may log in to the hosts of '{record.name}' until {until}{silent}, with the key {key}"


def list_withdrawals(store: Store, now: float) -> tuple[ClusterRecord, ...]:
    """Return the clusters that admit a key or an address of a member which does not count any more.

    A key whose time is over is not withdrawn: sshd ignores it.
    """
    granted = store.access_grants()
    if not granted:
        return ()
    ended, clusters = list_ended(store, granted, now), {one.uid: one for one in store.clusters()}
    found = [
        one for one in ended if one.cluster_uid in clusters and _is_left(store, clusters[one.cluster_uid], one, now)
    ]
    return tuple({one.cluster_uid: clusters[one.cluster_uid] for one in found}.values())


def list_ended(store: Store, granted: Sequence[AccessGrant], now: float) -> list[AccessGrant]:
    """Return those that do not count any more."""
    entries, owners = KnownEntries.read(store), {one.uid: one.owner for one in store.clusters()}
    return [one for one in granted if not may_enter(one, owners.get(one.cluster_uid, ""), entries, now)]


def withdraw_members(store: Store, services: Services, where: Paths, narrator: Narrator, record: ClusterRecord) -> None:
    """Take the keys that do not count any more off the hosts of a cluster.

    Raises:
        ConflictError: Another process works on the cluster: it is to be tried again.
        HostError: A host does not answer: the same.
    """
    intent = _find_hosts(store, record)
    failed = _write_under_lease(store, services, where, narrator, record, intent) if intent is not None else ()
    if failed:
        why = failed[0].detail or failed[0].last_line or failed[0].verdict
        what = f"keys of members are still on {format_hosts(one.rank for one in failed)} of '{record.name}'"
        raise HostError(what, why, f"orch status {record.name}")


def _write_under_lease(
    store: Store,
    services: Services,
    where: Paths,
    narrator: Narrator,
    record: ClusterRecord,
    intent: Intent,
    grant: AccessGrant | None = None,
) -> tuple[HostOutcome, ...]:
    """Write whose keys belong on the hosts, and which addresses their firewall admits. Return the hosts that failed."""
    key = f"cluster:{record.qualified_name}"
    with LeaseKeeper(store, record.name, "access of members", narrator, key=key) as keeper:
        if not keeper.try_hold():
            raise ConflictError(f"another process works on '{record.name}'", "", "it is tried again")
        now = services.clock.now()
        if find_gated_intent((intent,)) is not None:
            _change_firewall(store, services, where, record, intent, grant, now)
        keys: HostKeys = list_admitted(store, where, record, intent, now)
        hosts = fence_hosts(record.hosts, store.intents(record), store.installation, store.slice_owner)
        operations = services.host_operations(hosts, StorePins(lambda: store, narrator.note))
        try:
            return write_keys(store, record.uid, intent, operations, keys, now)
        finally:
            operations.close()


def _change_firewall(
    store: Store,
    services: Services,
    where: Paths,
    record: ClusterRecord,
    intent: Intent,
    grant: AccessGrant | None,
    now: float,
) -> None:
    """Admit the address of a grant, and withdraw those of grants that do not count any more."""
    ended = frozenset(one.uid for one in list_ended(store, store.access_grants(), now))
    if grant is not None and grant.address:
        if (gate := open_gate(store, services, record, intent, grant.uid, ended)) is not None:
            gate.admit_address(grant.address, now, grant.until)
        return
    computer = read_computer(where.state)
    gate = open_gate(store, services, record, intent, computer.id, ended)
    if gate is not None and gate.needs_change(now):
        gate.admit(now)


def _find_hosts(store: Store, record: ClusterRecord) -> Intent | None:
    """Return the slice whose hosts may get keys; None where there is none."""
    return next((one for one in reversed(store.intents(record)) if admits(one)), None) if record.hosts else None


def _is_written(store: Store, record: ClusterRecord, intent: Intent, grant: AccessGrant) -> bool:
    rows = store.admissions(record.uid, intent.generation)
    return is_written(grant, rows, gated=find_gated_intent((intent,)) is not None)


def is_written(grant: AccessGrant, rows: Sequence[AdmissionRecord], *, gated: bool) -> bool:
    """Return whether the hosts of a slice have the key of a grant, and their firewall its address.

    Args:
        grant: The grant.
        rows: What is on record to be admitted.
        gated: Whether a firewall of ours decides who reaches the hosts.
    """
    confirmed = {one.address for one in rows if one.computer == grant.uid and one.confirmed}
    return "" in confirmed and (not gated or not grant.address or grant.address in confirmed)


def _is_left(store: Store, record: ClusterRecord, grant: AccessGrant, now: float) -> bool:
    """Return whether something of a grant that ended is still admitted; its key is, until its time is over."""
    intent = _find_hosts(store, record)
    rows = store.admissions(record.uid, intent.generation) if intent is not None else ()
    return any(one.computer == grant.uid and (one.address or now < grant.until) for one in rows)
