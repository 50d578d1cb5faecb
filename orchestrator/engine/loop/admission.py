"""Let keys log in to the hosts besides the one that made them: those of members, and ours where another made them.

A private key never leaves its computer. Members of a service ask for some hours (store/access_records.py), and whoever
drives a cluster writes their public keys to its hosts. Ours is written to machines that were taken over, or that a
command entered with another key: after the first one was lost, for instance.
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
from orchestrator.store.token_parents import KnownEntries

VALID_DAYS = 14.0  # of our key on machines that another key made; renewed by whoever drives the cluster
# What a member's key may not do: forward an agent, whose keys everyone with the host's account could use (sshd(8)).
MEMBER_OPTIONS = "restrict,port-forwarding,pty"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """Whose keys belong on the hosts of a slice, beside its maker's.

    Attributes:
        members: What members of a service were granted.
        computer: The id of this computer where another key made the machines; "" where its own did.
        public_key: Its key.
    """

    members: tuple[AccessGrant, ...]
    computer: str = ""
    public_key: str = ""

    def lines(self, now: float) -> tuple[str, ...]:
        """Return the lines of authorized_keys (sshd(8), AUTHORIZED_KEYS FILE FORMAT), our own first.

        Whoever writes them is among them: the next one to write would take it out.
        """
        if not self.computer:
            return member_lines(self.members)
        until = time.strftime("%Y%m%d", time.gmtime(now + VALID_DAYS * 86_400.0))
        own = f'expiry-time="{until}" {self.public_key} orch-computer-{self.computer}'
        return (own, *member_lines(self.members))

    def untils(self, now: float) -> dict[str, float]:
        """Return until when each counts, by uid."""
        own = {self.computer: now + VALID_DAYS * 86_400.0} if self.computer else {}
        return own | {one.uid: one.until for one in self.members}


def admit_keys(session: Session, observed: Observed) -> None:
    """Write the keys that belong on the hosts to all of them, unless that was done today."""
    intent = observed.current
    if not isinstance(session.desired, Run) or intent is None or not admits(intent):
        return
    if not observed.hosts or any(host.contact is not Contact.OK for host in observed.hosts):
        return
    given = session.services.identity is not None
    keys = list_admitted(session.store, session.paths, session.cluster, intent, session.now(), key_given=given)
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
        session.narrator.note(f"keys could not be written to rank {failed[0].rank}: {why}")


def have_members_changed(session: Session) -> bool:
    """Return whether who may log in is another one since this process wrote the keys: one read of the store."""
    written = session.memory.admitted
    if not written:
        return False
    last, now = written[next(reversed(written))], session.now()
    members = member_lines(list_members(session.store, session.cluster, now))
    return members != tuple(line for line in last if line.startswith(MEMBER_OPTIONS))


def admits(intent: Intent) -> bool:
    """Return whether keys are written to the hosts of a slice: not to people's own machines."""
    return intent.state is IntentState.ACCEPTED and not isinstance(intent.candidate.market, Owned)


def list_admitted(
    store: Store, paths: Paths, cluster: ClusterRecord, intent: Intent, now: float, *, key_given: bool = False
) -> HostKeys:
    """Return whose keys belong on the hosts of a slice: of members, and ours where another key made it.

    Args:
        store: Open.
        paths: Have the key of this computer.
        cluster: Whose slice it is.
        intent: Of the slice.
        now: Epoch seconds.
        key_given: Whether the hosts were entered with another key than this computer's.
    """
    members = list_members(store, cluster, now)
    rows = store.admissions(cluster.uid, intent.generation)
    computer, key = identify_computer(paths)
    is_written = any(not one.address and one.computer == computer.id for one in rows)
    if not (key_given or is_written or store.slice_owner(intent.token) is not None):
        return HostKeys(members=members)
    return HostKeys(members=members, computer=computer.id, public_key=key)


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
    if not lines and not written:
        return ()
    store.note_admitted_keys(cluster_uid, intent.generation, untils, alone=False)
    script = render_admission(lines, install=may_configure(operations.hosts))
    outcomes = operations.run_script(script.encode(), [host.rank for host in operations.hosts])
    failed = tuple(outcome for outcome in outcomes if not outcome.ok)
    if not failed:
        store.note_admitted_keys(cluster_uid, intent.generation, untils, alone=True)
    return failed


def may_configure(hosts: Sequence[HostAddress]) -> bool:
    """Return whether the sshd of these machines is ours to configure; that of hosts on this computer is not."""
    return not any(host.host.startswith("127.") for host in hosts)


def member_lines(members: Sequence[AccessGrant]) -> tuple[str, ...]:
    """Return the lines of members; the host replaces `@` and epoch seconds by its local time, which sshd compares."""
    return tuple(
        f'{MEMBER_OPTIONS},expiry-time="@{int(one.until)}" {one.public_key} orch-computer-{one.uid}' for one in members
    )
