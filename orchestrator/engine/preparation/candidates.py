"""From a task's choices to candidates: one per place, with the details that only its driver understands. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NoReturn

from orchestrator.catalog.prices import Price, price_per_hour
from orchestrator.computing_limit import check_computing
from orchestrator.errors import UserError
from orchestrator.formatting import format_amount, format_price
from orchestrator.offers.capacity import SHOWN_WAIT, CapacityFigures, CapacityKey, make_key, order_equal_prices
from orchestrator.offers.estimates import HOUR, Estimate
from orchestrator.offers.offers import Offer, OfferTerms, find_front, make_offer
from orchestrator.plan.automatic import order_by_cost
from orchestrator.plan.spending_budget import name_market
from orchestrator.providers.places import find_first_price
from orchestrator.providers.protocol import Place
from orchestrator.providers.registry import load_planner
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.task.infra import HOSTS
from orchestrator.task.model import Task
from orchestrator.task.resources import Resources

_FEW_PLACES = 4  # that a note names


def list_candidates(
    task: Task, capacity: Mapping[CapacityKey, CapacityFigures] = MappingProxyType({}), *, alone: bool = True
) -> tuple[Candidate, ...]:
    """Return the candidates in the order in which they are tried.

    The order is the user's. With on-demand fallback, spot candidates follow once more on demand at the end. A choice
    without a zone becomes one candidate per zone known to have the machine, the cheapest first.

    Args:
        task: The task.
        capacity: What own requests say of places: among those of one choice and price the likelier are first.
        alone: Whether the task has no other candidates.

    Raises:
        UserError: A provider is not served, or no price is known any more of the machines that orch chose.
    """
    if task.differs_by_choice:
        several = len(task.choices) > 1
        parts = {part: list_candidates(part, capacity, alone=not several) for part in task.split()}
        if task.auto is not None:
            return _order_chosen(task, parts)
        return tuple(dict.fromkeys(one for found in parts.values() for one in found))
    choices = list(task.choices)
    if task.recovery.on_demand_fallback:
        choices += [choice.model_copy(update={"use_spot": False}) for choice in task.choices if choice.use_spot]
    placed = [
        (choice, place)
        for choice in choices
        for place in load_planner(choice.infra.provider).list_places(task, choice, market_of(choice))
    ]
    found: list[Candidate] = []
    for _, group in groupby(placed, key=lambda pair: id(pair[0])):
        own = [_candidate(task, choice, place, only=alone and len(placed) == 1) for choice, place in group]
        found += order_equal_prices(own, find_figures(own, capacity)) if capacity else own
    offer = restore_offer(task) if task.auto is not None and task.limits.max_cost is not None else None
    return tuple(one for one in dict.fromkeys(found) if offer is None or not _is_dearer(task, offer, one))


def have_equal_prices(candidates: Sequence[Candidate]) -> bool:
    """Return whether places of one machine and market have one price, so that something else may order them."""
    kinds = [(one.accelerator, one.market, one.price_per_hour) for one in candidates if one.price_per_hour != 0]
    return len(set(kinds)) < len(kinds)


def _order_chosen(task: Task, parts: Mapping[Task, tuple[Candidate, ...]]) -> tuple[Candidate, ...]:
    """Return the candidates that orch chose: by their cost, those on demand that are only for want of spot ones last.

    What is too dear for the whole run is left out; it is for its rest, after a loss. Where prices have risen or the
    budget is smaller since the choice, all may be too dear: then all stay, and the budget ends the run.
    """
    restored = {part: offer for part in parts if (offer := restore_offer(part)) is not None}
    most = task.limits.max_cost
    affordable = {part: offer for part, offer in restored.items() if most is None or offer.dollars.high <= most}
    pool = affordable or restored
    chosen = find_front(tuple(pool.values()))
    by_cost = order_by_cost({one: offer for part, offer in pool.items() for one in parts[part]})
    firm = {one for part, offer in pool.items() if offer not in chosen for one in parts[part]}
    ordered = tuple(sorted(by_cost, key=lambda one: one in firm))
    if not ordered:
        _refuse_unpriced(task, [one for found in parts.values() for one in found])
    return ordered


def _refuse_unpriced(task: Task, candidates: Sequence[Candidate]) -> NoReturn:
    """Raise that the cost is unknown on all machines that were chosen for a task, with the price now and the budget."""
    price = min((one.price_per_hour for one in candidates if one.price_per_hour is not None), default=None)
    most = task.limits.max_cost
    raise UserError(
        "what this costs on the machines that were chosen for it is not known any more",
        f"cheapest now: {format_price(price)}" + ("" if most is None else f"; budget: {format_amount(most)}"),
        "launch the task file again with a larger --budget; orch offers shows what fits",
    )


def _is_dearer(task: Task, offer: Offer, candidate: Candidate) -> bool:
    """Return whether a place is dearer than what its machines were chosen for, beyond the budget."""
    most = task.limits.max_cost
    if most is None:
        return False
    price = candidate.price_per_hour
    return price is None or (price > offer.price_per_hour[1] and price * offer.seconds.high / HOUR > most)


def restore_offer(task: Task) -> Offer | None:
    """Return the offer of a task with one candidate, at the prices of now; None where orch did not choose it."""
    choice = task.choices[0]
    estimate, market = choice.estimate, market_of(choice)
    if estimate is None or len(estimate.step_seconds) != 2:
        return None
    price = find_cheapest_price(task, choice, market)
    if price is None:
        return None
    low, high = estimate.step_seconds
    terms = OfferTerms(
        machine=choice.machine,
        nodes=task.num_nodes,
        market=market,
        price_per_hour=(task.num_nodes * price.low, task.num_nodes * price.high),
        price_note=price.note,
        settings=tuple(f"{key}={value}" for key, value in (task.train.args if task.train is not None else ())),
        steps=estimate.steps,
        step_seconds=Estimate.between(low, high),
        speed_source=estimate.source,
        losses_per_hour=estimate.losses_per_hour,
    )
    return make_offer(terms)


def find_cheapest_price(task: Task, choice: Resources, market: Market) -> Price | None:
    """Return the price of one slice or instance in the cheapest place of a choice; None where none is known."""
    places = load_planner(choice.infra.provider).list_places(task, choice, market)  # the cheapest first
    return find_first_price(choice.machine, market, places)


def find_figures(
    candidates: Sequence[Candidate], capacity: Mapping[CapacityKey, CapacityFigures]
) -> dict[Candidate, CapacityFigures]:
    """Return what own requests say of candidates, of those where they say anything."""
    keys = {one: make_key(one, name_market(one.market)) for one in candidates}
    return {one: capacity[key] for one, key in keys.items() if key in capacity}


def explain_order(candidates: Sequence[Candidate], capacity: Mapping[CapacityKey, CapacityFigures]) -> tuple[str, ...]:
    """Return a note for a plan where own requests changed the order of places; none where they did not."""
    found = [(one, figures) for one, figures in find_figures(candidates, capacity).items() if one.zone or one.region]
    known = [(one, figures) for one, figures in found if figures.chance_within(SHOWN_WAIT) is not None]
    if not known or len(candidates) == 1:
        return ()
    places = "; ".join(f"{one.where}: {figures}" for one, figures in known[:_FEW_PLACES])
    return (f"places of the same price are tried by our records of the last weeks: {places}",)


def market_of(choice: Resources) -> Market:
    """Return the market in which a choice asks for its machines."""
    if choice.infra.provider == HOSTS:
        return Owned()
    args = choice.accelerator_args
    if args.provisioning == "capacity-block" and not choice.infra.owned:
        return CapacityBlock(args.reservation)
    if args.reservation and not choice.infra.owned:
        return Reservation(args.reservation)
    if args.provisioning == "flex-start" and args.max_run_hours and not choice.infra.owned:
        return FlexStart(args.max_run_hours)
    return Spot() if choice.use_spot else OnDemand()


def _candidate(task: Task, choice: Resources, place: Place, *, only: bool) -> Candidate:
    check_computing()
    machine, market = choice.machine, market_of(choice)
    planner = load_planner(choice.infra.provider)
    price = price_per_hour(machine, market, place.region, place.zone)
    units = 1 if isinstance(market, Owned) else task.num_nodes
    return Candidate(
        provider=choice.infra.provider,
        accelerator=machine.name,
        hosts=task.count_hosts(choice),
        chips_per_host=machine.chips_per_host,
        market=market,
        region=place.region,
        zone=place.zone,
        price_per_hour=price.times(units).high if price is not None else None,
        price_note=price.plan_note if price is not None else "",
        disk_gib=choice.disk_size,
        details=planner.list_details(task, choice, market, place, only=only),
    )
