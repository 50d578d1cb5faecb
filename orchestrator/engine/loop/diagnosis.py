"""Ask the provider what it reports of hosts that do not answer SSH: status checks, a console, announced maintenance."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.names import slice_token
from orchestrator.errors import OrchError
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.plan.observed import Contact, HostView, Intent
from orchestrator.plan.ranks import format_hosts
from orchestrator.providers.protocol import DiagnosesHosts

ASK_AFTER = 30.0  # seconds without contact: most hosts answer within that time of being reported as running
ASK_EVERY = 60.0
_LONGEST = 300  # characters of what a provider reports of one host
_MOST = 4  # hosts that are asked about: a slice whose hosts are all silent has one cause


def add_diagnosis(session: Session, intent: Intent, views: tuple[HostView, ...]) -> tuple[HostView, ...]:
    """Return the views with the provider's words about silent hosts behind the reason of their silence."""
    silent = [one.rank for one in views if one.contact is Contact.DOWN][:_MOST]
    if not silent:
        session.memory.diagnosis = {}
        return views
    _ask(session, intent, silent)
    known = session.memory.diagnosis
    return tuple(
        replace(one, silence="; ".join(filter(None, (one.silence, known[one.rank])))) if one.rank in known else one
        for one in views
    )


def _ask(session: Session, intent: Intent, ranks: list[int]) -> None:
    memory, now = session.memory, session.now()
    since = memory.contact_since if memory.contact_since is not None else now
    if now - since < ASK_AFTER or now - memory.diagnosed_at < ASK_EVERY:
        return
    memory.diagnosed_at = now
    try:
        provider = session.provider_of(intent)
        if not isinstance(provider, DiagnosesHosts):
            return
        found = provider.diagnose_hosts(intent.name, slice_token(session.cluster, intent), ranks)
    except OrchError:
        return  # it only explains; what is decided follows from the observation
    new = {rank: escape_controls(to_one_line(words, _LONGEST)) for rank, words in found.items() if words}
    for rank, words in new.items():
        if memory.diagnosis.get(rank) != words:
            session.narrator.note(f"{format_hosts([rank])} of '{session.cluster.name}' does not answer; {words}")
    memory.diagnosis = new
