"""Actions on the hosts of a READY slice: files, setup, the program."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from orchestrator.engine.follow import LogFiles
from orchestrator.engine.identity import host_job
from orchestrator.engine.marks import SETUP, write_mark
from orchestrator.engine.session import Session
from orchestrator.errors import HostError, IdentityMismatch, OrchError, SetupError, UserError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.plan.actions import FetchMount, RunSetup, StartJob, StopJob, SyncTree
from orchestrator.plan.environment import HostEnvironment


def sync_tree(session: Session, action: SyncTree) -> None:
    from orchestrator.remote.sync import sync
    from orchestrator.remote.tree import read_tree

    tree = read_tree(Path(action.source))
    if tree.digest != action.digest:
        raise UserError(
            f"{action.source} changed while it was being launched",
            "what was planned is not what is there now",
            "run the same command again",
        )
    label = f"sync {action.label}"
    result = sync(
        session.fleet(session.hosts),
        tree,
        action.destination,
        ranks=action.ranks,
        on_progress=lambda done, total: session.narrator.progress(label, done, total),
    )
    _check(session, result.result.outcomes, label)
    _mark(session, action.label, action.digest, action.ranks)


def fetch_mount(session: Session, action: FetchMount) -> None:
    script = action.script.reveal().encode()
    result = session.fleet(session.hosts).run("bash -s", ranks=action.ranks, stdin=script)
    _check(session, result.outcomes, f"copy {action.source}")
    _mark(session, action.label, action.digest, action.ranks)


def run_setup(session: Session, action: RunSetup) -> None:
    """Run setup as a job of its own, so that a lost connection, or a new orch, goes on with it."""
    from orchestrator.remote.jobs import follow, start

    fleet, folder = session.fleet(session.hosts), host_job(session.cluster.uid, action.job)
    script = action.script.reveal().encode()
    started = start(fleet, folder, script, env=_env_file(action.environment), ranks=action.ranks)
    _check(session, started.outcomes, "setup")
    assert session.job is not None  # noqa: S101  # setup belongs to a job
    logs = LogFiles(session.paths.logs(session.cluster.uid, session.job.id) / "setup")
    try:

        def sink(host: HostAddress, block: bytes) -> None:
            logs.write(host.rank, block)
            session.narrator.output(host, block)

        ended = follow(fleet, folder, sink, offsets=logs.offsets(list(action.ranks)), ranks=action.ranks)
    finally:
        logs.close()
    _check(session, ended.outcomes, "setup")
    _mark(session, SETUP, action.digest, action.ranks)


def start_job(session: Session, action: StartJob) -> None:
    """Note that it may be running, then start it: a crash between the two starts it again, harmlessly."""
    from orchestrator.remote.jobs import start

    assert session.job is not None  # noqa: S101  # only a Run starts jobs, and it has one
    session.store.start_attempt(session.cluster, session.job.id)
    script = action.script.reveal().encode()
    fleet = session.fleet(session.hosts)
    folder = host_job(session.cluster.uid, action.job)
    result = start(fleet, folder, script, env=_env_file(action.environment), ranks=action.ranks)
    _check(session, result.outcomes, "start")


def stop_job(session: Session, action: StopJob) -> None:
    from orchestrator.remote.jobs import kill

    folder = host_job(session.cluster.uid, action.job)
    result = kill(session.fleet(session.hosts), folder, grace=action.grace, ranks=action.ranks)
    _check(session, result.outcomes, "stop")


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
    result = session.fleet(session.hosts).run(write_mark(label, digest), ranks=ranks)
    _check(session, result.outcomes, f"note {label}")


def _env_file(environment: HostEnvironment) -> Callable[[HostAddress], bytes]:
    """The file a job's wrapper sources: one export line per variable; travels over stdin, mode 600."""

    def content(host: HostAddress) -> bytes:
        lines = (f"export {name}={shlex.quote(value.reveal())}\n" for name, value in environment.of(host.rank))
        return "".join(lines).encode()

    return content
