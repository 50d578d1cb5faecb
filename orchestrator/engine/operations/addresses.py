"""Admit this computer's address to a slice before a command that connects without the loop: ssh, cp, logs, profile.

A healthy connection costs nothing more: with a confirmed address on record no request is sent. One of some age is tried
by opening a connection; only when that fails is the address asked for, and the firewall changed under the lease.
"""

from __future__ import annotations

import socket
import time

from orchestrator.computer import read_computer
from orchestrator.engine.loop.addresses import VALID_SECONDS, Gate, is_admitted
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.keys import make_user_key
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress
from orchestrator.paths import Paths, load_paths
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.providers.protocol import AdmitsAddresses, HasAccounts, PlansAdmission
from orchestrator.providers.registry import load_planner
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

RECENT_SECONDS = 600.0  # a computer rarely moves in so short a time: no connection is tried
_CONNECT_SECONDS = 2.0


def admit_here(reader: Reader, record: ClusterRecord, narrator: Narrator) -> None:
    """Admit this computer's address to the hosts of a cluster, where it may be missing. A failure is only noted.

    A first command on a computer has no key yet: it is made, or that of ORCH_ENGINE_KEY is taken.
    """
    make_user_key(load_paths())
    intent = find_gated_intent(reader.intents(record))
    if intent is None or not record.hosts:
        return
    where = load_paths()
    try:
        computer = read_computer(where.state)
        rows, now = reader.admissions(record.uid, intent.generation), time.time()
        if is_admitted(rows, computer.id, now, RECENT_SECONDS):
            return
        if is_admitted(rows, computer.id, now, VALID_SECONDS) and answers(record.hosts[0]):
            return
        services = real_services(where)
        with (
            open_store(where, services, "admit this computer", record.project) as store,
            LeaseKeeper(store, record.name, "admit this computer", narrator) as keeper,
        ):
            keeper.hold()
            admit_under_lease(store, services, where, record, intent)
    except OrchError as error:
        narrator.note(f"the firewall of {intent.name} could not admit this computer: {error}")


def find_gated_intent(intents: tuple[Intent, ...]) -> Intent | None:
    """Return the accepted intent whose slice is reached through a firewall of ours; loads no SDK."""
    intent = next((one for one in reversed(intents) if one.state is IntentState.ACCEPTED), None)
    if intent is None:
        return None
    planner = load_planner(intent.candidate.provider)
    return intent if isinstance(planner, PlansAdmission) and planner.needs_admission(intent.candidate) else None


def admit_under_lease(store: Store, services: Services, where: Paths, record: ClusterRecord, intent: Intent) -> None:
    """Admit this computer, and withdraw what is outdated; the caller holds the cluster's lease.

    Raises:
        OrchError: The address is not known, or the provider refused.
    """
    computer = read_computer(where.state)
    gate = open_gate(store, services, record, intent, computer.id)
    if gate is not None:
        gate.admit(services.clock.now())


def open_gate(
    store: Store,
    services: Services,
    record: ClusterRecord,
    intent: Intent,
    computer: str,
    ended: frozenset[str] = frozenset(),
) -> Gate | None:
    """Return the firewall of a slice for a computer, or for a member's grant; None where it has none.

    Raises:
        OrchError: The credentials are of another account.
    """
    provider = services.provider(intent.candidate.provider)
    if intent.account and isinstance(provider, HasAccounts):
        provider = provider.within(intent.account, intent.candidate)
    if not isinstance(provider, AdmitsAddresses):
        return None
    return Gate(store=store, cluster=record, intent=intent, provider=provider, computer=computer, ended=ended)


def answers(host: HostAddress) -> bool:
    """Return whether the port of a host, or of the jump host before it, accepts a connection."""
    first = host.hops[-1]
    try:
        socket.create_connection((first.host, first.port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
