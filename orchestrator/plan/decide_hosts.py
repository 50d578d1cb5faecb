"""Decisions about the hosts of a READY slice: do they answer, do they hold the files, did setup pass."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import JobPhase
from orchestrator.plan import recovery
from orchestrator.plan.actions import Action, ArmTimer, Conclude, EndAttempt, FetchMount, RunSetup, StopJob, SyncTree
from orchestrator.plan.causes import SLICE_LOSSES, EndCause
from orchestrator.plan.decide_slice import end_for, verdict_status
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment, rendezvous_port
from orchestrator.plan.evidence import furthest, silence
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, HostView, Observed
from orchestrator.plan.ranks import host_words, rank_ranges
from orchestrator.plan.steps import GiveUp, Step, Wait, WaitFor
from orchestrator.slices import Owned
from orchestrator.values import Text

STEP_TRIES = 3
TIMER = "timer"  # label of the dead-man timer's mark


def have_hosts(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    """The next step towards hosts that answer, hold every file and passed setup; None when they do."""
    hosts = chosen(desired, observed)
    return (
        _complete(desired, observed)
        or _identity(desired, hosts)
        or _contact(desired, observed, facts, hosts)
        or _trouble(desired, observed, facts)
        or _prepare(desired, observed, hosts)
    )


def chosen(desired: Run, observed: Observed) -> tuple[HostView, ...]:
    """The hosts this job is about."""
    if desired.ranks is None:
        return observed.hosts
    return tuple(host for host in observed.hosts if host.rank in desired.ranks)


def environment(desired: Run, observed: Observed, *, setup: bool) -> HostEnvironment:
    intent = observed.current
    assert intent is not None  # noqa: S101  # only asked for hosts, and hosts belong to a slice
    common: list[tuple[str, Text]] = list(desired.env)
    if not setup:
        common.append(("ORCH_RUN_ID", desired.run_id))
        common.append(("ORCH_ATTEMPT", Text.of(str(observed.attempt))))
        common.append(("ORCH_JOB_ID", Text.of(str(desired.job_id))))
        if desired.checkpoint_uri is not None:
            common.append(("ORCH_CHECKPOINT_URI", desired.checkpoint_uri))
        if desired.resume_from is not None or (observed.attempt > 1 and desired.checkpoint_uri is not None):
            common.append(("ORCH_RESUME_FROM", desired.resume_from or Text.of("latest")))
    return HostEnvironment(
        common=tuple(common),
        internal_ips=tuple(host.internal_ip for host in observed.hosts),
        chips_per_host=intent.candidate.chips_per_host,
        accelerator=intent.candidate.accelerator,
        port=rendezvous_port(desired.job_id, observed.attempt),
        task_id=desired.run_id,
        for_setup=setup,
        num_slices=desired.num_slices,
    )


def _complete(desired: Run, observed: Observed) -> Step | None:
    """Nothing is ever judged by a part of the hosts: no host at all would pass for success."""
    intent = observed.current
    assert intent is not None  # noqa: S101  # the slice is READY
    expected, shown = intent.candidate.hosts, len(observed.hosts)
    if shown < expected:
        return GiveUp(
            "cloud",
            Exit.FAILURE,
            f"the provider shows {shown} of the {expected} hosts of '{desired.cluster}', and calls it ready",
            next_step=f"the same command again   or: orch down {desired.cluster}",
        )
    missing = [rank for rank in desired.ranks or () if not 0 <= rank < expected]
    if not missing:
        return None
    return Conclude(
        Exit.USAGE,
        "usage",
        f"'{desired.cluster}' has no {host_words(missing)}",
        f"its hosts are {rank_ranges(range(expected))}",
    )


def _identity(desired: Run, hosts: tuple[HostView, ...]) -> Action | None:
    wrong = [host.rank for host in hosts if host.contact is Contact.IDENTITY]
    if not wrong:
        return None
    return Conclude(
        Exit.IDENTITY,
        "identity-mismatch",
        f"{host_words(wrong)} of '{desired.cluster}' presented another key than the pinned one",
        "another machine may have taken its address; nothing was sent to it",
        f"orch down {desired.cluster}   (then launch again)",
    )


def _contact(desired: Run, observed: Observed, facts: Facts, hosts: tuple[HostView, ...]) -> Step | None:
    silent = [host.rank for host in hosts if host.contact is not Contact.OK]
    if not silent:
        return None
    since = observed.contact_since if observed.contact_since is not None else observed.now
    cause, budgets = silence(hosts), desired.budgets
    patience = budgets.contact_deadline
    if observed.started:
        patience = budgets.lost_deadline if cause is EndCause.HOST_DIED else budgets.silence_deadline
    if observed.now < since + patience:
        return Wait(WaitFor.CONTACT, f"waiting for SSH on {host_words(silent)}", since + patience)
    others = " while others did" if cause is EndCause.HOST_DIED else ""
    why = f"{host_words(silent)} did not answer SSH for {patience:.0f} s{others}"
    intent = observed.current
    rented = intent is not None and not isinstance(intent.candidate.market, Owned)
    if cause is EndCause.UNREACHABLE and not observed.started and desired.create and intent is not None and rented:
        # Nobody ever came in: more of the same would be paid for, and not be reached either.
        return end_for(facts, intent, EndCause.BROKEN, f"{why}: no way in, or a network without one")
    return lost(desired, observed, facts, cause, why)


def lost(desired: Run, observed: Observed, facts: Facts, cause: EndCause, why: str) -> Step:
    """Some host is of no use any more: replace the slice as a whole, or say so and leave it alone."""
    intent = observed.current
    assert intent is not None  # noqa: S101  # there are hosts, so there is a slice
    verdict = observed.condemned
    charged, by_loss = (verdict.cause, False) if verdict is not None else (cause, True)
    if desired.create and recovery.room_for(charged, observed, desired.budgets, by_loss=by_loss):
        if not isinstance(intent.candidate.market, Owned):
            return end_for(facts, intent, cause, why)
        if (step := _own_lost(desired, observed, cause, why)) is not None:
            return step
    if verdict is not None:
        return Conclude(
            verdict_status(verdict.cause),
            "host-lost" if verdict.cause in SLICE_LOSSES else "program-failed",
            verdict.why,
            why,
            f"orch status {desired.cluster}   then: orch resume {desired.cluster}   or: orch down {desired.cluster}",
        )
    return Conclude(
        Exit.HOST_LOST,
        "host-lost",
        f"hosts of '{desired.cluster}' were lost",
        why,
        f"orch status {desired.cluster}   then: orch resume {desired.cluster}   or: orch down {desired.cluster}",
    )


def _own_lost(desired: Run, observed: Observed, cause: EndCause, why: str) -> Step | None:
    """The user's own machines: nothing ends them, and what still runs there must not meet the next attempt.

    The verdict goes on record, the program is stopped where a host answers, and hosts that do not answer get the time
    of a boot: when they are back, the next attempt begins on them. None when there is no more to do here.
    """
    job, trouble = desired.job, observed.trouble
    if job is None or not observed.started:
        return None
    if observed.condemned is None:
        return EndAttempt(observed.attempt, cause, why, furthest(observed.hosts))
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running and trouble is not None and trouble.step == "StopJob" and trouble.times >= STEP_TRIES:
        return Conclude(
            Exit.HOST_LOST,
            "host-lost",
            f"the program still runs on {host_words(running)} of '{desired.cluster}', and could not be stopped",
            f"{why}; {trouble.what}",
            f"orch ssh {desired.cluster} {running[0]}   end it by hand, then: orch resume {desired.cluster}",
        )
    if running:
        return StopJob(job.folder(observed.attempt), why, job.stop_grace, running)
    since = observed.contact_since
    if since is None or observed.now >= since + desired.budgets.boot_deadline:
        return None
    return Wait(WaitFor.CONTACT, f"{why}; waiting for it to be back", since + desired.budgets.boot_deadline)


def _trouble(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    trouble = observed.trouble
    if trouble is None:
        return None
    if trouble.step == "CollectStacks":
        return None  # a courtesy: what cannot be had is not waited for
    if trouble.lost:
        if trouble.times < STEP_TRIES:
            return None
        return lost(desired, observed, facts, EndCause.UNREACHABLE, trouble.what)
    if trouble.step == "StopJob" and not any(host.job is JobPhase.RUNNING for host in observed.hosts):
        return None  # it ended all the same
    if trouble.step == "StopJob" and observed.condemned is not None:
        # Something of the program cannot be ended, such as a process that hangs in a driver: the machine goes.
        return lost(desired, observed, facts, EndCause.HOST_DIED, trouble.what)
    if trouble.step == "StopJob" and any(host.job in (JobPhase.FINISHED, JobPhase.LOST) for host in observed.hosts):
        return None  # why the others were to be stopped is known, and judged first
    return Conclude(trouble.status, trouble.code, trouble.what, trouble.why, trouble.next_step)


def _prepare(desired: Run, observed: Observed, hosts: tuple[HostView, ...]) -> Action | None:
    """Files and setup, only while no program of this job runs on them."""
    if any(host.job is not JobPhase.ABSENT for host in hosts):
        return None
    if desired.timer is not None:
        ranks = tuple(host.rank for host in hosts if not host.has(TIMER, desired.timer.digest))
        if ranks:
            return ArmTimer(desired.timer.digest, desired.timer.script, ranks)
    for tree in desired.trees:
        ranks = tuple(host.rank for host in hosts if not host.has(tree.label, tree.digest))
        if ranks:
            return SyncTree(tree.label, tree.source, tree.destination, tree.digest, tree.files, tree.total_bytes, ranks)
    for mount in desired.mounts:
        ranks = tuple(host.rank for host in hosts if not host.has(mount.label, mount.digest))
        if ranks:
            return FetchMount(mount.label, mount.source, mount.destination, mount.digest, mount.script, ranks)
    if desired.setup is None:
        return None
    ranks = tuple(host.rank for host in hosts if host.setup != desired.setup.digest)
    if not ranks:
        return None
    folder = f"setup-{desired.job_id}-a{observed.attempt}-{desired.setup.digest[:8]}"
    env = environment(desired, observed, setup=True)
    return RunSetup(folder, desired.setup.digest, desired.setup.script, env, ranks)
