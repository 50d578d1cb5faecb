"""Let the other computers of a team log in to the hosts: a key each, which runs out unless it is renewed.

A private key never leaves its computer. Each computer records its public key in the store when it opens it; whoever
drives a cluster writes all of them to its hosts, once a day and when one has joined.
"""

from __future__ import annotations

import time

from orchestrator.engine.loop.session import Session
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Contact, IntentState, Observed
from orchestrator.render.templates import render_template
from orchestrator.slices import Owned
from orchestrator.store.records import ComputerRecord

VALID_DAYS = 14.0  # a computer that is removed from the team can log in for so long; see docs/team.md


def admit_computers(session: Session, observed: Observed) -> None:
    """Write the keys of the team's computers to all hosts, unless that was done today."""
    intent = observed.current
    if not isinstance(session.desired, Run) or intent is None or intent.state is not IntentState.ACCEPTED:
        return
    if isinstance(intent.candidate.market, Owned):  # their owner decides who may log in
        return
    if not observed.hosts or any(host.contact is not Contact.OK for host in observed.hosts):
        return
    lines = authorized_lines(session.store.computers(), session.now())
    if lines == session.memory.admitted.get(intent.name, ()):
        return
    script = render_template("remote/admit.sh.j2", lines=lines)
    ranks = [host.rank for host in observed.hosts]
    outcomes = session.host_operations(session.hosts).run_script(script.encode(), ranks)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    session.memory.admitted[intent.name] = lines  # also after a failure: it is reported once, and tried again tomorrow
    if failed:
        why = failed[0].last_line or failed[0].verdict
        session.narrator.note(f"the team's other computers could not be let in on rank {failed[0].rank}: {why}")


def authorized_lines(computers: tuple[ComputerRecord, ...], now: float) -> tuple[str, ...]:
    """Return the lines of authorized_keys for all computers (sshd(8), AUTHORIZED_KEYS FILE FORMAT).

    Whoever writes them is among them: the next one to write would take it out.
    """
    until = time.strftime("%Y%m%d", time.gmtime(now + VALID_DAYS * 86_400.0))
    return tuple(f'expiry-time="{until}" {one.public_key} orch-computer-{one.uid}' for one in computers)
