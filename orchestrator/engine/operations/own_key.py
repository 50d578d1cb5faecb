"""Refuse a command early where hosts that were taken over do not admit this computer's key.

Machines that were made here admit it from the create on. Those of another installation get it by a command that logs
in with a recovery key (loop/admission.py). With a confirmed record of that, nothing is sent and nothing is tried.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from orchestrator.engine.loop.admission import admits
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_here
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.services import IDENTITY, real_services
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.keys import identify_computer
from orchestrator.engine.state.pins import open_pins
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import AccessError
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.ranks import format_hosts
from orchestrator.providers.protocol import ChecksLogins
from orchestrator.remote.deadlines import SHORT
from orchestrator.remote.fleet import Fleet
from orchestrator.slices import SliceState
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord


def refuse_exec_without_key(ready: PreparedCommand, narrator: Narrator) -> None:
    """Do as `refuse_without_key` for the hosts of an `exec`.

    Raises:
        AccessError: They do not admit the key.
    """
    desired, given = ready.desired, ready.identity or os.environ.get(IDENTITY, "")
    if not isinstance(desired, Run) or desired.create or given:
        return
    with open_reader(ready.project) as reader:
        record = reader.cluster(ready.cluster)
        if record is None or record.last_state != SliceState.READY or _find_unconfirmed(reader, record) is None:
            return
        hosts = tuple(host for host in record.hosts if desired.ranks is None or host.rank in desired.ranks)
        admit_here(reader, record, narrator)
        refuse_without_key(reader, replace(record, hosts=hosts), narrator)


def refuse_without_key(reader: Reader, record: ClusterRecord, narrator: Narrator) -> None:
    """Return when the hosts admit this computer's key, or fail for a reason that the command itself reports.

    Raises:
        AccessError: They do not admit the key, or IAM refuses the connection.
    """
    intent = _find_unconfirmed(reader, record)
    if intent is None:
        return
    denied = _find_denied(reader, record, narrator)  # they may admit what is not on record
    if remedy := next((one.remedy for one in denied if one.remedy), ""):
        where_denied = format_hosts(one.rank for one in denied)
        raise AccessError(f"{where_denied} of '{record.name}' cannot be reached from here", denied[0].detail, remedy)
    if denied:
        raise _not_admitted(record, intent)


def describe_identity(cluster: str) -> str:
    """Return the command that opens hosts with a recovery key, and lets this computer in with its own."""
    return f"orch exec {cluster} --identity KEY -- true"


def _find_unconfirmed(reader: Reader, record: ClusterRecord) -> Intent | None:
    """Return the slice that was taken over and is not on record to admit this computer's key; None for none."""
    intent = next((one for one in reversed(reader.intents(record)) if one.state is IntentState.ACCEPTED), None)
    if intent is None or not admits(intent) or not record.hosts or reader.slice_owner(intent.token) is None:
        return None
    computer, _ = identify_computer(load_paths())
    return None if _is_written(reader, record, intent, computer.id) else intent


def _is_written(reader: Reader, record: ClusterRecord, intent: Intent, computer: str) -> bool:
    """Return whether the hosts are on record to have the key."""
    now = time.time()
    return any(
        not one.address and one.computer == computer and one.confirmed and one.until > now
        for one in reader.admissions(record.uid, intent.generation)
    )


def _find_denied(reader: Reader, record: ClusterRecord, narrator: Narrator) -> tuple[HostOutcome, ...]:
    """Log in to all hosts. Return the outcomes of those that refuse the key."""
    hosts = fence_recorded_hosts(reader, record)
    with open_pins(narrator.note) as pins, Fleet(hosts, pins=pins) as fleet:
        outcomes = fleet.run("true", timeout=SHORT).outcomes
    return tuple(one for one in outcomes if one.failure is Failure.AUTH)


def _not_admitted(record: ClusterRecord, intent: Intent) -> AccessError:
    why = "they were made by another installation, which had another key"
    provider = real_services(load_paths()).provider(intent.candidate.provider)
    if isinstance(provider, ChecksLogins) and (role := provider.login_role(intent.candidate)):
        why += f"; or OS Login decides there, and this account has no {role}"
    return AccessError(
        f"the hosts of '{record.name}' do not admit this computer's key",
        why,
        f"with a recovery key that they admit: {describe_identity(record.name)}",
    )
