"""Actions on the hosts of a READY slice: files, setup, the program."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from orchestrator.engine.loop.follow import LogFiles
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.names import host_job_name
from orchestrator.errors import HostError, IdentityMismatch, OrchError, SetupError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.plan import limits
from orchestrator.plan.actions import ArmTimer, CollectStacks, FetchMount, RunSetup, StartJob, StopJob, SyncTree
from orchestrator.plan.decide_hosts import TIMER_LABEL
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.observed import Observed
from orchestrator.plan.ranks import count_hosts, describe_failed_hosts, label_rank
from orchestrator.private_files import make_private_folder, open_private
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.marks import SETUP
from orchestrator.render.limits import render_renewal

TIMER_SLACK = 120.0  # seconds after a limit in which a running orch acts first: it lets the program save


def sync_tree(session: Session, action: SyncTree) -> None:
    """Send a tree to its ranks as it was planned."""
    from orchestrator.engine.state.planned_trees import find_planned_tree, note_grown_files

    tree = find_planned_tree(session.paths, session.trees, action.source, action.digest)
    label = f"sync {action.label}"
    outcomes = _operations(session).sync_tree(
        tree,
        action.destination,
        action.ranks,
        lambda done, total: session.narrator.progress(label, done, total),
    )
    _require_success(session, outcomes, label)
    original = next((one for one in session.trees if one.digest == action.digest), tree)  # what is sent may be a copy
    note_grown_files(original, session.narrator.note)
    _mark(session, action.label, action.digest, action.ranks)


def fetch_mount(session: Session, action: FetchMount) -> None:
    """Run the script by which hosts fetch or mount a bucket path."""
    outcomes = _operations(session).run_script(action.script.reveal().encode(), action.ranks)
    _require_success(session, outcomes, f"download {action.source}")
    _mark(session, action.label, action.digest, action.ranks)


def run_setup(session: Session, action: RunSetup) -> None:
    """Run setup as a separate job, so that it survives a lost connection or a restart of orch."""
    hands, folder = _operations(session), host_job_name(session.cluster.uid, action.job)
    script = action.script.reveal().encode()
    _require_success(session, hands.start_job(folder, script, make_env_file(action.environment), action.ranks), "setup")
    assert session.job is not None  # noqa: S101  # setup belongs to a job
    logs = LogFiles(session.paths.logs(session.cluster.uid, session.job.id) / action.job, len(action.ranks))
    try:

        def sink(host: HostAddress, block: bytes) -> None:
            logs.write(host.rank, block)
            session.narrator.output(host, block)

        ended = hands.follow_job(folder, sink, logs.offsets(list(action.ranks)), action.ranks)
    finally:
        logs.close()
    _require_success(session, ended, "setup")
    _mark(session, SETUP, action.digest, action.ranks)


def start_job(session: Session, action: StartJob) -> None:
    """Record that the program may be running, then start it; a crash between the two starts it again harmlessly."""
    assert session.job is not None  # noqa: S101  # only a Run starts jobs, and it has one
    if session.hold is not None and not session.hold.claim(action.attempt):
        return  # the next observation shows that it was taken over
    session.store.start_attempt(session.cluster, session.job.id, lease=session.keeper.lease)
    script = action.script.reveal().encode()
    folder = host_job_name(session.cluster.uid, action.job)
    outcomes = _operations(session).start_job(folder, script, make_env_file(action.environment), action.ranks)
    _require_success(session, outcomes, "start")


def arm_timer(session: Session, action: ArmTimer) -> None:
    """Install the limits timer; when money or hours were already spent, with the remaining deadline."""
    _require_success(
        session, _operations(session).run_script(action.script.reveal().encode(), action.ranks), "set the timer"
    )
    left = _seconds_left(session)
    if left is not None:
        renewal = render_renewal(left + TIMER_SLACK).encode()
        _require_success(session, _operations(session).run_script(renewal, action.ranks), "set the timer")
    _mark(session, TIMER_LABEL, action.digest, action.ranks)
    _record_limits(session)


def _record_limits(session: Session) -> None:
    """Record when hosts end by themselves: `orch status` then knows that its last state may be of the past."""
    desired = session.desired
    if not isinstance(desired, Run) or desired.timer is None:
        return
    found = {"max_hours": desired.limits.hours, "idle_minutes": desired.timer.idle_minutes}
    limits = {name: float(value) for name, value in found.items() if value is not None}
    if json.loads(session.cluster.limits) != limits:
        session.store.set_limits(session.cluster, limits)


def _seconds_left(session: Session) -> float | None:
    """Return the time until a limit of the cluster is reached, by what its slices and its run have cost so far."""
    if not isinstance(session.desired, Run):
        return None
    before = session.memory.spent_before[1]
    spent = Observed(now=session.now(), intents=session.store.intents(session.cluster), spent_before=before)
    at = limits.next_limit_at(session.desired, spent)
    return None if at is None else at - spent.now


def collect_stacks(session: Session, action: CollectStacks) -> None:
    """Write the stacks of all ranks beside the logs. What a host does not give is noted, not waited for."""
    job = session.job
    assert job is not None  # noqa: S101  # only a Run has a program with stacks
    session.memory.stacks_of = action.job
    report = _operations(session).collect_stacks(host_job_name(session.cluster.uid, action.job), action.ranks)
    folder = session.paths.logs(session.cluster.uid, job.id) / f"attempt-{int(action.job.rpartition('-a')[2]):04d}"
    make_private_folder(folder)
    for rank, content in report.stacks.items():
        with open(folder / f"{rank}.stacks", "wb", opener=open_private) as file:
            file.write(content)
    session.narrator.note(f"stacks of {count_hosts(len(report.stacks))} are in {folder}")
    for outcome in report.failed:
        session.narrator.note(f"no stacks of rank {outcome.rank}: {outcome.last_line or outcome.verdict}")


def stop_job(session: Session, action: StopJob) -> None:
    """Stop the program on its ranks, with the action's grace period."""
    folder = host_job_name(session.cluster.uid, action.job)
    _require_success(
        session, _operations(session).kill_job(folder, action.ended_by, action.grace, action.ranks), "stop"
    )


