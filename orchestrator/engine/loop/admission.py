"""Let the other computers of a team log in to the hosts: a key each, which runs out unless it is renewed.

A private key never leaves its computer. Each computer records its public key in the store when it opens it; whoever
drives a cluster writes all of them to its hosts, once a day and when one has joined or was removed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orchestrator.engine.loop.addresses import renew_addresses
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.keys import identify_computer
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.remote.host_operations import HostOperations
from orchestrator.render.admission import render_admission
from orchestrator.slices import Candidate, Owned
from orchestrator.store.store import Store
from orchestrator.store.team_records import ComputerRecord

VALID_DAYS = 14.0  # a computer that is removed from the team can log in for so long; see docs/team.md


def admit_computers(session: Session, observed: Observed) -> None:
    """Write the keys of the team's computers to all hosts, unless that was done today."""
    intent = observed.current
    if not isinstance(session.desired, Run) or intent is None or not admits(intent):
        return
    if not observed.hosts or any(host.contact is not Contact.OK for host in observed.hosts):
        return
    team = list_admitted(session.store, session.paths, intent)
    lines = authorized_lines(team, session.now())
    if lines == session.memory.admitted.get(intent.name, ()):
        return
    if intent.name in session.memory.admitted:  # not the first time in this command, which asked before contact
        renew_addresses(session, intent)
    failed = write_keys(
        session.store, session.cluster.uid, intent, session.host_operations(session.hosts), team, session.now()
    )
    session.memory.admitted[intent.name] = lines  # also after a failure: it is reported once, and tried again tomorrow
    if failed:
        why = failed[0].last_line or failed[0].verdict
        session.narrator.note(f"the team's other computers could not be let in on rank {failed[0].rank}: {why}")


def has_team_changed(session: Session) -> bool:
    """Return whether a computer has joined or was removed since this process wrote the keys. One read of the store."""
    written = session.memory.admitted
    if session.store.is_file or not written:
        return False
    return authorized_lines(session.store.computers(), session.now()) not in written.values()


def admits(intent: Intent) -> bool:
    """Return whether keys are written to the hosts of a slice: not to people's own machines."""
    return intent.state is IntentState.ACCEPTED and not isinstance(intent.candidate.market, Owned)


def list_admitted(store: Store, paths: Paths, intent: Intent) -> tuple[ComputerRecord, ...]:
    """Return the computers whose keys belong on the hosts of a slice: those of the team.

    A store of this computer alone has no team: its machines admit its key from the create on. Those that it took over
    may not.
    """
    team = store.computers()
    if not store.is_file or store.slice_owner(intent.token) is None:
        return team
    computer, key = identify_computer(paths)
    own = ComputerRecord(uid=computer.id, host=computer.host, member=store.user, public_key=key, joined=0.0)
    return (*(one for one in team if one.uid != own.uid), own)


def write_keys(
    store: Store,
    cluster_uid: str,
    intent: Intent,
    operations: HostOperations,
    team: Sequence[ComputerRecord],
    now: float,
) -> tuple[HostOutcome, ...]:
    """Make these computers the only ones whose keys are on the hosts, but for the maker. Return the failed hosts.

    It is recorded before a key is sent, and again when all hosts have dropped the keys of all others.
    """
    if not team and not store.all_computers():  # a store that is not shared
        return ()
    uids, until = [one.uid for one in team], now + VALID_DAYS * 86_400.0
    store.note_admitted_keys(cluster_uid, intent.generation, uids, until, alone=False)
    install = may_configure(intent.candidate, operations.hosts)
    script = render_admission(authorized_lines(team, now), install=install)
    outcomes = operations.run_script(script.encode(), [host.rank for host in operations.hosts])
    failed = tuple(outcome for outcome in outcomes if not outcome.ok)
    if not failed:
        store.note_admitted_keys(cluster_uid, intent.generation, uids, until, alone=True)
    return failed


def note_maker(store: Store, paths: Paths, cluster_uid: str, generation: int) -> None:
    """Record in a shared store, before a create, that the hosts admit this computer's key as long as they exist."""
    if not store.is_file:
        computer, _ = identify_computer(paths)
        store.note_admission(cluster_uid, generation, computer.id, "", 0.0, confirmed=True)


def may_configure(candidate: Candidate, hosts: Sequence[HostAddress]) -> bool:
    """Return whether the sshd of these machines is ours to configure: they are rented, and not adopted.

    Hosts on the loopback are processes of this computer, whose own sshd is none of ours.
    """
    return not candidate.adopted and not any(host.host.startswith("127.") for host in hosts)


def authorized_lines(computers: Sequence[ComputerRecord], now: float) -> tuple[str, ...]:
    """Return the lines of authorized_keys for all computers (sshd(8), AUTHORIZED_KEYS FILE FORMAT).

    Whoever writes them is among them: the next one to write would take it out.
    """
    until = time.strftime("%Y%m%d", time.gmtime(now + VALID_DAYS * 86_400.0))
    return tuple(f'expiry-time="{until}" {one.public_key} orch-computer-{one.uid}' for one in computers)
