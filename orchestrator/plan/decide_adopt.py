"""Decisions about machines that somebody else made: taking them under management, and not ending them by ourselves."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.plan import decide_slice
from orchestrator.plan.actions import Conclude, CreateSlice, EndSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Adopt, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.plan.ranks import host_words
from orchestrator.plan.steps import Done, GiveUp, Step, Wait, WaitFor
from orchestrator.slices import SliceSpec, SliceState
from orchestrator.values import Text

# By the user, or gone anyway.
_WANTED = frozenset({EndCause.ASKED, EndCause.LIMIT, EndCause.PREEMPTED, EndCause.EXPIRED})


def adopt(desired: Adopt, observed: Observed, facts: Facts) -> Step:
    """The next step towards machines that are on record and let us in. It never ends anything."""
    intent, trouble = observed.current, observed.trouble
    if intent is not None and intent.candidate.adopted != desired.candidate.adopted:
        return _taken(desired.cluster)
    if intent is None or intent.state is IntentState.PLANNED:
        if trouble is not None and (trouble.final or trouble.times >= decide_slice.CREATE_TRIES):
            return GiveUp(trouble.code, trouble.status, trouble.what, trouble.why, trouble.next_step)
        generation = max((one.generation for one in observed.intents), default=0) + (1 if intent is None else 0)
        return _create(desired, facts, generation)
    if intent.state is IntentState.ENDING:
        return _taken(desired.cluster)
    return _accepted(desired, observed, intent)


def spared(desired: Run, observed: Observed, step: Step) -> Step:
    """The step, unless it would end adopted machines that nobody asked to end: what is on their disks is the user's."""
    intent = observed.current
    if not isinstance(step, EndSlice) or intent is None or not intent.candidate.adopted or step.cause in _WANTED:
        return step
    if intent.state is IntentState.ENDING:
        return step
    cluster = desired.cluster
    return Conclude(
        Exit.HOST_LOST,
        "host-lost",
        f"'{cluster}' is of no use now, and is not replaced: it was adopted",
        step.why,
        f"orch status {cluster}   to look\norch down {cluster}   deletes it   orch release {cluster}   gives it back",
    )


def _accepted(desired: Adopt, observed: Observed, intent: Intent) -> Step:
    cluster = desired.cluster
    match observed.slice_state:
        case SliceState.READY:
            return _contact(desired, observed)
        case SliceState.STOPPED:
            words = f"is adopted as cluster '{cluster}', and stopped: orch start {cluster}"
            return Done(f"'{intent.candidate.adopted}' {words}")
        case SliceState.CREATING | SliceState.STARTING | SliceState.STOPPING | SliceState.UNCLEAR:
            until = decide_slice.patience(observed, intent, desired.budgets.boot_deadline)
            return decide_slice.wait_slice(cluster, observed, until)
        case _:
            return GiveUp(
                "cloud",
                Exit.FAILURE,
                f"'{intent.candidate.adopted}' is {observed.slice_state}",
                observed.slice_reason,
                f"orch status {cluster}   orch release {cluster}   closes its record and leaves it alone",
            )


def _contact(desired: Adopt, observed: Observed) -> Step:
    wrong = [host.rank for host in observed.hosts if host.contact is Contact.IDENTITY]
    if wrong:
        return GiveUp(
            "identity-mismatch",
            Exit.IDENTITY,
            f"{host_words(wrong)} of '{desired.cluster}' presented another key than Google tells",
            "another machine may have taken its address; nothing was sent to it",
            f"orch release {desired.cluster}",
        )
    silent = [host.rank for host in observed.hosts if host.contact is not Contact.OK]
    if not silent:
        return Done(f"'{desired.candidate.adopted}' is adopted as cluster '{desired.cluster}'")
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.contact_deadline
    if observed.now < until:
        return Wait(WaitFor.CONTACT, f"waiting for SSH on {host_words(silent)}", until)
    return GiveUp(
        "host-lost",
        Exit.HOST_LOST,
        f"'{desired.cluster}' is adopted, but {host_words(silent)} did not answer SSH",
        f"none for {desired.budgets.contact_deadline:.0f} s: a firewall, or it takes no keys from its metadata",
        f"the same command again   or: orch release {desired.cluster}",
    )


def _create(desired: Adopt, facts: Facts, generation: int) -> CreateSlice:
    token = Text.of(desired.uid, f"-{generation}")
    labels = (
        ("orch-installation", desired.installation),
        ("orch-cluster", Text.of(desired.cluster)),
        ("orch-intent", token),
    )
    spec = SliceSpec(desired.cluster, f"{desired.cluster}-{generation}", token, desired.candidate, labels)
    return CreateSlice(spec, generation, facts.requests[desired.candidate.provider].create_request(spec))


def _taken(cluster: str) -> GiveUp:
    return GiveUp(
        "conflict",
        Exit.CONFLICT,
        f"cluster '{cluster}' has other machines, or is being taken down",
        next_step=f"orch status {cluster}   or take another name: -c NAME",
    )
