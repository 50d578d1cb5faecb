"""decide() about adopted machines: an adoption never ends anything, and a run does so only when that was asked."""

from __future__ import annotations

from itertools import product

import pytest

from orchestrator.exits import Exit
from orchestrator.plan.actions import Conclude, CreateSlice, EndSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide import decide
from orchestrator.plan.decide_adopt import keep_adopted_machines
from orchestrator.plan.desired import Adopt, Run
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import ActionFailure, Contact, HostView, Intent, IntentState, Observed
from orchestrator.plan.steps import Done, GiveUp, Wait
from orchestrator.providers.registry import Planners
from orchestrator.slices import Candidate, OnDemand, SliceState
from orchestrator.values import to_text

DETAILS = (("adopted", "theirs"), ("project", "project-of-tests"))
CANDIDATE = Candidate(
    provider="gcp",
    accelerator="v5litepod-8",
    hosts=1,
    chips_per_host=8,
    market=OnDemand(),
    region="us-west4",
    zone="us-west4-a",
    details=DETAILS,
)
WISH = Adopt(
    cluster="mine",
    slice_stem="mine",
    uid=to_text("0123456789abcdef"),
    installation=to_text("ours"),
    candidate=CANDIDATE,
)
RUN = Run(
    cluster="mine",
    slice_stem="mine",
    uid=to_text("0123456789abcdef"),
    run_id=to_text("run"),
    installation=to_text("ours"),
    candidates=(CANDIDATE,),
)
FACTS = Facts(Planners())
REFUSED = ActionFailure(
    action="CreateSlice", connection_lost=False, what="refused", why="for ever", code="usage", status=2, final=True
)
LOST = ActionFailure(
    action="CreateSlice", connection_lost=False, what="lost", why="no answer", code="cloud", status=1, times=1
)


def seen(state: SliceState, intent: IntentState | None, *, now: float = 1e6, **fields: object) -> Observed:
    intents = (
        (Intent(generation=1, name="mine-1", candidate=CANDIDATE, state=intent, since=0.0),)
        if intent is not None
        else ()
    )
    contact = fields.pop("contact", Contact.OK)
    assert isinstance(contact, Contact)
    hosts = (HostView(rank=0, internal_ip=to_text("10.0.0.1"), contact=contact),) if state is SliceState.READY else ()
    return Observed(now=now, intents=intents, slice_state=state, hosts=hosts, **fields)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("trouble", [None, REFUSED, LOST], ids=str)
def test_an_adoption_never_ends_anything(trouble: ActionFailure | None) -> None:
    for state, intent, now, contact in product(SliceState, (None, *IntentState), (0.0, 1e6), Contact):
        step = decide(WISH, seen(state, intent, now=now, contact=contact, failure=trouble), FACTS)
        assert isinstance(step, CreateSlice | Wait | Done | GiveUp), (state, intent, step)


def test_an_adoption_that_was_planned_under_another_name_goes_on_under_it() -> None:
    planned = Intent(generation=1, name="mine", candidate=CANDIDATE, state=IntentState.PLANNED, since=0.0)
    step = decide(WISH, Observed(now=1e6, intents=(planned,), slice_state=SliceState.UNCLEAR), FACTS)
    assert isinstance(step, CreateSlice) and (step.spec.name, step.generation) == ("mine", 1)


def test_the_way_of_an_adoption() -> None:
    first = decide(WISH, seen(SliceState.UNCLEAR, None), FACTS)
    assert isinstance(first, CreateSlice) and (first.spec.name, first.generation) == ("mine-1", 1)
    assert (first.request.method, first.request.target.partition("/nodes/")[2]) == (
        "PATCH",
        "theirs?updateMask=labels,metadata",
    )
    assert decide(WISH, seen(SliceState.UNCLEAR, IntentState.PLANNED), FACTS) == first, "cut off: the same once more"
    again = decide(WISH, seen(SliceState.UNCLEAR, IntentState.PLANNED, failure=REFUSED), FACTS)
    assert isinstance(again, GiveUp) and again.what == "refused"
    waiting = decide(WISH, seen(SliceState.READY, IntentState.ACCEPTED, contact=Contact.DOWN), FACTS)
    assert isinstance(waiting, Wait)
    silent = seen(SliceState.READY, IntentState.ACCEPTED, contact=Contact.DOWN, contact_since=0.0)
    given_up = decide(WISH, silent, FACTS)
    assert isinstance(given_up, GiveUp) and given_up.status == Exit.HOST_LOST
    assert isinstance(decide(WISH, seen(SliceState.READY, IntentState.ACCEPTED), FACTS), Done)
    assert isinstance(decide(WISH, seen(SliceState.STOPPED, IntentState.ACCEPTED), FACTS), Done)


def test_a_run_ends_adopted_machines_only_when_that_was_asked() -> None:
    observed = seen(SliceState.READY, IntentState.ACCEPTED)
    request = FACTS.requests["gcp"].end_request("mine-1", CANDIDATE)
    kept = {
        cause for cause in EndCause if isinstance(keep_adopted_machines(RUN, observed, _end(cause, request)), Conclude)
    }
    losses = (EndCause.HOST_DIED, EndCause.UNREACHABLE, EndCause.HUNG, EndCause.REFUSED, EndCause.BROKEN)
    assert kept == {*losses, EndCause.PROGRAM, EndCause.GROWN}
    assert isinstance(decide(RUN, seen(SliceState.CREATING, IntentState.ACCEPTED), FACTS), Conclude)
    assert isinstance(decide(RUN, seen(SliceState.FAILED, IntentState.ACCEPTED), FACTS), Conclude)
    assert isinstance(decide(RUN, seen(SliceState.PREEMPTED, IntentState.ACCEPTED), FACTS), EndSlice)
    lost = ActionFailure(
        action="CreateSlice", connection_lost=False, what="lost", why="no answer", code="cloud", status=1, times=9
    )
    unknown = decide(RUN, seen(SliceState.UNCLEAR, IntentState.PLANNED, failure=lost), FACTS)
    assert isinstance(unknown, Conclude), "an adoption that was cut off is no slice to get rid of"


def _end(cause: EndCause, request: object) -> EndSlice:
    return EndSlice(name="mine-1", cause=cause, why="why", request=request)  # type: ignore[arg-type]  # a Request by the protocol of Facts


def test_requests_name_what_is_there() -> None:
    planner = FACTS.requests["gcp"]
    for verb, request in (("DELETE", planner.end_request), ("POST", planner.stop_request)):
        assert request("mine-1", CANDIDATE).method == verb
        assert "/nodes/theirs" in request("mine-1", CANDIDATE).target
    queued = Candidate(
        provider="gcp",
        accelerator="v5litepod-8",
        hosts=1,
        chips_per_host=8,
        market=OnDemand(),
        region="us-west4",
        zone="us-west4-a",
        details=(*DETAILS, ("queued_resource", "waited")),
    )
    ended = planner.end_request("mine-1", queued)
    assert ended.target.endswith("/queuedResources/waited?force=true")
    assert "waited" in [word.preview() for word in ended.command]