def _operations(session: Session) -> HostOperations:
    """Return the operations on the hosts that were observed last."""
    return session.host_operations(session.hosts)


def outcomes_of(error: OrchError) -> tuple[HostOutcome, ...]:
    """Return the per-host results that an error of `_require_success` carries."""
    return error.outcomes if isinstance(error, _HostsFailed) else ()


class _HostsFailed(OrchError):
    """Some hosts failed a step; keeps the result of each."""

    def __init__(self, what: str, why: str, next_step: str, outcomes: tuple[HostOutcome, ...]) -> None:
        super().__init__(what, why, next_step)
        self.outcomes = outcomes


class _StepFailed(_HostsFailed, SetupError):
    pass


class _StepLost(_HostsFailed, HostError):
    pass


class _StepMistaken(_HostsFailed, IdentityMismatch):
    pass


def _require_success(session: Session, outcomes: tuple[HostOutcome, ...], step: str) -> None:
    """Raise an error unless every host passed. A command's own failure outweighs a lost connection."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        return
    own = [outcome for outcome in failed if outcome.failure is None]
    wrong = [outcome for outcome in failed if outcome.failure is Failure.IDENTITY]
    first = (own or wrong or failed)[0]
    what = f"{step} failed on {describe_failed_hosts(outcomes)}"
    kind = _StepFailed if own else _StepMistaken if wrong else _StepLost
    why = first.last_line or first.detail
    if len(outcomes) > 1 and why:
        why = f"{label_rank(first.rank)}: {why}"
    inspect = f"orch ssh {session.cluster.name} {first.rank}   to inspect the host"
    if step == "setup":
        inspect = f"orch logs {session.cluster.name} --setup   shows its output"
    next_step = "\n".join(filter(None, (first.remedy, inspect))) if own else first.remedy or inspect
    raise kind(what, why, next_step, outcomes)


def _mark(session: Session, label: str, digest: str, ranks: tuple[int, ...]) -> None:
    _require_success(session, _operations(session).write_mark(label, digest, ranks), f"note {label}")


def make_env_file(environment: HostEnvironment) -> Callable[[HostAddress], bytes]:
    """Return the file that a job's wrapper sources: one export line per variable; sent over stdin, mode 600."""

    def content(host: HostAddress) -> bytes:
        lines = (f"export {name}={shlex.quote(value.reveal())}\n" for name, value in environment.for_rank(host.rank))
        return "".join(lines).encode()

    return content
