"""The machines of a draft: what `orch offers` shows for it, and what a task has on those that were chosen."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.choosing import Amount, Requirements, choose_machine
from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price, price_per_hour
from orchestrator.engine.preparation.candidates import find_cheapest_price, list_candidates
from orchestrator.engine.training.offers import MachineGroup, list_offers, time_training
from orchestrator.engine.training.work import OwnProgram, Training, read_training
from orchestrator.errors import UserError
from orchestrator.formatting import parse_count, parse_deadline
from orchestrator.offers.offers import Offer, OfferRequest, OfferTerms, choose_offers, make_offer
from orchestrator.plan.spending_budget import name_market
from orchestrator.setup_guide.draft import MOST_HOSTS, Draft
from orchestrator.slices import OnDemand, Spot
from orchestrator.task.automatic import AUTO
from orchestrator.task.errors import FileError
from orchestrator.task.infra import HOSTS
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task
from orchestrator.task.trainer_settings import load_settings

_SMALL_BATCH = 32  # rows of a step on processors
_CPU = Requirements(cpus=Amount(2, or_more=True), memory=Amount(4, or_more=True))
_SOME_FLOPS = 1e18  # of a program whose size is not known: its offers have no time and no cost that are shown

Settings = tuple[tuple[str, str], ...]
"""Settings of the trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftMachines:
    """The machines that a task names, and the trainer's settings on them.

    Attributes:
        settings: Of the trainer.
        machine: One of them; None where orch chooses.
        every: Steps between two checkpoints at which saves and repeated steps cost least; None where it is not known.
        price: US dollars an hour for all of them, the highest that was seen; None where it is not known.
        offer: Their time and cost; None where they are not known. Where orch chooses, those of its first choice.
        unpriced: Whether they may be rented in a place whose price is not known.
    """

    settings: Settings = ()
    machine: Machine | None = None
    every: int | None = None
    price: float | None = None
    offer: Offer | None = None
    unpriced: bool = False


def make_request(draft: Draft) -> OfferRequest:
    """Return what limits the choice of machines for a draft."""
    now = time.time()
    market = () if draft.use_spot is None else ("spot" if draft.use_spot else "on-demand",)
    return OfferRequest(
        seconds=max(1.0, parse_deadline(draft.by, now) - now) if draft.by else None,
        budget=draft.budget,
        only=(draft.place.provider, *market),
        region=draft.place.region,
        zone=draft.place.zone,
    )


def list_draft_offers(draft: Draft) -> tuple[Offer, ...]:
    """Return the machines that `orch offers` shows for the draft's work, budget and deadline; none where nothing fits.

    Raises:
        OrchError: The estimate cannot be made.
    """
    return choose_offers(list_possible_offers(draft), make_request(draft))


def list_possible_offers(draft: Draft) -> tuple[Offer, ...]:
    """Return every way to run the draft's work in its place, whatever the time and the cost, in no order."""
    found = list_offers(_read_work(draft), make_request(draft))
    return tuple(one for one in found if draft.num_nodes in (1, one.nodes))


def list_cheapest_machines(draft: Draft) -> tuple[tuple[Machine, float], ...]:
    """Return the cheapest machine for each size of a chip's memory, and one without chips, with the price of an hour.

    For an own program whose needs are not known. The budget is for an hour.
    """
    request, spot = make_request(draft), bool(draft.use_spot)
    only = (draft.place.provider, "spot" if spot else "on-demand")
    some = list_offers(
        OwnProgram(flops=_SOME_FLOPS, memory_gib=0.0), OfferRequest(only=only, region=request.region, zone=request.zone)
    )
    found = [(one.machine, one.price_per_hour[1]) for one in some if one.nodes == 1]
    cpu = choose_machine("", _CPU, draft.place.provider, request.region)
    if cpu is not None and (price := price_per_hour(cpu.machine, Spot() if spot else OnDemand(), request.region)):
        found.append((cpu.machine, price.high))
    cheapest: dict[float, tuple[Machine, float]] = {}
    for machine, each in sorted(found, key=lambda one: (one[1], one[0].name)):
        if draft.budget is None or each * draft.num_nodes <= draft.budget:
            cheapest.setdefault(machine.hbm_gib_per_chip, (machine, each * draft.num_nodes))
    return tuple(cheapest.values())


def find_machines(draft: Draft) -> DraftMachines:
    """Return the machines that were answered, with the trainer's settings on them; budget and time limit nothing.

    Raises:
        UserError: There are no such machines in the place, or the model does not fit them.
    """
    found = _find_machines(draft)
    if draft.machine == AUTO or not draft.rents:  # auto chooses by prices, so it knows them
        return found
    return replace(found, unpriced=any(one.price_per_hour is None for one in list_candidates(_read(draft))))


