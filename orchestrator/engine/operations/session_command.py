"""Run a command on the hosts of a cluster without its records: it ends with this session, and no store has it.

It is a job of the hosts, so that an idle cluster stays while it runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from orchestrator.engine.loop.host_actions import make_env_file
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.state.names import INSTALLATION, RUN_ID, UID, host_job_name
from orchestrator.errors import HostError
from orchestrator.hosts import EndedBy, HostOutcome
from orchestrator.plan.actions import Action, StartJob
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.host_version import raise_other_version
from orchestrator.plan.ranks import label_rank
from orchestrator.plan.steps import GiveUp
from orchestrator.remote.host_operations import HostOperations
from orchestrator.values import fill_unknowns

GRACE = 10.0  # seconds that the command has to end after Ctrl-C


@contextmanager
def hold_in_session(
    ready: PreparedCommand, uid: str, installation: str, operations: HostOperations, narrator: Narrator
) -> Generator[str]:
    """Start a prepared `exec` that sends no files, and give the name of its job on the hosts; end it with the block.

    Args:
        ready: The command.
        uid: Of its cluster.
        installation: Id of the store that has the cluster.
        operations: On its hosts.
        narrator: Gets what is done.

    Raises:
        OrchError: It could not be started.
    """
    folder, plan = _plan(ready, uid, installation)
    if isinstance(plan.ending, GiveUp):
        raise plan.ending.make_error()
    (action,) = (one for one in plan.actions if isinstance(one, StartJob))
    try:
        _perform(ready.cluster, action, narrator, partial(_start, action, folder, operations))
        yield folder
    finally:
        operations.kill_job(folder, EndedBy.CANCEL, GRACE, action.ranks)


def _plan(ready: PreparedCommand, uid: str, installation: str) -> tuple[str, Plan]:
    """Return the name of the job on the hosts, and the plan of what is done there."""
    assert isinstance(ready.desired, Run)  # noqa: S101  # prepare_exec makes nothing else
    folder = host_job_name(uid, f"session-{secrets.token_hex(4)}")
    desired = fill_unknowns(ready.desired, {UID: uid, RUN_ID: folder, INSTALLATION: installation})
    return folder, make_plan(desired, ready.recorded, ready.facts)


def _perform(cluster: str, action: Action, narrator: Narrator, do: Callable[[], tuple[HostOutcome, ...]]) -> None:
    narrator.starting(action)
    began = time.monotonic()
    failed = tuple(one for one in do() if not one.ok)
    if failed:
        raise_other_version(cluster, failed)
        narrator.failed(action, failed)
        first = failed[0]
        why = first.detail or first.last_line or first.verdict
        raise HostError(f"{label_rank(first.rank)} (rank {first.rank}) failed", why, first.remedy)
    narrator.finished(action, time.monotonic() - began)


def _start(action: StartJob, folder: str, operations: HostOperations) -> tuple[HostOutcome, ...]:
    return operations.start_job(
        folder, action.script.reveal().encode(), make_env_file(action.environment), action.ranks
    )
