"""Records, once for each attempt, that hosts of a running program or their provider do not answer: people hear of it.

Most silences of hosts end sooner, since `decide` replaces the hosts. What lasts is a network of ours that failed, or a
cloud that does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.engine.loop.session import Session
from orchestrator.notifications.conditions import SILENT_SECONDS, describe_silence
from orchestrator.plan.ranks import format_hosts


def record_silent_hosts(session: Session, failures: Mapping[int, str]) -> None:
    """Record that hosts have been silent for long.

    Args:
        session: The session, whose memory has when the silence began.
        failures: Why each silent host could not be reached, by rank.
    """
    if failures:
        ranks = sorted(failures)
        _record(session, session.memory.contact_since, format_hosts(ranks), failures[ranks[0]])


def record_silent_provider(session: Session, provider: str, why: str) -> None:
    """Record that the provider of the machines has been silent for long, or gives no clear answer."""
    _record(session, session.memory.unclear_since, f"the provider {provider}", why)


def _record(session: Session, since: float | None, who: str, why: str) -> None:
    if session.job is None or since is None or session.now() - since < SILENT_SECONDS:
        return
    job = session.store.job(session.cluster, session.job.id)
    found = describe_silence(job, session.cluster.name, who, session.now() - since, why)
    if not job.started or session.memory.silence_recorded == found.cause:
        return
    session.memory.silence_recorded = found.cause
    ended = session.store.ended_attempts(session.cluster, job.id)
    if all(one.attempt != job.attempt for one in ended):  # else its loss is on record
        session.store.record_condition(session.cluster.qualified_name, found.what, found.cause)