def _find_machines(draft: Draft) -> DraftMachines:
    if draft.machine == AUTO:
        offers = list_draft_offers(draft) if draft.knows_work else ()
        model = (("model", draft.model),) if draft.model else ()
        return DraftMachines(settings=model, offer=offers[0] if offers else None)
    task = _read(draft)
    machine, nodes = task.choices[0].machine, max(1, len(draft.hosts) or draft.num_nodes)
    price = find_market_price(draft, spot=bool(draft.use_spot), task=task)
    whole = (nodes * price.low, nodes * price.high) if price is not None and draft.rents else None
    hourly = whole[1] if whole else None
    market = Spot() if draft.use_spot else OnDemand()
    if not draft.knows_work:
        return DraftMachines(machine=machine, price=hourly)
    work = _read_work(draft, nodes * max(machine.chips * machine.devices_per_chip, machine.hosts, 1), machine)
    if isinstance(work, OwnProgram):
        request = replace(
            make_request(draft), only=(machine.provider, name_market(market), machine.name), most_hosts=MOST_HOSTS
        )
        found = list_offers(work, request) if machine.chips and machine.listed and draft.rents else ()
        return DraftMachines(
            machine=machine, price=hourly, offer=next((one for one in found if one.nodes == nodes), None)
        )
    if not machine.chips:
        return DraftMachines(machine=machine, settings=_list_run_settings(work, ()), price=hourly)
    group = MachineGroup(machine, nodes)
    speed = time_training(work, [group]).get(group.name)
    if speed is None:
        why = "its step needs more memory than a chip has, or its speed there is not known"
        raise UserError(f"the model {draft.model} does not fit {group.name}", why, "more memory, or a smaller model")
    terms = OfferTerms(
        machine=machine,
        nodes=nodes,
        market=market,
        price_per_hour=whole or (0.0, 0.0),
        price_note=price.note if price else "",
        settings=speed.settings,
        steps=speed.steps,
        step_seconds=speed.step,
        speed_source=speed.source,
        speed_origin=speed.origin,
    )
    offer = make_offer(terms)
    return DraftMachines(
        machine=machine,
        settings=_list_run_settings(work, speed.settings),
        every=offer.save_every if offer else None,
        price=hourly,
        offer=offer if whole else None,
    )


def find_market_price(draft: Draft, *, spot: bool, task: Task | None = None) -> Price | None:
    """Return the price of one of the draft's machines where they cost least; None where it is not known."""
    task = task or _read(draft)
    return find_cheapest_price(task, task.choices[0], Spot() if spot else OnDemand()) if draft.rents else None


def machine_key(infra: str, name: str) -> str:
    """Return the field of a task's resources that names a machine."""
    if infra == HOSTS:
        return "accelerators"
    try:
        machine = resolve(name)
    except UserError:
        return "accelerators"  # whose error says what is wrong
    return "instance_type" if machine.is_instance_type and machine.name == name else "accelerators"


def make_resources(draft: Draft) -> dict[str, Any]:
    """Return the resources of the draft's task."""
    found: dict[str, Any] = {"infra": draft.infra or ""}
    if draft.machine == AUTO:
        limits = {"budget": draft.budget, "by": draft.by}
        needs = {"tokens": draft.tokens} if draft.model else {"flops": draft.flops, "memory": draft.memory}
        auto = {key: value for key, value in {**limits, **needs}.items() if value}
        found |= {"accelerators": AUTO, **({"auto": auto} if auto else {})}
    elif draft.machine:
        found[machine_key(found["infra"], draft.machine)] = draft.machine
    return found | ({"use_spot": draft.use_spot} if draft.use_spot or _excludes_spot(draft) else {})


def _excludes_spot(draft: Draft) -> bool:
    return draft.machine == AUTO and draft.use_spot is not None


def _read_work(draft: Draft, devices: int = 1, machine: Machine | None = None) -> Training | OwnProgram:
    """Return the work of a draft; on a machine that was chosen its batch divides over all devices.

    Without chips the rows are those of the model, and few: what is usual on accelerators would take days.
    """
    if not draft.model:
        return OwnProgram(flops=parse_count(draft.flops), memory_gib=draft.memory)
    tokens = float(draft.tokens or 0)
    usual = read_training((), model=draft.model, tokens=tokens)
    if machine is None:
        return usual
    batch, row = int(dict(_pairs(usual.settings))["batch"]), None
    if not machine.chips or not draft.rents:
        known = load_settings()
        batch, row = _SMALL_BATCH, int(known.presets[draft.model].get("seq_len", known.keys["seq_len"].default))
    rounded = devices * -(-batch // devices)
    return read_training((), model=draft.model, seq=row, batch=rounded, tokens=tokens)


def _list_run_settings(work: Training, added: Sequence[str]) -> Settings:
    """Return the work's settings with those of a machine, and the number of steps."""
    settings = dict(_pairs((*work.settings, *added)))
    steps = work.count_steps(float(settings["batch"]) * float(settings["seq_len"]))
    return (*settings.items(), ("steps", str(steps)))


def _pairs(words: Sequence[str]) -> Settings:
    return tuple((key, value) for key, _, value in (word.partition("=") for word in words))


def _read(draft: Draft) -> Task:
    """Return a task on the draft's machines.

    Raises:
        UserError: There are no such machines in the place and market.
    """
    document: dict[str, Any] = {"resources": make_resources(draft), "run": "true"}
    if draft.hosts:
        document["hosts"] = {"addresses": list(draft.hosts)}
    elif draft.num_nodes > 1:
        document["num_nodes"] = draft.num_nodes
    try:
        return parse_task(json.dumps(document), file="task", env={}).only
    except FileError as error:
        first = error.problems[0]
        raise UserError(first.what, first.why, first.next_step) from error
