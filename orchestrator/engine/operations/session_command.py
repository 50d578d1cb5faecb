"""Run a command on the hosts of a cluster without its records: it ends with this session, and no store has it.

It is what `orch exec` does where a service has the records: the same script in the same environment, as a job of the
hosts, so that an idle cluster stays while it runs.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial

from orchestrator.engine.loop.host_actions import make_env_file
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation.prepared import CommandResult, PreparedCommand
from orchestrator.engine.state.names import INSTALLATION, RUN_ID, UID, host_job_name
from orchestrator.engine.state.planned_trees import find_planned_tree, note_grown_files
from orchestrator.errors import HostError
from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, HostOutcome
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.paths import load_paths
from orchestrator.plan.actions import Action, StartJob, SyncTree
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.host_version import raise_other_version
from orchestrator.plan.ranks import count_hosts, label_rank
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.stopped import describe_exit, make_stopped_outcome
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.tree import Tree
from orchestrator.values import fill_unknowns

GRACE = 10.0  # seconds that the command has to end after Ctrl-C


def run_in_session(
    ready: PreparedCommand, uid: str, installation: str, operations: HostOperations, narrator: Narrator
) -> CommandResult:
    """Run a prepared `exec` on the hosts to its end, and return how it ended. Ctrl-C ends it there.

    Args:
        ready: The command.
        uid: Of its cluster.
        installation: Id of the store that has the cluster.
        operations: On its hosts.
        narrator: Gets the output.

    Raises:
        OrchError: It could not be started.
    """
    folder, plan = _plan(ready, uid, installation)
    if isinstance(plan.ending, GiveUp):
        return CommandResult(step=plan.ending)
    outcomes: tuple[HostOutcome, ...] = ()
    for action in plan.actions:
        match action:
            case SyncTree():
                _perform(
                    ready.cluster, action, narrator, partial(_sync_tree, action, ready.trees, operations, narrator)
                )
            case StartJob():
                with _ended_at_a_failure(operations, folder, action.ranks):
                    _perform(ready.cluster, action, narrator, partial(_start, action, folder, operations))
                    outcomes = _follow(folder, action.ranks, operations, narrator)
            case _:
                continue  # what is recorded elsewhere
    return _judge(outcomes)


@contextmanager
def hold_in_session(
    ready: PreparedCommand, uid: str, installation: str, operations: HostOperations, narrator: Narrator
) -> Generator[str]:
    """Start a prepared `exec` that sends no files, and give the name of its job on the hosts; end it with the block.

    The arguments are those of `run_in_session`. Raises OrchError as it does.
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


def _sync_tree(
    action: SyncTree, trees: Iterable[Tree], operations: HostOperations, narrator: Narrator
) -> tuple[HostOutcome, ...]:
    tree = find_planned_tree(load_paths(), trees, action.source, action.digest)
    sent = operations.sync_tree(
        tree,
        action.destination,
        action.ranks,
        lambda done, total: narrator.progress(f"sync {action.label}", done, total),
    )
    note_grown_files(tree, narrator.note)
    return sent if not all(one.ok for one in sent) else operations.write_mark(action.label, action.digest, action.ranks)


def _start(action: StartJob, folder: str, operations: HostOperations) -> tuple[HostOutcome, ...]:
    return operations.start_job(
        folder, action.script.reveal().encode(), make_env_file(action.environment), action.ranks
    )


@contextmanager
def _ended_at_a_failure(operations: HostOperations, folder: str, ranks: tuple[int, ...]) -> Generator[None]:
    """End the command on all hosts where it cannot be started on one, or this session ends: no record has it."""
    try:
        yield
    except BaseException:
        operations.kill_job(folder, EndedBy.CANCEL, GRACE, ranks)
        raise


def _follow(
    folder: str, ranks: tuple[int, ...], operations: HostOperations, narrator: Narrator
) -> tuple[HostOutcome, ...]:
    """Follow the output to the end, and return the outcomes, the first failed host first."""
    ended: list[HostOutcome] = []
    lock = threading.Lock()

    def note(outcome: HostOutcome) -> None:
        with lock:
            ended.append(outcome)

    followed = operations.follow_job(folder, narrator.output, {}, ranks, on_end=note)
    order = [one.rank for one in ended]
    return tuple(sorted(followed, key=lambda one: order.index(one.rank) if one.rank in order else len(order)))


def _judge(outcomes: tuple[HostOutcome, ...]) -> CommandResult:
    by_rank = tuple(sorted(outcomes, key=lambda one: one.rank))
    failed = [one for one in outcomes if not one.ok]
    if not failed:
        return CommandResult(step=Done(f"the command succeeded on {count_hosts(len(outcomes))}"), outcomes=by_rank)
    if ending := make_stopped_outcome("the command", failed, NO_STEP):
        return CommandResult(step=GiveUp(code=ending.code, status=ending.status, what=ending.what), outcomes=by_rank)
    first = next((one for one in failed if one.status is not None), failed[0])
    status = Exit.HOST_LOST if first.status is None else first.status
    code = "host-lost" if first.status is None else "program-failed"
    how = first.verdict if first.status is None else describe_exit(first.status)
    what = f"the command failed on {label_rank(first.rank)} (rank {first.rank}): {how}"
    why = first.detail if first.status is None else first.last_line
    step = GiveUp(code=code, status=int(status), what=what, why=why, next_step=NextStep.parse(first.remedy))
    return CommandResult(step=step, outcomes=by_rank)
