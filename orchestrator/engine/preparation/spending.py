"""What a prepared command may begin to pay for, which is asked before it is done."""

from __future__ import annotations

from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.formatting import format_price
from orchestrator.messages import count_noun
from orchestrator.plan.actions import CreateSlice, StartSlice
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import make_plan
from orchestrator.slices import Candidate, Owned


def list_machines_to_pay(ready: PreparedCommand) -> tuple[Candidate, ...]:
    """Return the machines the plan may begin to pay for: those whose price is not known to be 0."""
    desired, actions = ready.desired, make_plan(ready.desired, ready.recorded, ready.facts).actions
    possible: tuple[Candidate, ...] = ()
    if any(isinstance(action, CreateSlice) for action in actions) and isinstance(desired, Run):
        possible = desired.possible  # the first may be refused or lost, and the others tried
    elif any(isinstance(action, StartSlice) for action in actions) and ready.recorded.current is not None:
        possible = (ready.recorded.current.candidate,)
    return tuple(candidate for candidate in possible if not _is_free(candidate))


def describe_cost(rented: tuple[Candidate, ...]) -> str:
    """Return what machines cost, in one line: the first, and how many others are tried when it is refused."""
    first, *others = rented
    message = f"{count_noun(first.hosts, 'host')} of {first.accelerator} on {first.where}, {first.market}: "
    message += format_price(first.price_per_hour) + (f" ({first.price_note})" if first.price_note else "")
    known = [other.price_per_hour for other in others if other.price_per_hour is not None]
    if others:
        most = f", up to {format_price(max(known))}" if known else ""
        message += f"; {count_noun(len(others), 'other choice')} if that is refused{most}"
    return message


def _is_free(candidate: Candidate) -> bool:
    return candidate.price_per_hour == 0 or isinstance(candidate.market, Owned)
