"""Decide about machines that orch did not create: adopt them, and never end them unrequested."""

from __future__ import annotations

from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.plan import decide_slice
from orchestrator.plan.actions import Conclude, CreateSlice, EndSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Adopt, Run
from orchestrator.plan.evidence import wait_for_contact
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Done, GiveUp, Step
from orchestrator.slices import SliceSpec, SliceState
from orchestrator.values import Text

# Requested by the user, or ended by the provider.
_ALLOWED = frozenset({EndCause.REQUESTED, EndCause.LIMIT, EndCause.PREEMPTED, EndCause.EXPIRED})


def decide_adoption(desired: Adopt, observed: Observed, facts: Facts) -> Step:
    """Return the next step towards recorded machines that answer SSH. It never ends anything."""
    intent, trouble = observed.current, observed.failure
    if intent is not None and intent.candidate.adopted != desired.candidate.adopted:
        return _taken(desired.cluster)
    if intent is None or intent.state is IntentState.PLANNED:
        if trouble is not None and (trouble.final or trouble.times >= decide_slice.CREATE_TRIES):
            return GiveUp(
                code=trouble.code,
                status=trouble.status,
                what=trouble.what,
                why=trouble.why,
                next_step=trouble.next_step,
            )
        if intent is not None:
            return _create(desired, facts, intent.generation, intent.name)
        generation = max((one.generation for one in observed.intents), default=0) + 1
        return _create(desired, facts, generation, f"{desired.slice_stem}-{generation}")
    if intent.state is IntentState.ENDING:
        return _taken(desired.cluster)
    return _accepted(desired, observed, intent)


def keep_adopted_machines(desired: Run, observed: Observed, step: Step) -> Step:
    """Return the step, unless it would end adopted machines unrequested: their disks hold the user's data."""
    intent = observed.current
    if not isinstance(step, EndSlice) or intent is None or not intent.candidate.adopted or step.cause in _ALLOWED:
        return step
    if intent.state is IntentState.ENDING:
        return step
    cluster = desired.cluster
    return Conclude(
        status=Exit.HOST_LOST,
        code="host-lost",
        what=f"'{cluster}' is lost; adopted machines are not replaced",
        why=step.why,
        next_step=NextStep(
            f"orch status {cluster}",
            f"then: orch down {cluster}   deletes it\nor: orch release {cluster}   closes its record only",
        ),
    )


def _accepted(desired: Adopt, observed: Observed, intent: Intent) -> Step:
    cluster = desired.cluster
    match observed.slice_state:
        case SliceState.READY:
            return _contact(desired, observed)
        case SliceState.STOPPED:
            state = f"is adopted as cluster '{cluster}', and stopped: orch start {cluster}"
            return Done(f"'{intent.candidate.adopted}' {state}")
        case SliceState.CREATING | SliceState.STARTING | SliceState.STOPPING | SliceState.UNCLEAR:
            until = decide_slice.slice_deadline(observed, intent, desired.budgets.boot_deadline)
            return decide_slice.wait_for_slice(cluster, observed, until)
        case _:
            return GiveUp(
                code="cloud",
                status=Exit.FAILURE,
                what=f"'{intent.candidate.adopted}' is {observed.slice_state}",
                why=observed.slice_reason,
                next_step=NextStep(
                    f"orch status {cluster}", f"then: orch release {cluster}   closes its record and leaves it alone"
                ),
            )


def _contact(desired: Adopt, observed: Observed) -> Step:
    wrong = [host.rank for host in observed.hosts if host.contact is Contact.IDENTITY]
    if wrong:
        return GiveUp(
            code="identity-mismatch",
            status=Exit.IDENTITY,
            what=f"{format_hosts(wrong)} of '{desired.cluster}' presented another key than its provider reports",
            why="another machine may have taken its address; nothing was sent to it",
            next_step=NextStep(f"orch release {desired.cluster}"),
        )
    silent = [host.rank for host in observed.hosts if host.contact is not Contact.OK]
    if not silent:
        return Done(f"'{desired.candidate.adopted}' is adopted as cluster '{desired.cluster}'")
    since = observed.contact_since if observed.contact_since is not None else observed.now
    until = since + desired.budgets.contact_deadline
    if observed.now < until:
        return wait_for_contact(observed.hosts, until)
    return GiveUp(
        code="host-lost",
        status=Exit.HOST_LOST,
        what=f"'{desired.cluster}' is adopted, but {format_hosts(silent)} did not answer SSH",
        why=f"no answer for {desired.budgets.contact_deadline:.0f} s: a firewall, or it ignores its metadata keys",
        next_step=NextStep(f"orch release {desired.cluster}", "or the same command again"),
    )


def _create(desired: Adopt, facts: Facts, generation: int, name: str) -> CreateSlice:
    token = Text.of(desired.uid, f"-{generation}")
    labels = (
        ("orch-installation", desired.installation),
        ("orch-cluster", Text.of(desired.cluster)),
        ("orch-intent", token),
        *decide_slice.list_owner_labels(desired),
    )
    spec = SliceSpec(
        cluster=desired.cluster,
        name=name,
        token=token,
        candidate=desired.candidate,
        labels=labels,
    )
    return CreateSlice(spec, generation, facts.requests[desired.candidate.provider].create_request(spec))


def _taken(cluster: str) -> GiveUp:
    return GiveUp(
        code="conflict",
        status=Exit.CONFLICT,
        what=f"cluster '{cluster}' has other machines, or is being taken down",
        next_step=NextStep(f"orch status {cluster}", "or choose another name: -c NAME"),
    )
