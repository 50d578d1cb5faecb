"""Decisions about machines that the provider takes back at a time it has said, such as those of a capacity block.

Before that time the program is told to save and stop, as at a limit. It is no loss: nothing is charged for it. Where
the user named other places, the run goes on there; else it is over.
"""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan import recovery
from orchestrator.plan.actions import Conclude, EndAttempt, ForgetSlice, NextAttempt, StopJob
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import chosen
from orchestrator.plan.decide_slice import end_for, wait_slice
from orchestrator.plan.desired import Run
from orchestrator.plan.evidence import furthest
from orchestrator.plan.facts import Facts
from orchestrator.plan.limits import LIMIT, moment
from orchestrator.plan.observed import Contact, IntentState, Observed
from orchestrator.plan.ranks import host_words
from orchestrator.plan.steps import Step, Wait, WaitFor
from orchestrator.slices import CapacityBlock, SliceState


def over(desired: Run, observed: Observed) -> str | None:
    """Why the time of the machines is up, in words; None while there is time, or nobody says when it ends."""
    verdict, intent, ends = observed.condemned, observed.current, observed.slice_ends
    if verdict is not None:  # any other verdict is executed first
        return verdict.why if verdict.cause is EndCause.EXPIRED else None
    if intent is None or intent.state is not IntentState.ACCEPTED or ends is None:
        return None
    if observed.now < ends - desired.budgets.save_before or _failed_by_itself(desired, observed):
        return None
    what = "the capacity block" if isinstance(intent.candidate.market, CapacityBlock) else "the time of its machines"
    return f"{what} is over at {moment(ends, observed.now)}"


def at_end(desired: Run, observed: Observed, facts: Facts, why: str) -> Step:
    """The program may save what it has; then it goes on in another place, or all ends."""
    return _save(desired, observed, why) or _go_on(desired, observed, facts, why) or _conclude(desired, observed, why)


def _failed_by_itself(desired: Run, observed: Observed) -> bool:
    """A failure that was there before our stop is judged as every other one."""
    hosts, asks = chosen(desired, observed), {0, int(Exit.PREEMPTED), *desired.budgets.restart_on}
    if any(host.contact is not Contact.OK for host in hosts):
        return False
    return any(host.job is JobPhase.FINISHED and host.exit_code not in asks for host in hosts)


def _save(desired: Run, observed: Observed, why: str) -> Step | None:
    """Have the program stopped wherever it can be reached; None when there is no more to do about it."""
    job, intent, trouble = desired.job, observed.current, observed.trouble
    if job is None or not observed.started or intent is None or intent.state is not IntentState.ACCEPTED:
        return None
    if observed.slice_state is SliceState.UNCLEAR:  # it may run all the same
        since = observed.unclear_since if observed.unclear_since is not None else observed.now
        return wait_slice(desired.cluster, observed, since + desired.budgets.unclear_deadline)
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running and observed.condemned is None:  # on record first: what it does when it is stopped is no success
        return EndAttempt(observed.attempt, EndCause.EXPIRED, why, furthest(observed.hosts))
    if running and (trouble is None or trouble.step != "StopJob"):
        return StopJob(job.folder(observed.attempt), why, job.limit_grace, running)
    silent = [host.rank for host in chosen(desired, observed) if host.contact is not Contact.OK]
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.lost_deadline
    if silent and observed.now < until:
        return Wait(WaitFor.CONTACT, f"waiting for SSH on {host_words(silent)}", until)
    return None


def _go_on(desired: Run, observed: Observed, facts: Facts, why: str) -> Step | None:
    """Towards the other places that the user named; None where there are none, or no restarts were wanted."""
    intent = observed.current
    if not desired.create or not desired.budgets.preemptions or intent is None:
        return None
    if all(recovery.is_same(candidate, intent.candidate) for candidate in recovery.in_order(desired, observed)):
        return None
    if observed.started:  # the generation is noted, so that its end is never charged as a loss
        step = furthest(observed.hosts)
        return NextAttempt(observed.attempt + 1, EndCause.EXPIRED, why, intent.generation, step=step)
    if observed.slice_state is SliceState.ABSENT:
        return ForgetSlice(intent.name, EndCause.EXPIRED, why)
    return end_for(facts, intent, EndCause.EXPIRED, why)


def _conclude(desired: Run, observed: Observed, why: str) -> Conclude:
    """The end of a run ends its machines. One that has not begun leaves alone what was there before it."""
    early = not observed.started and desired.job is not None and observed.attempt == 1
    intent = observed.current
    guest = not desired.create or (early and intent is not None and intent.generation <= observed.opened_at)
    code, last = ("timeout", "the provider takes its machines") if guest else (LIMIT, "its machines are ended")
    back = f"orch resume {desired.cluster}   goes on from the newest checkpoint"
    more = "name other machines in the task, or another block, then launch again"
    return Conclude(
        Exit.TIMEOUT,
        code,
        f"'{desired.cluster}': {'too late to begin: ' if early else ''}{why}",
        last,
        back if desired.checkpoint_uri is not None and not early else more,
    )
