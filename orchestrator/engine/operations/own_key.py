"""Get this computer's key onto the hosts of a cluster before a command that connects without the loop.

Whoever drives the cluster writes the keys of the team's computers: this one records its own in the store, and waits.
With a confirmed record of that, nothing is sent and nothing is tried.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from orchestrator.engine.loop.admission import admits
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.operations.team import find_driver
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.services import IDENTITY, real_services
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.keys import identify_computer
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import AccessError
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.providers.protocol import ChecksLogins
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.fleet import Fleet
from orchestrator.slices import SliceState
from orchestrator.store.location import store_location
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord

UNDRIVEN_SECONDS = 15.0  # an engine that begins to drive the cluster takes some seconds
WAIT_SECONDS = 120.0
_PAUSE = 0.5


def await_key_of(ready: PreparedCommand, narrator: Narrator) -> None:
    """Return when the hosts of an `exec` admit this computer's key. A key that no process writes is refused in seconds.

    Raises:
        AccessError: No one writes the key to the hosts, or IAM refuses the connection.
    """
    desired, given = ready.desired, ready.identity or os.environ.get(IDENTITY, "")
    if not isinstance(desired, Run) or desired.create or given:
        return
    with open_reader(ready.project) as reader:
        record = reader.cluster(ready.cluster)
        if record is None or record.last_state != SliceState.READY or find_unconfirmed(reader, record) is None:
            return
        hosts = tuple(host for host in record.hosts if desired.ranks is None or host.rank in desired.ranks)
        admit_here(reader, record, narrator)
        await_own_key(reader, replace(record, hosts=hosts), narrator)


def await_own_key(reader: Reader, record: ClusterRecord, narrator: Narrator) -> None:
    """Return when the hosts admit this computer's key, or refuse it for a reason that the command itself reports.

    Raises:
        AccessError: No one writes the key to the hosts, or IAM refuses the connection.
        OrchError: The store cannot be changed, or this computer was removed from the team.
    """
    intent = find_unconfirmed(reader, record)
    if intent is None:
        return
    where = load_paths()
    with open_store(where, real_services(where), "register this computer", record.project):
        pass
    denied = _find_denied(reader, record, narrator)  # hosts may admit the key though that is not on record
    if remedy := next((one.remedy for one in denied if one.remedy), ""):
        where_denied = format_hosts(one.rank for one in denied)
        raise AccessError(f"{where_denied} of '{record.name}' cannot be reached from here", denied[0].detail, remedy)
    if denied:
        _wait(reader, record, intent, narrator)


def find_unconfirmed(reader: Reader, record: ClusterRecord) -> Intent | None:
    """Return the slice whose hosts are not on record to admit this computer's key; None when there is none.

    In a store of this computer alone, only machines that were taken over may lack the key.
    """
    intent = next((one for one in reversed(reader.intents(record)) if one.state is IntentState.ACCEPTED), None)
    if intent is None or not admits(intent) or not record.hosts:
        return None
    where = load_paths()
    shared = isinstance(store_location(os.environ, where), str)
    if not shared and reader.slice_owner(intent.token) is None:
        return None
    computer, _ = identify_computer(where)
    return None if _is_written(reader, record, intent, computer.id) else intent


def _is_written(reader: Reader, record: ClusterRecord, intent: Intent, computer: str) -> bool:
    """Return whether the hosts are on record to have the key: from the create on, or written later and not expired."""
    now = time.time()
    return any(
        not one.address and one.computer == computer and (not one.until or (one.confirmed and one.until > now))
        for one in reader.admissions(record.uid, intent.generation)
    )


def _find_denied(reader: Reader, record: ClusterRecord, narrator: Narrator) -> tuple[HostOutcome, ...]:
    """Log in to all hosts. Return the outcomes of those that refuse the key."""
    hosts = fence_recorded_hosts(reader, record)
    with open_pins(narrator.note) as pins, Fleet(hosts, pins=pins) as fleet:
        outcomes = fleet.run("true", timeout=SHORT).outcomes
    return tuple(one for one in outcomes if one.failure is Failure.AUTH)


def _wait(reader: Reader, record: ClusterRecord, intent: Intent, narrator: Narrator) -> None:
    began = driven = time.monotonic()
    until = time.time() + WAIT_SECONDS
    taken_over = reader.slice_owner(intent.token) is not None
    patience = 0.0 if taken_over else UNDRIVEN_SECONDS  # no computer of this store may have a key that is admitted
    computer, _ = identify_computer(load_paths())
    while not _is_written(reader, record, intent, computer.id):
        now = time.monotonic()
        if driver := find_driver(reader, record):
            driven = now
        elif now - driven >= patience:
            why = "no process drives the cluster now that could write it there"
            raise _not_written(record, intent, why, taken_over)
        if time.time() > until:
            why = f"{driver or 'whoever drove the cluster'} did not write it there"
            raise _not_written(record, intent, why, taken_over)
        reason = f"waiting until this computer's key is on the hosts of {record.name}"
        narrator.waiting(Wait(on=WaitFor.CONTACT, reason=reason, until=until), now - began)
        time.sleep(_PAUSE)


def _not_written(record: ClusterRecord, intent: Intent, why: str, taken_over: bool) -> AccessError:
    provider = real_services(load_paths()).provider(intent.candidate.provider)
    if isinstance(provider, ChecksLogins) and (role := provider.login_role(intent.candidate)):
        why += f"; or OS Login decides there, and this account has no {role}"
    own = f"orch exec {record.name} -- true"
    key = f"with a recovery key that they admit: {describe_identity(record.name)}"
    return AccessError(
        f"the hosts of '{record.name}' do not admit this computer's key",
        why,
        key if taken_over else f"on a computer that they admit: {own}   then the same here\nor {key}",
    )


def describe_identity(cluster: str) -> str:
    """Return the command that opens hosts with a recovery key, and lets this computer in with its own."""
    return f"orch exec {cluster} --identity KEY -- true"
