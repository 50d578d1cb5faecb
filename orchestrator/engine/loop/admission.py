"""Let the other computers of a team log in to the hosts: a key each, which runs out unless it is renewed.

A private key never leaves its computer. Each computer records its public key in the store when it opens it; whoever
drives a cluster writes all of them to its hosts, once a day and when one has joined or was removed. Members of a
service have theirs beside them for some hours (store/access_records.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.engine.loop.addresses import renew_addresses
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.keys import identify_computer
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.remote.host_operations import HostOperations
from orchestrator.render.admission import render_admission
from orchestrator.slices import Owned
from orchestrator.store.access_records import AccessGrant, may_enter
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store
from orchestrator.store.team_records import ComputerRecord
from orchestrator.store.token_parents import KnownEntries

VALID_DAYS = 14.0  # a computer that is removed from the team can log in for so long; see docs/team.md
# What a member's key may not do: forward an agent, whose keys everyone with the host's account could use (sshd(8)).
MEMBER_OPTIONS = "restrict,port-forwarding,pty"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """Whose keys belong on the hosts of a slice, beside its maker's.

    Attributes:
        team: The computers of the team.
        members: What members of a service were granted.
    """

    team: tuple[ComputerRecord, ...]
    members: tuple[AccessGrant, ...]

    def lines(self, now: float) -> tuple[str, ...]:
        """Return the lines of authorized_keys, those of the team first."""
        return (*authorized_lines(self.team, now), *member_lines(self.members))

    def untils(self, now: float) -> dict[str, float]:
        """Return until when each counts, by uid."""
        renewed = dict.fromkeys((one.uid for one in self.team), now + VALID_DAYS * 86_400.0)
        return renewed | {one.uid: one.until for one in self.members}


def admit_computers(session: Session, observed: Observed) -> None:
    """Write the keys of the team's computers to all hosts, unless that was done today."""
    intent = observed.current
    if not isinstance(session.desired, Run) or intent is None or not admits(intent):
        return
    if not observed.hosts or any(host.contact is not Contact.OK for host in observed.hosts):
        return
    keys = list_admitted(session.store, session.paths, session.cluster, intent, session.now())
    lines = keys.lines(session.now())
    before = session.memory.admitted.get(intent.name)
    if lines == before:
        return
    if before is not None:  # not the first time in this command, which asked before contact
        renew_addresses(session, intent)
    failed = write_keys(
        session.store, session.cluster.uid, intent, session.host_operations(session.hosts), keys, session.now()
    )
    session.memory.admitted[intent.name] = lines  # also after a failure: it is reported once, and tried again tomorrow
    if failed:
        why = failed[0].last_line or failed[0].verdict
        session.narrator.note(f"the team's other computers could not be let in on rank {failed[0].rank}: {why}")


def has_team_changed(session: Session) -> bool:
    """Return whether who may log in is another one since this process wrote the keys. Two reads of the store."""
    written = session.memory.admitted
    if not written:
        return False
    last, now = written[next(reversed(written))], session.now()
    members = member_lines(list_members(session.store, session.cluster, now))
    if members != tuple(line for line in last if line.startswith(MEMBER_OPTIONS)):
        return True
    if session.store.is_file:
        return False
    return authorized_lines(session.store.computers(), now) != last[: len(last) - len(members)]


def admits(intent: Intent) -> bool:
    """Return whether keys are written to the hosts of a slice: not to people's own machines."""
    return intent.state is IntentState.ACCEPTED and not isinstance(intent.candidate.market, Owned)


def list_admitted(store: Store, paths: Paths, cluster: ClusterRecord, intent: Intent, now: float) -> HostKeys:
    """Return whose keys belong on the hosts of a slice: the team's computers, and members to whom it was granted.

    A store of this computer alone has no team: its machines admit its key from the create on. Those that it took over
    may not.
    """
    team, members = store.computers(), list_members(store, cluster, now)
    if store.is_file and store.slice_owner(intent.token) is not None:
        computer, key = identify_computer(paths)
        own = ComputerRecord(uid=computer.id, host=computer.host, member=store.user, public_key=key, joined=0.0)
        team = (*(one for one in team if one.uid != own.uid), own)
    return HostKeys(team=team, members=members)


def list_members(store: Store, cluster: ClusterRecord, now: float) -> tuple[AccessGrant, ...]:
    """Return what members were granted on a cluster and still counts; of one key the grant that lasts longest."""
    granted = [one for one in store.access_grants() if one.cluster_uid == cluster.uid]
    if not granted:
        return ()
    entries, owner = KnownEntries.read(store), cluster.owner
    longest: dict[str, AccessGrant] = {}
    for one in sorted(granted, key=lambda grant: grant.until):
        if may_enter(one, owner, entries, now):
            longest[one.public_key] = one
    return tuple(sorted(longest.values(), key=lambda grant: grant.uid))


def write_keys(
    store: Store,
    cluster_uid: str,
    intent: Intent,
    operations: HostOperations,
    keys: HostKeys,
    now: float,
) -> tuple[HostOutcome, ...]:
    """Make these the only ones whose keys are on the hosts, but for the maker. Return the failed hosts.

    It is recorded before a key is sent, and again when all hosts have dropped the keys of all others.
    """
    lines, untils = keys.lines(now), keys.untils(now)
    written = any(one.until and not one.address for one in store.admissions(cluster_uid, intent.generation))
    if not lines and not written and not store.all_computers():  # a store that is not shared
        return ()
    store.note_admitted_keys(cluster_uid, intent.generation, untils, alone=False)
    script = render_admission(lines, install=may_configure(operations.hosts))
    outcomes = operations.run_script(script.encode(), [host.rank for host in operations.hosts])
    failed = tuple(outcome for outcome in outcomes if not outcome.ok)
    if not failed:
        store.note_admitted_keys(cluster_uid, intent.generation, untils, alone=True)
    return failed


def note_maker(store: Store, paths: Paths, cluster_uid: str, generation: int) -> None:
    """Record in a shared store, before a create, that the hosts admit this computer's key as long as they exist."""
    if not store.is_file:
        computer, _ = identify_computer(paths)
        store.note_admission(cluster_uid, generation, computer.id, "", 0.0, confirmed=True)


def may_configure(hosts: Sequence[HostAddress]) -> bool:
    """Return whether the sshd of these machines is ours to configure; that of hosts on this computer is not."""
    return not any(host.host.startswith("127.") for host in hosts)


def authorized_lines(computers: Sequence[ComputerRecord], now: float) -> tuple[str, ...]:
    """Return the lines of authorized_keys for all computers (sshd(8), AUTHORIZED_KEYS FILE FORMAT).

    Whoever writes them is among them: the next one to write would take it out.
    """
    until = time.strftime("%Y%m%d", time.gmtime(now + VALID_DAYS * 86_400.0))
    return tuple(f'expiry-time="{until}" {one.public_key} orch-computer-{one.uid}' for one in computers)


def member_lines(members: Sequence[AccessGrant]) -> tuple[str, ...]:
    """Return the lines of members; the host replaces `@` and epoch seconds by its local time, which sshd compares."""
    return tuple(
        f'{MEMBER_OPTIONS},expiry-time="@{int(one.until)}" {one.public_key} orch-computer-{one.uid}' for one in members
    )
