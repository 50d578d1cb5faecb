"""Render a plan as versioned JSON for programs, described by data/plan.schema.json.

A value known only later is {"unknown": "what it is"}, a secret is {"secret": "its name"}, and a text with such parts
among plain ones is {"parts": [...]}. Host ranks are ranges ("0-3,7") with a count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeAlias, cast

from orchestrator.errors import OrchError
from orchestrator.next_step import NextStep
from orchestrator.offers.estimates import Estimate
from orchestrator.plan import preview_format as fmt
from orchestrator.plan.actions import Action
from orchestrator.plan.desired import AutomaticChoice, Desired, Run
from orchestrator.plan.dry_run import Plan
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.ranks import format_ranks
from orchestrator.plan.steps import Done, GiveUp, Wait
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.values import Part, Secret, Text, Unknown

VERSION = 1
MOST_HOSTS_LISTED = 64  # larger slices show the first and the last host only


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a pipeline: its plan, and what render_json takes beside it."""

    plan: Plan
    advice: Sequence[Mapping[str, Any]] = ()
    refusal: OrchError | None = None


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def render_json(
    plan: Plan,
    *,
    command: str = "",
    advice: Sequence[Mapping[str, Any]] = (),
    refusal: OrchError | None = None,
) -> str:
    """Return the preview as one JSON document, ASCII only. `advice` and `refusal` appear only where there are some."""
    document = _document(plan, command, advice, refusal)
    return json.dumps(document, indent=2) + "\n"


def render_json_stages(stages: Sequence[Stage], *, name: str, command: str = "") -> str:
    """Return the previews of a pipeline's stages as one JSON document, in the order in which they run."""
    plans: list[Json] = [_document(one.plan, command, one.advice, one.refusal) for one in stages]
    document: dict[str, Json] = {"version": VERSION, "kind": "plans", "name": name, "command": command, "plans": plans}
    return json.dumps(document, indent=2) + "\n"


def _document(
    plan: Plan, command: str, advice: Sequence[Mapping[str, Any]], refusal: OrchError | None
) -> dict[str, Json]:
    document: dict[str, Json] = {
        "version": VERSION,
        "kind": "plan",
        "wanted": _request_json(plan.desired),
        "command": command,
        "steps": [_step(step, plan.now) for step in plan.steps],
        "ending": _ending(plan.ending),
    }
    if advice:
        document["advice"] = [dict(one) for one in advice]
    if refusal is not None:
        document["refusal"] = {
            "status": int(refusal.exit_status),
            "code": refusal.code,
            "what": refusal.what,
            "why": refusal.why,
            "next_step": refusal.next_step,
        }
    return document


def _request_json(desired: Desired) -> dict[str, Json]:
    head: dict[str, Json] = {"verb": fmt.name_verb(desired), "cluster": desired.cluster}
    if not isinstance(desired, Run):
        return head
    budgets = desired.budgets
    head["candidates"] = [_candidate(candidate) for candidate in desired.candidates]
    head["restarts"] = {
        "preemptions": budgets.preemptions,
        "failures": budgets.failures,
        "storage_failures": budgets.storage,
    }
    head["recovery"] = {
        "strategy": budgets.strategy.value,
        "restart_on_exit_codes": list(budgets.restart_on),
        "fail_on_exit_codes": [*budgets.fail_on, *budgets.final],
        "capacity_wait_seconds": budgets.capacity_wait,
        "first_capacity_wait_seconds": budgets.capacity_wait_first,
        "hang_seconds": budgets.hang_deadline or None,
    }
    head["limits"] = {"hours": desired.limits.hours, "dollars": desired.limits.dollars}
    head["afterwards"] = desired.teardown.value
    head["idle"] = _idle(desired)
    if desired.grow:
        head["grow"] = True
    if desired.automatic is not None:
        head["automatic"] = _automatic(desired.automatic, desired)
    return head


def _automatic(request: AutomaticChoice, run: Run) -> Json:
    """Return what limits the choice of machines, and each offer that was chosen."""
    chosen = set(run.candidates)
    later = [one for one in run.possible if one not in chosen]
    return {
        "budget": request.budget,
        "by": request.by,
        "offers": [
            {
                "machine": offer.machine.name,
                "nodes": offer.nodes,
                "market": _market(offer.market),
                "seconds": _estimate(offer.seconds),
                "dollars": _estimate(offer.dollars),
                "settings": list(offer.settings),
                "first": any(one in chosen for one in variant.candidates),
            }
            for variant in run.variants
            if (offer := variant.offer) is not None
        ],
        "after_loss": [_candidate(one) for one in later],
    }


def _estimate(found: Estimate) -> Json:
    return {"low": found.low, "typical": found.typical, "high": found.high}


