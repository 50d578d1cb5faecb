"""Machines whose record is lost: found by their labels in every place, and ended by their intent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.catalog.accelerators import resolve_reported
from orchestrator.catalog.prices import price_per_hour
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.sweep import END_DEADLINE, PlaceFindings, end_slice, judge_again, open_place
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.names import member_label
from orchestrator.errors import CloudError, ConflictError, NotFoundError, UserError
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.plan.sweep import SweepVerdict, SweptSlice
from orchestrator.project import DEFAULT_PROJECT, qualify_name
from orchestrator.slices import OnDemand, OwnedSlice, SliceState, Spot
from orchestrator.store.store import Store


@dataclass(frozen=True, slots=True)
class LostSlice:
    """A slice that may be ended here, and the place in which it was found."""

    finding: PlaceFindings
    swept: SweptSlice

    @property
    def slice(self) -> OwnedSlice:
        """The slice."""
        return self.swept.slice


def find_price_per_hour(found: OwnedSlice) -> float | None:
    """Return the list price of a slice's machines in dollars an hour; None when it is not known."""
    if found.where.startswith("local"):
        return 0.0
    region = found.where.split("/")[1] if "/" in found.where else ""
    try:
        machine = resolve_reported(found.machine)
        price = price_per_hour(machine, Spot() if found.spot else OnDemand(), region)
    except UserError:  # not in the catalogue
        return None
    return price.times(found.count).low if price is not None and not price.is_range else None


def find_own_lost(store: Store, swept: Sequence[SweptSlice]) -> OwnedSlice | None:
    """Return the first lost slice whose labels are of this store, or of this person and project; None without one.

    Any other one may be a colleague's, and in use.
    """
    person, project = member_label(store.user), store.project
    for one in swept:
        found = one.slice
        by_person = found.member == person and (found.project or DEFAULT_PROJECT) == project
        if one.lost and (found.installation == store.installation or by_person):
            return found
    return None


def select_named(findings: Sequence[PlaceFindings], name: str, intent: str = "") -> list[LostSlice]:
    """Return the slices of a cluster or of this name, with `intent` only that one."""
    return [
        LostSlice(finding, one)
        for finding in findings
        for one in finding.judged
        if name in (one.slice.cluster, one.slice.name) and intent in ("", one.slice.intent)
    ]


def choose_lost_slice(
    findings: Sequence[PlaceFindings], name: str, intent: str = "", option: str = "--end"
) -> LostSlice:
    """Return the one slice of this name that our store does not track.

    Raises:
        NotFoundError: There is none.
        CloudError: There is none where it was looked for, and a place did not answer.
        ConflictError: Our store tracks it.
        UserError: There are several, or it has no intent label.
    """
    found = [one for one in select_named(findings, name, intent) if one.swept.verdict is not SweepVerdict.LEAVING]
    lost = [one for one in found if one.swept.verdict is not SweepVerdict.TRACKED]
    if found and not lost:
        cluster = found[0].slice.cluster
        raise ConflictError(f"'{name}' is on record here", "this command is for lost records", f"orch down {cluster}")
    if not lost:
        silent = [one.described for one in findings if one.problem is not None]
        if silent:
            where = ", ".join(silent)
            raise CloudError(f"'{name}' was not found", f"these could not be asked: {where}", "orch recover")
        raise NotFoundError(f"no slice '{name}' carries a label of orch", "", "orch recover   lists those that do")
    if len(lost) > 1:
        shown = ", ".join(f"{one.slice.intent} in {one.slice.where}" for one in lost)
        raise UserError(
            f"{len(lost)} slices are called '{name}'", shown, f"orch recover {name} {option} --intent INTENT"
        )
    if not lost[0].slice.intent:
        raise UserError(f"'{name}' has no intent label", "nothing can be done to it by its identity", "end it by hand")
    return lost[0]


def end_lost_slice(store: Store, services: Services, narrator: Narrator, lost: LostSlice) -> None:
    """End a slice by its exact intent, and return when its place does not list it any more.

    Raises:
        ConflictError: Our store tracks it by now, or another command is at it.
        OrchError: It could not be ended.
    """
    found, again = lost.slice, f"orch recover {lost.slice.cluster or lost.slice.name} --end"
    began = services.clock.now()

    def report(state: SliceState, seconds: float) -> None:
        keeper.hold()
        wait = Wait(on=WaitFor.SLICE, reason=f"ending {found.name} (state: {state})", until=began + END_DEADLINE)
        narrator.waiting(wait, seconds)

    qualified = qualify_name(found.project or DEFAULT_PROJECT, found.cluster or found.name)
    with LeaseKeeper(store, found.intent, "recover", narrator, kind="intent") as keeper:
        keeper.hold()
        while (still := judge_again(store, services, narrator, lost.finding, found)) is not None:
            if still.verdict is SweepVerdict.TRACKED:
                raise ConflictError(f"'{found.name}' is on record here", "", f"orch down {found.cluster}")
            if still.verdict is SweepVerdict.LEAVING:
                break
            if services.clock.now() - began > END_DEADLINE:
                raise CloudError(f"'{found.name}' is still listed", f"after {END_DEADLINE:.0f} s", again)
            store.event(qualified, "recover", f"{found.name} ({found.intent}) on {found.where} is being ended")
            place = open_place(services, lost.finding)
            end_slice(place, services.clock, found.name, found.intent, report, again)
        store.event(qualified, "recover", f"{found.name} ({found.intent}) is deleted")
