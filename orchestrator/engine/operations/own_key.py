"""Get this computer's key onto the hosts of a cluster before a command that connects without the loop.

Whoever drives the cluster writes the keys of the team's computers: this one records its own in the store, and waits.
With a confirmed record of that, nothing is sent and nothing is tried.
"""

from __future__ import annotations

import os
import time

from orchestrator.engine.loop.admission import admits
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.team import find_driver
from orchestrator.engine.services import real_services
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.keys import identify_computer
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.pins import open_pins
from orchestrator.errors import AccessError
from orchestrator.hosts import Failure, HostOutcome
from orchestrator.paths import load_paths
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.remote.fleet import Fleet
from orchestrator.store.location import store_location
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord

UNDRIVEN_SECONDS = 15.0  # an engine that begins to drive the cluster takes some seconds
WAIT_SECONDS = 120.0
_PAUSE = 0.5


def await_own_key(reader: Reader, record: ClusterRecord, narrator: Narrator) -> None:
    """Return when the hosts admit this computer's key, or refuse it for a reason that the command itself reports.

    Raises:
        AccessError: No one writes the key to the hosts, or IAM refuses the connection.
        OrchError: The store cannot be changed, or this computer was removed from the team.
    """
    where = load_paths()
    if not isinstance(store_location(os.environ, where), str):  # a store of this computer alone
        return
    intent = next((one for one in reversed(reader.intents(record)) if one.state is IntentState.ACCEPTED), None)
    if intent is None or not admits(intent) or not record.hosts:
        return
    computer, _ = identify_computer(where)
    if _is_written(reader, record, intent, computer.id):
        return
    with open_store(where, real_services(where), "register this computer", record.project):
        pass
    denied = _find_denied(reader, record, narrator)  # hosts that an older orch wrote the key to are not on record
    if remedy := next((one.remedy for one in denied if one.remedy), ""):
        where_denied = format_hosts(one.rank for one in denied)
        raise AccessError(f"{where_denied} of '{record.name}' cannot be reached from here", denied[0].detail, remedy)
    if denied:
        _wait(reader, record, intent, computer.id, narrator)


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
        outcomes = fleet.run("true").outcomes
    return tuple(one for one in outcomes if one.failure is Failure.AUTH)


def _wait(reader: Reader, record: ClusterRecord, intent: Intent, computer: str, narrator: Narrator) -> None:
    began = driven = time.monotonic()
    until = time.time() + WAIT_SECONDS
    while not _is_written(reader, record, intent, computer):
        now = time.monotonic()
        if driver := find_driver(reader, record):
            driven = now
        elif now - driven > UNDRIVEN_SECONDS:
            raise _not_written(record, "no process drives the cluster now that could write it there")
        if time.time() > until:
            raise _not_written(record, f"{driver or 'whoever drove the cluster'} did not write it there")
        reason = f"waiting until this computer's key is on the hosts of {record.name}"
        narrator.waiting(Wait(on=WaitFor.CONTACT, reason=reason, until=until), now - began)
        time.sleep(_PAUSE)


def _not_written(record: ClusterRecord, why: str) -> AccessError:
    return AccessError(
        f"the hosts of '{record.name}' do not have this computer's key yet",
        f"{why}; the key is on record in the store",
        f"on the computer that launched it: orch exec {record.name} -- true   then the same here",
    )
