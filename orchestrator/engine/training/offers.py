"""Every machine of the catalogue on which a run fits, with its time and cost. The trainer computes them in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from orchestrator.catalog.attached import find_attached_prices
from orchestrator.catalog.buckets import BucketPlace
from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price
from orchestrator.catalog.rented import load_tables
from orchestrator.engine.training.compiled_steps import load_compiled_speeds
from orchestrator.engine.training.machine_advice import MachineKind, describe_hardware, name_machines, request_advice
from orchestrator.engine.training.work import OwnProgram, Training
from orchestrator.errors import UserError
from orchestrator.offers.capacity import ANYWHERE, CapacityFigures, CapacityKey
from orchestrator.offers.estimates import Estimate
from orchestrator.offers.offers import Offer, OfferRequest, OfferTerms, make_offer
from orchestrator.offers.other_costs import UNKNOWN_SIZES, OtherCosts, RunSizes, find_other_costs
from orchestrator.offers.own_speeds import OwnSpeed
from orchestrator.offers.price_doubts import find_price_doubts
from orchestrator.offers.speed_choice import CompiledSpeed, SpeedSource, choose_speed
from orchestrator.providers.places import PricedPlace, find_cheapest_place
from orchestrator.slices import Candidate, Market, OnDemand, Spot
from orchestrator.task.errors import did_you_mean

MARKETS: Mapping[str, Market] = {"on-demand": OnDemand(), "spot": Spot()}  # by their names in spending_budget.MARKETS


@dataclass(frozen=True, slots=True)
class MachineGroup:
    """Equal machines or slices."""

    machine: Machine
    nodes: int

    @property
    def name(self) -> str:
        """Their name, such as `4 x p5.48xlarge`."""
        return name_machines(self.machine, self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a run is on machines, and with which settings. The fields are those of Offer.

    Attributes:
        sizes: Of what it stores and reads.
    """

    step: Estimate
    steps: int
    settings: tuple[str, ...]
    source: str
    origin: SpeedSource
    sizes: RunSizes = UNKNOWN_SIZES


def list_offers(
    work: Training | OwnProgram,
    request: OfferRequest,
    capacity: Mapping[CapacityKey, CapacityFigures] = MappingProxyType({}),
    speeds: Sequence[OwnSpeed] = (),
) -> tuple[Offer, ...]:
    """Return each way to run on rented machines whose price is known, in no order.

    Args:
        work: What is to be run.
        request: What limits the choice.
        capacity: What own requests say of machines.
        speeds: Of own runs: they go before the table.

    Raises:
        UserError: The trainer refuses the settings, or a word of `only` means nothing.
    """
    groups = list(_list_machines(request.most_hosts))
    choice = _Choice.sort(request.only, groups)
    if request.clouds and not choice.clouds:
        choice = replace(choice, clouds=frozenset(request.clouds))
    prices = dict(_find_prices([one.machine for one in groups], choice, request))
    machines = {one.machine.name: one.machine for one in groups}
    doubts = find_price_doubts(tuple(machines.values()), {key: one.price for key, one in prices.items()})
    groups = [one for one in groups if any((one.machine.name, word) in prices for word in MARKETS)]
    found = time_training(work, groups, speeds) if isinstance(work, Training) else _time_program(work, groups)
    return tuple(
        offer
        for one in groups
        if (speed := found.get(one.name)) is not None
        for word in MARKETS
        if (price := prices.get((one.machine.name, word))) is not None
        and (
            offer := _make_offer(
                one, word, price, speed, capacity, bucket=request.bucket, doubt=doubts.get((one.machine.name, word), "")
            )
        )
        is not None
    )


def _list_machines(most_hosts: int) -> Iterator[MachineGroup]:
    """Yield every machine with accelerators, and several of those that are the largest of their chip."""
    with_chips = {machine.name: machine for machine in _read_machines() if machine.chips and machine.listed}
    largest: dict[tuple[str, str], int] = {}
    for machine in with_chips.values():
        key = machine.provider, machine.chip
        largest[key] = max(largest.get(key, 0), machine.chips_per_host)
    for machine in with_chips.values():
        if machine.hosts <= most_hosts:
            yield MachineGroup(machine, 1)
        whole = not machine.node_is_slice and machine.chips_per_host == largest[machine.provider, machine.chip]
        yield from (MachineGroup(machine, nodes) for nodes in (2, 4, 8, 16, 32, 64) if whole and nodes <= most_hosts)


