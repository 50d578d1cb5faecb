"""Decide about the hosts of a READY slice: SSH contact, files, setup."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.hosts import EndedBy, JobPhase
from orchestrator.next_step import NextStep
from orchestrator.plan import recovery
from orchestrator.plan.actions import Action, ArmTimer, Conclude, EndAttempt, FetchMount, RunSetup, StopJob, SyncTree
from orchestrator.plan.causes import SLICE_LOSSES, EndCause
from orchestrator.plan.decide_slice import end_slice, end_status
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment, choose_shared_port, rendezvous_port
from orchestrator.plan.evidence import classify_silence, find_furthest_step, wait_for_contact
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, HostView, Intent, Observed
from orchestrator.plan.ranks import format_hosts, format_ranks
from orchestrator.plan.steps import GiveUp, Step, Wait, WaitFor
from orchestrator.plan.ways_back import name_command_again, step_after_loss
from orchestrator.slices import Owned
from orchestrator.values import Text, Unknown

STEP_TRIES = 3
_DENIED_SECONDS = 15.0  # in which machines that were just started may still lack their keys
_MOST_KEYS = 3  # that one message shows
_MOST_TRUSTED = 100  # digests in one variable; a run keeps fewer checkpoints
_EPOCH = Unknown("epoch of this start, 1 in a new run")
TIMER_LABEL = "timer"  # label of the dead-man timer's mark


def decide_hosts_step(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    """Return the next step until every host answers, holds every file and passed setup; None when they do."""
    hosts = select_hosts(desired, observed)
    return (
        _complete(desired, observed)
        or _identity(desired, observed, facts, hosts)
        or _contact(desired, observed, facts, hosts)
        or _unconfirmed(desired, hosts)
        or _trouble(desired, observed, facts)
        or _prepare(desired, observed, hosts)
    )


def select_hosts(desired: Run, observed: Observed) -> tuple[HostView, ...]:
    """Return the hosts that this job runs on."""
    if desired.ranks is None:
        return observed.hosts
    return tuple(host for host in observed.hosts if host.rank in desired.ranks)


def host_environment(desired: Run, observed: Observed, *, setup: bool) -> HostEnvironment:
    """Return the environment of the setup script or of the program on every host."""
    intent = observed.current
    assert intent is not None  # noqa: S101  # called for hosts, and hosts belong to a slice
    common: list[tuple[str, Text]] = [*desired.env, ("ORCH_INSTALLATION", desired.installation)]
    if not setup:
        common.append(("ORCH_RUN_ID", desired.run_id))
        common.append(("ORCH_ATTEMPT", Text.of(str(observed.attempt))))
        common.append(("ORCH_JOB_ID", Text.of(str(desired.job_id))))
        if desired.checkpoint_uri is not None:
            common.append(("ORCH_CHECKPOINT_URI", desired.checkpoint_uri))
            if desired.run_key is not None:
                common.append(("ORCH_RUN_KEY", desired.run_key))
            if desired.trusted:
                common.append(("ORCH_TRUSTED_CHECKPOINTS", Text.of(",".join(desired.trusted[:_MOST_TRUSTED]))))
            common.append(("ORCH_EPOCH", Text.of(str(observed.epoch) if observed.epoch else _EPOCH)))
        if desired.resume_from is not None or (observed.attempt > 1 and desired.checkpoint_uri is not None):
            common.append(("ORCH_RESUME_FROM", desired.resume_from or Text.of("latest")))
    return HostEnvironment(
        common=tuple(common),
        internal_ips=tuple(host.internal_ip for host in observed.hosts),
        chips_per_host=intent.candidate.chips_per_host,
        accelerator=intent.candidate.accelerator,
        port=_choose_port(desired, observed.attempt),
        task_id=desired.run_id,
        cluster=desired.cluster,
        provider=intent.candidate.provider,
        region=intent.candidate.region,
        zone=intent.candidate.zone,
        for_setup=setup,
        num_slices=desired.num_slices,
    )


def _choose_port(desired: Run, attempt: int) -> int | Unknown:
    if not desired.one_computer:
        return rendezvous_port(desired.job_id, attempt)
    return choose_shared_port(desired.uid, desired.job_id, attempt)


def _complete(desired: Run, observed: Observed) -> Step | None:
    """Refuse to decide by an incomplete list of hosts: an empty one would pass for success."""
    intent = observed.current
    assert intent is not None  # noqa: S101  # the slice is READY
    expected, shown = intent.candidate.hosts, len(observed.hosts)
    if shown < expected:
        return GiveUp(
            code="cloud",
            status=Exit.FAILURE,
            what=f"the provider lists {shown} of the {expected} hosts of '{desired.cluster}', and reports it as ready",
            next_step=NextStep(f"orch down {desired.cluster}", "or the same command again"),
        )
    missing = [rank for rank in desired.ranks or () if not 0 <= rank < expected]
    if not missing:
        return None
    return Conclude(
        status=Exit.USAGE,
        code="usage",
        what=f"'{desired.cluster}' has no {format_hosts(missing)}",
        why=f"its hosts are {format_ranks(range(expected))}",
    )


def _identity(desired: Run, observed: Observed, facts: Facts, hosts: tuple[HostView, ...]) -> Step | None:
    intent = observed.current
    rented = intent is None or not isinstance(intent.candidate.market, Owned)
    wrong = [host for host in hosts if host.contact is Contact.IDENTITY]
    if not wrong:
        return None
    if rented and intent is not None and desired.create and not (observed.started or observed.entered):
        return _await_keys(desired, observed, facts, intent, hosts)
    ranks, shown = format_hosts(host.rank for host in wrong), f" ({wrong[0].silence})" if wrong[0].silence else ""
    remedy = wrong[0].remedy or "ask its administrator"
    return Conclude(
        status=Exit.IDENTITY,
        code="identity-mismatch",
        what=f"{ranks} of '{desired.cluster}' presented another key than the pinned one",
        why=f"another machine may have taken its address; nothing was sent to it{shown}",
        next_step=NextStep(f"orch down {desired.cluster}", "then launch again") if rented else NextStep.parse(remedy),
    )


def _await_keys(desired: Run, observed: Observed, facts: Facts, intent: Intent, hosts: tuple[HostView, ...]) -> Step:
    """Wait for the start-up script of a new slice, before which its image shows a key that it made itself.

    The SSH server of an image starts before its start-up script has run (Compute Engine, "Startup scripts", 2026).
    """
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.contact_deadline
    if observed.now < until:
        return wait_for_contact(hosts, until)
    ranks = format_hosts(host.rank for host in hosts if host.contact is Contact.IDENTITY)
    why = f"{ranks} did not take over the SSH key that orch gave in {desired.budgets.contact_deadline:.0f} s"
    return end_slice(facts, intent, EndCause.BROKEN, f"{why}: the start-up script failed, or did not run")


def _unconfirmed(desired: Run, hosts: tuple[HostView, ...]) -> Action | None:
    """Stop before secrets are sent to a machine whose key this job met first."""
    new = [host for host in hosts if host.new_keys]
    if not new or not _has_secrets(desired):
        return None
    keys = list(dict.fromkeys(key for host in new for key in host.new_keys))
    shown = "; ".join(keys[:_MOST_KEYS]) + (f"; and {len(keys) - _MOST_KEYS} above" if len(keys) > _MOST_KEYS else "")
    ranks = format_hosts(host.rank for host in new)
    return Conclude(
        status=Exit.IDENTITY,
        code="identity-unconfirmed",
        what=f"the key of {ranks} of '{desired.cluster}' is new, so no secrets were sent",
        why=shown,
        next_step=NextStep(
            words="if these are your machines' fingerprints: the same command again\n"
            "if not: orch check hosts FILE --accept-host-key SHA256:THE-RIGHT-ONE   pins the right one"
        ),
    )


def _has_secrets(desired: Run) -> bool:
    texts = [value for _, value in desired.env]
    texts += [mount.script for mount in desired.mounts]
    texts += [part.script for part in (desired.setup, desired.job) if part is not None]
    return any(text.is_secret for text in texts)


def _contact(desired: Run, observed: Observed, facts: Facts, hosts: tuple[HostView, ...]) -> Step | None:
    silent = [host.rank for host in hosts if host.contact is not Contact.OK]
    if not silent:
        return None
    since = observed.contact_since if observed.contact_since is not None else observed.now
    cause, budgets = classify_silence(hosts), desired.budgets
    intent = observed.current
    rented = intent is not None and not isinstance(intent.candidate.market, Owned)
    patience = budgets.contact_deadline if rented else budgets.own_contact_deadline
    if observed.started:
        patience = budgets.lost_deadline if cause is EndCause.HOST_DIED else budgets.silence_deadline
    elif not rented and (step := _denied(desired, hosts)) is not None:
        return step
    if rented and not desired.create and any(host.contact is Contact.DENIED and host.remedy for host in hosts):
        return _not_admitted(desired, hosts)  # by IAM: waiting changes nothing
    refuses_key = rented and all(host.contact in (Contact.OK, Contact.DENIED) for host in hosts)
    if refuses_key and not desired.create:
        patience = min(patience, _DENIED_SECONDS)  # another key is needed, not more time
    if observed.now < since + patience:
        return wait_for_contact(hosts, since + patience)
    if refuses_key and (observed.started or observed.entered or not desired.create):
        return _not_admitted(desired, hosts)
    others = " while others did" if cause is EndCause.HOST_DIED else ""
    why = f"{format_hosts(silent)} did not answer SSH for {patience:.0f} s{others}"
    if not rented and not observed.started:
        return _unreachable(desired, hosts)
    if cause is EndCause.UNREACHABLE and not observed.started and desired.create and intent is not None and rented:
        # SSH never worked: another slice of the same kind would cost money, and not be reachable either.
        return end_slice(facts, intent, EndCause.BROKEN, f"{why}: {_explain_silence(hosts)}")
    return handle_loss(desired, observed, facts, cause, why)


def _explain_silence(hosts: tuple[HostView, ...]) -> str:
    """Return the likely cause when no host of a new slice could be entered."""
    if role := next((host.role for host in hosts if host.role), ""):
        return f"OS Login refused the key, probably as this account has no {role}"
    return "no SSH access, or a network without a route"


def _denied(desired: Run, hosts: tuple[HostView, ...]) -> Conclude | None:
    """Return the end of a run on one's own machines that accept no key: waiting would change nothing."""
    denied = [host for host in hosts if host.contact is Contact.DENIED]
    if not denied:
        return None
    return Conclude(
        status=Exit.PERMISSION,
        code="access",
        what=f"{format_hosts(host.rank for host in denied)} of '{desired.cluster}' accepted no SSH key",
        why=denied[0].silence,
        next_step=NextStep("orch check hosts FILE", "tries every host and says which keys"),
    )


