"""The end of a record whose machines another installation has taken over.

The labels in the cloud name the other one: nothing of the machines is touched any more. That hosts refuse our commands
proves nothing, for programs on them can write what they compare.
See engine/operations/take_over.py for the other side.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from orchestrator.engine.loop.queue import TAKEN_OVER, end_jobs
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.keys import delete_slice_keys
from orchestrator.errors import TakenOverError
from orchestrator.next_step import NextStep
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.store.lookup import taken_over_error


def refuse_if_taken_over(session: Session) -> None:
    """Raise TakenOverError if the last observation showed another owner of the machines."""
    if holder := session.memory.new_owner:
        raise taken_over_error(session.cluster.name, holder)


@contextmanager
def recording_transfer(session: Session) -> Generator[None]:
    """Close the record of the cluster when the block finds that its machines were taken over."""
    try:
        yield
    except TakenOverError:
        _record_transfer(session, session.memory.new_owner or "by another installation")
        raise


def _record_transfer(session: Session, holder: str) -> None:
    """End the jobs, and close the record. Killed midway, the next command does it again."""
    store, cluster = session.store, session.cluster
    session.disconnect()
    session.keeper.hold()
    reason = f"the machines of '{cluster.name}' were taken over {holder}"
    end_jobs(
        store,
        cluster,
        reason,
        lambda _: NextStep(f"orch events {cluster.name}"),
        waiting=True,
        begun=True,
        code=TAKEN_OVER,
    )
    for intent in store.intents(cluster):
        if intent.state not in FINAL_STATES:
            delete_slice_keys(session.paths, intent.name)
            store.record_transfer(session.keeper.lease, cluster, intent, holder)