def _read_machines() -> Iterator[Machine]:
    """Yield the machines of all tables, each once; those that are named in full by the spelling of their cloud."""
    for table in load_tables():
        listed = {machine.name: machine for machine in table.list_machines()}
        yield from listed.values()
        names = (name for name in table.list_common_names() if name not in listed and ":" not in name)  # NAME:COUNT
        for name in dict.fromkeys(map(table.spell, names)):
            if (machine := table.find_rented(name)) is not None:
                yield machine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The words of `only` by their kind: of each kind that was given one has to fit, so two clouds and spot is both."""

    clouds: frozenset[str]
    markets: frozenset[str]
    machines: frozenset[str]

    @classmethod
    def sort(cls, words: Sequence[str], groups: Sequence[MachineGroup]) -> _Choice:
        """Sort words. Raises UserError for one that is none of a cloud, a market, a chip and a machine."""
        clouds = {one.machine.provider for one in groups}
        names = {name for one in groups for name in _list_names(one.machine)}
        given = {word.lower() for word in words}
        if unknown := sorted(given - clouds - MARKETS.keys() - names):
            near = did_you_mean(unknown[0], [*sorted(clouds), *MARKETS, *sorted(names)])
            hint = f"did you mean {near}? " if near else ""
            known = f"{hint}clouds are {', '.join(sorted(clouds))}; markets are {', '.join(MARKETS)}"
            raise UserError(f"`{unknown[0][:60]}` is not a cloud, market, chip or machine", known, "orch accelerators")
        return cls(
            clouds=frozenset(given & clouds),
            markets=frozenset(given & MARKETS.keys()),
            machines=frozenset(given & names),
        )

    def fits(self, machine: Machine, market: str) -> bool:
        """Whether a machine in a market is chosen."""
        return (
            (not self.clouds or machine.provider in self.clouds)
            and (not self.markets or market in self.markets)
            and (not self.machines or not self.machines.isdisjoint(_list_names(machine)))
        )


def _list_names(machine: Machine) -> tuple[str, ...]:
    """Return the words of `only` that mean a machine: its name, its chip, and the chip with their number."""
    if not machine.chip:
        return (machine.name.lower(),)
    return machine.name.lower(), machine.chip.lower(), f"{machine.chip}:{machine.chips}".lower()


def _find_prices(
    machines: Sequence[Machine], choice: _Choice, request: OfferRequest
) -> Iterator[tuple[tuple[str, str], PricedPlace]]:
    """Yield the price of each machine and market that is chosen, in the place where a launch would ask first."""
    for machine in {one.name: one for one in machines}.values():
        for word, market in MARKETS.items():
            if choice.fits(machine, word):
                found = find_cheapest_place(machine, market, request.region, request.zone)
                if found is not None:
                    yield (machine.name, word), found


def time_training(work: Training, groups: Sequence[MachineGroup], speeds: Sequence[OwnSpeed] = ()) -> dict[str, Speed]:
    """Return the speed on each group, by its name; those on which the run does not fit are left out.

    Raises:
        UserError: The trainer refuses the settings.
    """
    compiled = load_compiled_speeds()
    kinds = [
        MachineKind(
            describe_hardware(
                one.machine, nodes=one.nodes, hosts=one.nodes * one.machine.hosts, kind=one.machine.device
            ),
            work.settings,
        )
        for one in groups
    ]
    return {
        advice["hardware"]["name"]: speed
        for advice in (request_advice(kinds, fastest=True) if kinds else ())
        if (speed := _read_speed(work, advice, speeds, compiled)) is not None
    }


def _read_speed(
    work: Training, advice: Mapping[str, Any], speeds: Sequence[OwnSpeed], compiled: Mapping[str, CompiledSpeed]
) -> Speed | None:
    chosen = choose_speed(advice, speeds, compiled)
    if chosen is None:
        return None
    return Speed(
        step=chosen.step,
        steps=work.count_steps(advice["timing"]["tokens"]),
        settings=tuple(advice["settings"]),
        source=chosen.source,
        origin=chosen.origin,
        sizes=_read_sizes(work, advice),
    )


def _read_sizes(work: Training, advice: Mapping[str, Any]) -> RunSizes:
    """Return how much a run stores and reads."""
    tokens = advice["timing"]["tokens"]
    return RunSizes(
        checkpoint_bytes=advice["checkpoint_bytes"],
        kept=advice["kept"],
        data_bytes=work.count_steps(tokens) * tokens * advice["token_bytes"],
    )


def _time_program(work: OwnProgram, groups: list[MachineGroup]) -> dict[str, Speed]:
    found: dict[str, Speed] = {}
    for one in groups:
        chips = one.nodes * one.machine.chips
        peak = chips * one.machine.peak_bf16_tflops_per_chip * 1e12
        if peak and chips * one.machine.hbm_gib_per_chip >= work.memory_gib:
            least, most = work.utilisation
            step = Estimate.between(work.flops / (peak * most), work.flops / (peak * least))
            source = work.source or f"assumed: {100 * least:.0f} to {100 * most:.0f} % of the peak"
            origin = SpeedSource.LIKE_RUNS if work.source else SpeedSource.ASSUMED
            found[one.name] = Speed(step=step, steps=1, settings=(), source=source, origin=origin)
    return found


def _make_offer(
    group: MachineGroup,
    market: str,
    found: PricedPlace,
    speed: Speed,
    capacity: Mapping[CapacityKey, CapacityFigures],
    *,
    bucket: str,
    doubt: str,
) -> Offer | None:
    price = found.price
    key = CapacityKey(
        provider=group.machine.provider,
        place=ANYWHERE,
        accelerator=group.machine.name,
        hosts=group.nodes * group.machine.hosts,
        market=market,
    )
    terms = OfferTerms(
        machine=group.machine,
        nodes=group.nodes,
        market=MARKETS[market],
        price_per_hour=(group.nodes * price.low, group.nodes * price.high),
        price_note=_note(price),
        settings=speed.settings,
        steps=speed.steps,
        step_seconds=speed.step,
        speed_source=speed.source,
        speed_origin=speed.origin,
        capacity=capacity.get(key),
        other=_find_other_costs(group, market, found, speed.sizes, bucket),
        price_doubt=doubt,
    )
    return make_offer(terms)


def _find_other_costs(group: MachineGroup, market: str, found: PricedPlace, sizes: RunSizes, bucket: str) -> OtherCosts:
    """Return what is paid beside the machines, with the disks and addresses that a launch without options makes."""
    hosts = group.nodes * group.machine.hosts
    candidate = Candidate(
        provider=group.machine.provider,
        accelerator=group.machine.name,
        hosts=hosts,
        chips_per_host=group.machine.chips_per_host,
        market=MARKETS[market],
        region=found.place.region,
        zone=found.place.zone,
    )
    return find_other_costs(
        find_attached_prices(candidate),
        sizes,
        found.place.region,
        hosts=hosts,
        bucket=BucketPlace(bucket) if bucket else None,
    )


def _note(price: Price) -> str:
    return f"{price.note}, {price.as_of}" if price.as_of else price.note
