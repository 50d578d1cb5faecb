"""From a task's choices to candidates: one per place, with the details that only its driver understands. No I/O."""

from __future__ import annotations

from orchestrator.catalog.prices import price_per_hour
from orchestrator.providers.protocol import Place
from orchestrator.providers.registry import load_planner
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.task.infra import HOSTS
from orchestrator.task.model import Task
from orchestrator.task.resources import Resources


def list_candidates(task: Task) -> tuple[Candidate, ...]:
    """Return the candidates in the order in which they are tried.

    The order is the user's. With on-demand fallback, spot candidates follow once more on demand at the end. A choice
    without a zone becomes one candidate per zone known to have the machine, the cheapest first.

    Raises:
        UserError: A provider is not served.
    """
    choices = list(task.choices)
    if task.recovery.on_demand_fallback:
        choices += [choice.model_copy(update={"use_spot": False}) for choice in task.choices if choice.use_spot]
    placed = [
        (choice, place)
        for choice in choices
        for place in load_planner(choice.infra.provider).list_places(task, choice, market_of(choice))
    ]
    found = [_candidate(task, choice, place, only=len(placed) == 1) for choice, place in placed]
    return tuple(dict.fromkeys(found))


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
    machine, market = choice.machine, market_of(choice)
    planner = load_planner(choice.infra.provider)
    price = price_per_hour(machine, market, place.region)
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
        price_note=price.note if price is not None else "",
        disk_gib=choice.disk_size,
        details=planner.list_details(task, choice, market, place, only=only),
    )
