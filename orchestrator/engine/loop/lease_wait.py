"""Waiting for the lease of a cluster before a command works on it, and what is said when the wait was in vain."""

from __future__ import annotations

from math import inf

from orchestrator.engine.loop.queue import is_driven_elsewhere
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.state.lease import PATIENCE, LeaseKeeper
from orchestrator.errors import ConflictError, RecordedRequestError
from orchestrator.plan.desired import Cancel, Down
from orchestrator.store.store import Store


def hold_lease(keeper: LeaseKeeper, store: Store, ready: PreparedCommand, *, recorded: bool) -> None:
    """Take the lease of a command's cluster.

    Args:
        keeper: Takes it.
        store: The store.
        ready: The command.
        recorded: Whether its request is on record already, where its verb records one.

    Raises:
        RecordedRequestError: Another command holds it for too long, and the request will be carried out all the same.
        ConflictError: The same, and nothing is on record.
    """
    try:
        keeper.hold(inf if is_driven_elsewhere(store, ready) else PATIENCE)
    except ConflictError as error:
        if not recorded or not isinstance(ready.desired, Down | Cancel):
            raise
        raise _recorded_request(ready.cluster, ready.desired, error) from error


def _recorded_request(cluster: str, desired: Down | Cancel, error: ConflictError) -> RecordedRequestError:
    """Return the error for a request that drive.py has recorded before the lease was to be held."""
    if isinstance(desired, Down):
        what, who = f"the teardown of '{cluster}'", "an engine"
    else:
        what, who = f"the cancel of job {desired.folder.partition('-')[0]} of '{cluster}'", "whoever drives the job"
    return RecordedRequestError(
        f"{what} is recorded, and not carried out yet",
        f"{error.what}; {who} carries it out after that",
        f"orch status {cluster}   shows it; the same command again waits for it",
    )
