"""The next step after the end of a run: its newest checkpoint, where there is one, or the same launch again."""

from __future__ import annotations

from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Run
from orchestrator.plan.evidence import find_furthest_step
from orchestrator.plan.observed import Observed


def may_resume(desired: Run, observed: Observed) -> bool:
    """Return whether the run may have a checkpoint: it has a bucket, which is not known to hold none."""
    return desired.checkpoint_uri is not None and observed.saved is not False


def resume_step(desired: Run, observed: Observed, more: str = "") -> NextStep:
    """Return the command that resumes the run, with `more` words about it."""
    step = resume_or_launch(desired.cluster, observed.saved)
    return NextStep(step.command, step.words + more)


def resume_or_launch(cluster: str, saved: bool | None) -> NextStep:
    """Return the command that resumes the last run of a cluster, unless its bucket is known to hold no checkpoint."""
    if saved is False:
        return NextStep(words="the same command starts it again")
    where = "" if saved else ", where the bucket has one"
    return NextStep(f"orch resume {cluster}", f"resumes from the newest checkpoint{where}")


def name_command_again(desired: Run, observed: Observed) -> str:
    """Return, within other words, the command that continues the run."""
    return f"orch resume {desired.cluster}" if may_resume(desired, observed) else "the same launch"


def step_after_failure(desired: Run, observed: Observed, cause: EndCause, remedy: str = "") -> NextStep:
    """Return the next step after the last attempt of a program.

    Args:
        desired: The run.
        observed: Its present state.
        cause: Why the attempt ended.
        remedy: What helps against the failure, where it is known; or "".
    """
    faulty = cause is EndCause.PROGRAM
    again = "the same launch" if desired.create else "the same command"
    if may_resume(desired, observed):
        step = resume_step(desired, observed)
        if remedy:
            return NextStep(step.command, f"{step.words}; before it:\n{remedy}")
        if faulty and observed.saved and find_furthest_step(observed.hosts) is None:
            return NextStep(step.command, f"{step.words}; fix the program first: it failed before its first step")
        return step
    words = "shows its output"
    if remedy:
        words = f"{words}\n{remedy}; then {again}"
    elif faulty:
        words = f"{words}; fix it, then {again}"
    elif desired.checkpoint_uri is not None:
        words = f"{words}; no checkpoint was saved: {again} starts from the beginning"
    return NextStep(f"orch logs {desired.cluster} {desired.job_id}", words)


def step_without_bucket(desired: Run, observed: Observed) -> NextStep:
    """Return the next step after a program could not use its bucket, for a reason that does not pass."""
    if observed.saved:
        return resume_step(desired, observed, "; fix the bucket first")
    again = "the same launch" if desired.create else "the same command"
    command = f"orch logs {desired.cluster} {desired.job_id}"
    return NextStep(command, f"shows its output; fix the bucket, then {again}")


def step_after_loss(desired: Run, observed: Observed) -> NextStep:
    """Return the next step after the loss of hosts that orch may not replace."""
    down = f"or: orch down {desired.cluster}"
    back = f"then: orch resume {desired.cluster}" if may_resume(desired, observed) else ""
    return NextStep(f"orch status {desired.cluster}", ", ".join(filter(None, (back, down))))