def _not_admitted(desired: Run, hosts: tuple[HostView, ...]) -> GiveUp:
    """Return the end of a command on hosts that let others in, but not this computer: they are well, and not lost."""
    denied = [host for host in hosts if host.contact is Contact.DENIED]
    if remedy := next((host.remedy for host in denied if host.remedy), ""):
        return GiveUp(
            code="access",
            status=Exit.PERMISSION,
            what=f"{format_hosts(host.rank for host in denied)} of '{desired.cluster}' cannot be reached from here",
            why=denied[0].silence,
            next_step=NextStep.parse(remedy),
        )
    why = "they admit the key of who made them; servers of one store share a key (ORCH_ENGINE_KEY)"
    next_step = f"with a key that they admit: orch exec {desired.cluster} --identity KEY -- true   then the same again"
    if role := next((host.role for host in denied if host.role), ""):
        why = f"OS Login decides there: this account may have no {role}; or they were made with another key"
        next_step += f"\nan administrator gives {role} to this account, in the project of the machines"
    return GiveUp(
        code="access",
        status=Exit.PERMISSION,
        what=f"{format_hosts(host.rank for host in denied)} of '{desired.cluster}' accept no key of this computer",
        why=why,
        next_step=NextStep(words=next_step),
    )


def _unreachable(desired: Run, hosts: tuple[HostView, ...]) -> Conclude:
    """Return the end of a run whose machines, which no one is booting, did not answer."""
    silent = [host for host in hosts if host.contact is not Contact.OK]
    return Conclude(
        status=Exit.HOST_LOST,
        code="host-lost",
        what=f"{format_hosts(host.rank for host in silent)} of '{desired.cluster}' cannot be reached",
        why=silent[0].silence,
        next_step=NextStep.parse(silent[0].remedy)
        or NextStep(
            "orch check hosts FILE",
            "tries all; correct the address in the task file, or start the machine, then the same command again",
        ),
    )


