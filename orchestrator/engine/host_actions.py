"""Actions on the hosts of a READY slice: files, setup, the program."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from orchestrator.engine.follow import LogFiles
from orchestrator.engine.identity import host_job
from orchestrator.engine.session import Session
from orchestrator.engine.snapshots import is_snapshot
from orchestrator.errors import HostError, IdentityMismatch, OrchError, SetupError, UserError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.plan import limits
from orchestrator.plan.actions import ArmTimer, CollectStacks, FetchMount, RunSetup, StartJob, StopJob, SyncTree
from orchestrator.plan.decide_hosts import TIMER
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.observed import Observed
from orchestrator.remote.hands import Hands
from orchestrator.remote.marks import SETUP
from orchestrator.render.limits import render_renewal

TIMER_SLACK = 120.0  # seconds after a limit in which a living orch acts first: it lets the program save


def sync_tree(session: Session, action: SyncTree) -> None:
    from orchestrator.remote.tree import read_snapshot, read_tree

    read = read_snapshot if is_snapshot(session.paths, action.source) else read_tree
    tree = read(Path(action.source))
    if tree.digest != action.digest:
        raise UserError(
            f"{action.source} changed while it was being launched",
            "what was planned is not what is there now",
            "run the same command again",
        )
    label = f"sync {action.label}"
    outcomes = _hands(session).sync(
        tree,
        action.destination,
        action.ranks,
        lambda done, total: session.narrator.progress(label, done, total),
    )
    _check(session, outcomes, label)
    _mark(session, action.label, action.digest, action.ranks)


def fetch_mount(session: Session, action: FetchMount) -> None:
    outcomes = _hands(session).script(action.script.reveal().encode(), action.ranks)
    _check(session, outcomes, f"bring {action.source}")
    _mark(session, action.label, action.digest, action.ranks)


def run_setup(session: Session, action: RunSetup) -> None:
    """Run setup as a job of its own, so that a lost connection, or a new orch, goes on with it."""
    hands, folder = _hands(session), host_job(session.cluster.uid, action.job)
    script = action.script.reveal().encode()
    _check(session, hands.start(folder, script, _env_file(action.environment), action.ranks), "setup")
    assert session.job is not None  # noqa: S101  # setup belongs to a job
    logs = LogFiles(session.paths.logs(session.cluster.uid, session.job.id) / "setup")
    try:

        def sink(host: HostAddress, block: bytes) -> None:
            logs.write(host.rank, block)
            session.narrator.output(host, block)

        ended = hands.follow(folder, sink, logs.offsets(list(action.ranks)), action.ranks)
    finally:
        logs.close()
    _check(session, ended, "setup")
    _mark(session, SETUP, action.digest, action.ranks)


def start_job(session: Session, action: StartJob) -> None:
    """Note that it may be running, then start it: a crash between the two starts it again, harmlessly."""
    assert session.job is not None  # noqa: S101  # only a Run starts jobs, and it has one
    session.store.start_attempt(session.cluster, session.job.id, lease=session.keeper.lease)
    script = action.script.reveal().encode()
    folder = host_job(session.cluster.uid, action.job)
    outcomes = _hands(session).start(folder, script, _env_file(action.environment), action.ranks)
    _check(session, outcomes, "start")


def arm_timer(session: Session, action: ArmTimer) -> None:
    """Install it; where money or hours were spent already, with the deadline that is left."""
    _check(session, _hands(session).script(action.script.reveal().encode(), action.ranks), "set the timer")
    deadline = _deadline(session)
    if deadline is not None:
        renewal = render_renewal(deadline + TIMER_SLACK).encode()
        _check(session, _hands(session).script(renewal, action.ranks), "set the timer")
    _mark(session, TIMER, action.digest, action.ranks)


def _deadline(session: Session) -> float | None:
    """When a limit of the cluster will be reached (epoch seconds), by what its slices have cost so far."""
    if not isinstance(session.desired, Run):
        return None
    spent = Observed(now=session.now(), intents=session.store.intents(session.cluster))
    return limits.next_look(session.desired, spent)


def collect_stacks(session: Session, action: CollectStacks) -> None:
    """Into files beside the logs. What a host does not give is noted, not waited for."""
    job = session.job
    assert job is not None  # noqa: S101  # only a Run's program is looked into
    session.memory.stacks_of = action.job
    look = _hands(session).stacks(host_job(session.cluster.uid, action.job), action.ranks)
    folder = session.paths.logs(session.cluster.uid, job.id) / f"attempt-{int(action.job.rpartition('-a')[2]):04d}"
    folder.mkdir(parents=True, exist_ok=True)
    for rank, content in look.stacks.items():
        (folder / f"{rank}.stacks").write_bytes(content)
    session.narrator.note(f"stacks of {len(look.stacks)} host(s) are in {folder}")
    for outcome in look.failed:
        session.narrator.note(f"no stacks of rank {outcome.rank}: {outcome.last_line or outcome.verdict}")


def stop_job(session: Session, action: StopJob) -> None:
    folder = host_job(session.cluster.uid, action.job)
    _check(session, _hands(session).kill(folder, action.grace, action.ranks), "stop")


def _hands(session: Session) -> Hands:
    """For the hosts of the last look."""
    return session.hands(session.hosts)


def outcomes_of(error: OrchError) -> tuple[HostOutcome, ...]:
    """The per-host results that an error of `_check` carries."""
    return error.outcomes if isinstance(error, _HostsFailed) else ()


class _HostsFailed(OrchError):
    """Some hosts failed a step; keeps what each of them said."""

    def __init__(self, what: str, why: str, next_step: str, outcomes: tuple[HostOutcome, ...]) -> None:
        super().__init__(what, why, next_step)
        self.outcomes = outcomes


class _StepFailed(_HostsFailed, SetupError):
    pass


class _StepLost(_HostsFailed, HostError):
    pass


class _StepMistaken(_HostsFailed, IdentityMismatch):
    pass


def _check(session: Session, outcomes: tuple[HostOutcome, ...], step: str) -> None:
    """Every host must have passed. A command's own failure outweighs a lost connection."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        return
    own = [outcome for outcome in failed if outcome.failure is None]
    wrong = [outcome for outcome in failed if outcome.failure is Failure.IDENTITY]
    first = (own or wrong or failed)[0]
    name = "head" if first.rank == 0 else f"worker{first.rank}"
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    what = f"{step} failed on {name} (rank {first.rank}): {first.verdict}{others}"
    kind = _StepFailed if own else _StepMistaken if wrong else _StepLost
    why = first.last_line or first.detail
    raise kind(what, why, f"orch ssh {session.cluster.name} {first.rank}   to look around", outcomes)


def _mark(session: Session, label: str, digest: str, ranks: tuple[int, ...]) -> None:
    _check(session, _hands(session).mark(label, digest, ranks), f"note {label}")


def _env_file(environment: HostEnvironment) -> Callable[[HostAddress], bytes]:
    """The file a job's wrapper sources: one export line per variable; travels over stdin, mode 600."""

    def content(host: HostAddress) -> bytes:
        lines = (f"export {name}={shlex.quote(value.reveal())}\n" for name, value in environment.of(host.rank))
        return "".join(lines).encode()

    return content