def _idle(run: Run) -> Json:
    """Return what the hosts do by themselves without a job, or None for nothing."""
    if run.timer is None or run.timer.idle_minutes is None:
        return None
    return {"minutes": run.timer.idle_minutes, "then": "stop" if run.timer.stops else "delete"}


def _step(step: Action | Wait, now: float) -> dict[str, Json]:
    if isinstance(step, Wait):
        most = None if step.until is None else step.until - now
        return {"do": "wait", "on": step.on.value, "reason": step.reason, "at_most_seconds": most}
    shown: dict[str, Json] = {"do": _kind(step)}
    for field in fields(step):
        value: object = getattr(step, field.name)
        if field.name == "ranks":
            ranks = cast(tuple[int, ...], value)
            shown["hosts"] = {"ranks": format_ranks(ranks), "count": len(ranks)}
        elif isinstance(value, NextStep):
            shown |= value.as_json()
        elif isinstance(value, HostEnvironment):
            shown[field.name] = _environment(value, fmt.list_action_ranks(step))
        else:
            shown[field.name] = _value(value)
    return shown


def _kind(action: Action) -> str:
    """Return the name of an action in JSON: CreateSlice -> create_slice."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(action).__name__).lower()


def _ending(ending: Done | GiveUp) -> dict[str, Json]:
    if isinstance(ending, Done):
        return {"kind": "done", "status": int(ending.status), "message": ending.message}
    return {
        "kind": "give_up",
        "status": int(ending.status),
        "code": ending.code,
        "what": ending.what,
        "why": ending.why,
        **ending.next_step.as_json(),
    }


def _environment(environment: HostEnvironment, ranks: tuple[int, ...]) -> dict[str, Json]:
    """Return the shared variables once, and those that differ per host, or for both ends of a large slice."""
    if not ranks:
        return {"common": {}, "per_host": {}}
    varying = dict(environment.per_rank(ranks[0]))
    common: dict[str, Json] = {
        name: _text(value) for name, value in environment.for_rank(ranks[0]) if name not in varying
    }
    listed = len(environment.internal_ips) <= MOST_HOSTS_LISTED
    shown = ranks if listed else tuple(sorted({ranks[0], ranks[-1]}))
    per_host: dict[str, Json] = {str(rank): dict(environment.per_rank(rank)) for rank in shown}
    return {"common": common, "per_host" if listed else "first_and_last_host": per_host}


def _candidate(candidate: Candidate) -> dict[str, Json]:
    shown: dict[str, Json] = {}
    for field in fields(candidate):
        value: object = getattr(candidate, field.name)
        if field.name == "market":
            shown["market"] = _market(cast(Market, value))
        elif field.name == "details":
            shown["details"] = dict(cast(tuple[tuple[str, str], ...], value))
        else:
            shown[field.name] = _value(value)
    return shown


def _market(market: Market) -> dict[str, Json]:
    match market:
        case OnDemand():
            return {"kind": "on_demand"}
        case Spot():
            return {"kind": "spot"}
        case Owned():
            return {"kind": "owned"}
        case Reservation(name=name):
            return {"kind": "reservation", "name": name}
        case FlexStart(hours=hours):
            return {"kind": "flex_start", "hours": hours}
        case CapacityBlock(reservation_id=name):
            return {"kind": "capacity_block", "name": name}


def _value(value: object) -> Json:
    """Convert any value of an action or of a request's body."""
    if isinstance(value, Text):
        return _text(value)
    if isinstance(value, Candidate):
        return _candidate(value)
    if isinstance(value, Mapping):
        mapping = cast(Mapping[object, object], value)
        return {str(key): _value(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in cast(Sequence[object], value)]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # an IntEnum too
    if isinstance(value, StrEnum):
        return value.value
    if value is None or isinstance(value, bool | float | str):
        return value
    return _fields(value)


def _fields(value: object) -> dict[str, Json]:
    """Convert a dataclass by its fields. Labels are pairs of names and texts, and become an object."""
    shown: dict[str, Json] = {}
    for field in fields(value):  # type: ignore[arg-type]  # every other value in an action is a dataclass
        item: object = getattr(value, field.name)
        if field.name == "labels":
            shown["labels"] = {name: _text(label) for name, label in cast(tuple[tuple[str, Text], ...], item)}
        elif field.name == "gives":
            given = cast(tuple[tuple[Unknown, str], ...], item)
            shown["gives"] = [{"unknown": known.what, "path": path} for known, path in given]
        else:
            shown[field.name] = _value(item)
    return shown


def _text(value: Text) -> Json:
    if not value.parts:
        return ""
    if len(value.parts) == 1:
        return _part(value.parts[0])
    return {"parts": [_part(part) for part in value.parts]}


def _part(part: Part) -> Json:
    if isinstance(part, Unknown):
        return {"unknown": part.what}
    return {"secret": part.name} if isinstance(part, Secret) else part