def handle_loss(desired: Run, observed: Observed, facts: Facts, cause: EndCause, why: str) -> Step:
    """Replace a slice that lost a host, or record the loss where it may not be replaced."""
    intent = observed.current
    assert intent is not None  # noqa: S101  # there are hosts, so there is a slice
    verdict = observed.pending_end
    charged, by_loss = (verdict.cause, False) if verdict is not None else (cause, True)
    exit_code = verdict.exit_code if verdict is not None else None
    budgets = desired.budgets
    if desired.create and recovery.may_restart(charged, observed, budgets, by_loss=by_loss, exit_code=exit_code):
        if not isinstance(intent.candidate.market, Owned):
            return end_slice(facts, intent, cause, why)
        if (step := _own_lost(desired, observed, cause, why)) is not None:
            return step
    if verdict is not None:
        return Conclude(
            status=end_status(verdict.cause),
            code="host-lost" if verdict.cause in SLICE_LOSSES else "program-failed",
            what=verdict.why,
            why=why,
            next_step=step_after_loss(desired, observed),
        )
    return Conclude(
        status=Exit.HOST_LOST,
        code="host-lost",
        what=f"hosts of '{desired.cluster}' were lost",
        why=why,
        next_step=step_after_loss(desired, observed),
    )


def _own_lost(desired: Run, observed: Observed, cause: EndCause, why: str) -> Step | None:
    """Return the next step after a loss among the user's own machines; None when nothing is left to do.

    Nothing ends these machines, and what still runs there must not meet the next attempt. So the verdict is recorded,
    the program is stopped where a host answers, and hosts that do not answer get the time of a boot: when they are
    back, the next attempt starts on them.
    """
    job, trouble = desired.job, observed.failure
    if job is None or not observed.started:
        return None
    if observed.pending_end is None:
        return EndAttempt(attempt=observed.attempt, cause=cause, why=why, step=find_furthest_step(observed.hosts))
    running = tuple(host.rank for host in observed.hosts if host.job is JobPhase.RUNNING)
    if running and trouble is not None and trouble.action == "StopJob" and trouble.times >= STEP_TRIES:
        return Conclude(
            status=Exit.HOST_LOST,
            code="host-lost",
            what=f"the program still runs on {format_hosts(running)} of '{desired.cluster}', and could not be stopped",
            why=f"{why}; {trouble.what}",
            next_step=NextStep(
                f"orch ssh {desired.cluster} {running[0]}",
                f"stop it there, then: {name_command_again(desired, observed)}",
            ),
        )
    if running:
        folder = job.folder(observed.attempt)
        return StopJob(job=folder, ended_by=EndedBy.RESTART, why=why, grace=job.stop_grace, ranks=running)
    since = observed.contact_since
    if since is None or observed.now >= since + desired.budgets.boot_deadline:
        return None
    return Wait(
        on=WaitFor.CONTACT, reason=f"{why}; waiting for it to come back", until=since + desired.budgets.boot_deadline
    )


def _trouble(desired: Run, observed: Observed, facts: Facts) -> Step | None:
    trouble = observed.failure
    if trouble is None:
        return None
    if trouble.action == "CollectStacks":
        return None  # optional: unavailable stacks are not waited for
    if trouble.connection_lost:
        if trouble.times < STEP_TRIES:
            return None
        return handle_loss(desired, observed, facts, EndCause.UNREACHABLE, trouble.what)
    if trouble.action == "StopJob" and not any(host.job is JobPhase.RUNNING for host in observed.hosts):
        return None  # it ended meanwhile
    if trouble.action == "StopJob" and observed.pending_end is not None:
        # A process that cannot be killed, for example one that hangs in a driver, costs its machine.
        return handle_loss(desired, observed, facts, EndCause.HOST_DIED, trouble.what)
    if trouble.action == "StopJob" and any(host.job in (JobPhase.FINISHED, JobPhase.LOST) for host in observed.hosts):
        return None  # the failure that caused the stop is decided first
    return Conclude(
        status=trouble.status, code=trouble.code, what=trouble.what, why=trouble.why, next_step=trouble.next_step
    )


def _prepare(desired: Run, observed: Observed, hosts: tuple[HostView, ...]) -> Action | None:
    """Return the next copy or setup; none while a program of this job runs on the hosts."""
    if any(host.job is not JobPhase.ABSENT for host in hosts):
        return None
    if desired.timer is not None:
        ranks = tuple(host.rank for host in hosts if not host.has(TIMER_LABEL, desired.timer.digest))
        if ranks:
            return ArmTimer(desired.timer.digest, desired.timer.script, ranks)
    for tree in desired.trees:
        ranks = tuple(host.rank for host in hosts if not host.has(tree.label, tree.digest))
        if ranks:
            return SyncTree(
                label=tree.label,
                source=tree.source,
                destination=tree.destination,
                digest=tree.digest,
                files=tree.files,
                total_bytes=tree.total_bytes,
                ranks=ranks,
            )
    for mount in desired.mounts:
        ranks = tuple(host.rank for host in hosts if not host.has(mount.label, mount.digest))
        if ranks:
            return FetchMount(
                label=mount.label,
                source=mount.source,
                destination=mount.destination,
                digest=mount.digest,
                script=mount.script,
                ranks=ranks,
            )
    if desired.setup is None:
        return None
    ranks = tuple(host.rank for host in hosts if host.setup != desired.setup.digest)
    if not ranks:
        return None
    folder = f"setup-{desired.job_id}-a{observed.attempt}-{desired.setup.digest[:8]}"
    env = host_environment(desired, observed, setup=True)
    return RunSetup(job=folder, digest=desired.setup.digest, script=desired.setup.script, environment=env, ranks=ranks)
