"""From a task's choices to candidates: one per place, with what only its provider understands. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.catalog.ec2_regions import list_opt_in_regions, load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance, TpuSlice
from orchestrator.catalog.prices import Price, price_per_hour, priced_regions
from orchestrator.providers.registry import load_planner
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.infra import InfraProvider
from orchestrator.task.model import AwsSettings, GcpSettings, Task
from orchestrator.task.resources import Resources
from orchestrator.task.stacks import choose_stack

FIRST_REGIONS = 3  # of those that have a type whose price is known nowhere
QUEUE_HOURS = 6.0  # how long a queued request may wait where there is only one place to ask
QUEUE_HOURS_OF_MANY = 0.5  # where there are others to try after it


def list_candidates(task: Task) -> tuple[Candidate, ...]:
    """Return the candidates in the order in which they are tried.

    The order is the user's. With on-demand fallback, spot candidates follow once more on demand at the end. A choice
    without a zone becomes one candidate per zone known to have the machine, the cheapest first.
    """
    choices = list(task.choices)
    if task.recovery.on_demand_fallback:
        choices += [choice.model_copy(update={"use_spot": False}) for choice in task.choices if choice.use_spot]
    placed = [(choice, place) for choice in choices for place in _places(task, choice)]
    hours = QUEUE_HOURS if len(placed) == 1 else QUEUE_HOURS_OF_MANY
    found = [_candidate(task, choice, place, hours) for choice, place in placed]
    return tuple(dict.fromkeys(found))


def market_of(choice: Resources) -> Market:
    """Return the market in which a choice asks for its machines."""
    if choice.infra.provider is InfraProvider.HOSTS:
        return Owned()
    args = choice.accelerator_args
    if args.provisioning == "capacity-block" and not choice.infra.owned:
        return CapacityBlock(args.reservation)
    if args.reservation and not choice.infra.owned:
        return Reservation(args.reservation)
    if args.provisioning == "flex-start" and args.max_run_hours and not choice.infra.owned:
        return FlexStart(args.max_run_hours)
    return Spot() if choice.use_spot else OnDemand()


@dataclass(frozen=True, slots=True)
class _Place:
    """A region, zone and subnet; each is "" where the provider chooses."""

    region: str = ""
    zone: str = ""
    subnet: str = ""


def _places(task: Task, choice: Resources) -> list[_Place]:
    infra, machine = choice.infra, choice.machine
    if infra.provider is InfraProvider.AWS and isinstance(machine, Ec2Instance):
        return _of_ec2(machine, market_of(choice), _Place(infra.region, infra.zone), task.aws.subnets)
    if infra.provider is not InfraProvider.GCP or infra.zone or not isinstance(machine, TpuSlice):
        return [_Place(infra.region, infra.zone)]
    zones = [_Place(zone.rpartition("-")[0], zone) for zone in machine.zones]
    fitting = [place for place in zones if infra.region in ("", place.region)]
    market = market_of(choice)
    return sorted(fitting, key=lambda place: _dollars(price_per_hour(machine, market, place.region))) or [
        _Place(infra.region)
    ]


def _of_ec2(machine: Ec2Instance, market: Market, named: _Place, subnets: tuple[str, ...]) -> list[_Place]:
    """Return one place per named subnet, or one per zone.

    Without a named region only regions with a known price are used.
    """
    if subnets:
        return [replace(named, subnet=subnet) for subnet in subnets]
    if named.zone:
        return [named]
    priced = priced_regions(machine, market)
    there = sorted(machine.regions, key=lambda region: region in list_opt_in_regions())
    known = [region for region in there if region in priced] or there[:FIRST_REGIONS]
    found = [named.region] if named.region else (known or ["us-east-1"])
    cheapest = sorted(found, key=lambda region: _dollars(price_per_hour(machine, market, region)))
    usual = ("a", "b", "c")  # of a region that is newer than the table
    return [
        _Place(region, zone)
        for region in cheapest
        for zone in load_zones_by_region().get(region, tuple(f"{region}{letter}" for letter in usual))
    ]


def _dollars(price: Price | None) -> float:
    return price.high if price is not None else float("inf")


def _candidate(task: Task, choice: Resources, place: _Place, queue_hours: float) -> Candidate:
    infra, machine = choice.infra, choice.machine
    load_planner(str(infra.provider))  # a provider that is not served is refused here, before anything else
    market = market_of(choice)
    units = 1 if infra.provider is InfraProvider.HOSTS else task.num_nodes
    price = price_per_hour(machine, market, place.region)
    return Candidate(
        provider=str(infra.provider),
        accelerator=machine.name,
        hosts=task.count_hosts(choice),
        chips_per_host=machine.chips_per_host,
        market=market,
        region=place.region,
        zone=place.zone,
        price_per_hour=price.times(units).high if price is not None else None,
        price_note=price.note if price is not None else "",
        disk_gib=choice.disk_size,
        details=_details(task, choice, market, place, queue_hours),
    )


def _details(
    task: Task, choice: Resources, market: Market, place: _Place, queue_hours: float
) -> tuple[tuple[str, str], ...]:
    match choice.infra.provider:
        case InfraProvider.HOSTS:
            return (("hosts", json.dumps([host.model_dump(exclude_none=True) for host in task.hosts])),)
        case InfraProvider.GCP:
            queued = (
                task.num_nodes > 1 or not isinstance(market, OnDemand) or choice.accelerator_args.gcp_queued_resource
            )
            pairs = [*_of_project(task.gcp), *_of_slice(choice, queue_hours if queued else None)]
            return tuple((key, value) for key, value in pairs if value)
        case InfraProvider.AWS:
            pairs = [*_of_account(task.aws), *_of_instances(task, choice, place)]
            return tuple((key, value) for key, value in pairs if value)
        case _:
            return (("shape", choice.infra.shape),) if choice.infra.shape else ()


def _of_project(gcp: GcpSettings) -> Iterator[tuple[str, str]]:
    """Yield the details of the provider "gcp" (providers/google/choices.py); "" is left out."""
    yield "project", gcp.project
    yield "network", gcp.vpc_name
    yield "subnetwork", gcp.subnet_names[0] if gcp.subnet_names else ""
    yield "service_account", gcp.service_account
    yield "internal_ips", "yes" if gcp.internal_ips else ""
    yield "tags", ",".join(gcp.tags)
    yield "access", gcp.access
    yield "jump", gcp.jump
    yield "firewall", "" if gcp.firewall else "none"
    yield "ssh_cidr", gcp.ssh_cidr
    yield "oslogin", "yes" if gcp.oslogin else ""


def _of_account(aws: AwsSettings) -> Iterator[tuple[str, str]]:
    """Yield the details of the provider "aws" (providers/aws/choices.py); "" is left out."""
    yield "profile", aws.profile
    yield "security_group", aws.security_group
    yield "instance_profile", aws.instance_profile
    yield "access", aws.access
    yield "jump", aws.jump
    yield "ssh_cidr", aws.ssh_cidr
    yield "user", aws.user


def _of_instances(task: Task, choice: Resources, place: _Place) -> Iterator[tuple[str, str]]:
    yield "subnet", place.subnet
    images = dict(choice.image_id)
    yield "image", images.get(place.region, images.get("", ""))
    yield "placement_group", choice.accelerator_args.placement_group
    yield "framework", _framework(task, choice)
    yield "network", choice.network_tier
    yield "max_hours", f"{task.limits.max_hours:g}" if task.limits.max_hours else ""


def _framework(task: Task, choice: Resources) -> str:
    """Return the framework that the machine image has to contain."""
    if task.train is None:
        return choice.accelerator_args.framework
    try:
        return choose_stack(choice.machine, task.train.stack_request(choice.accelerator_args.framework)).engine
    except InvalidValueError:  # a recorded task that this orch does not serve any more, and may still have to end
        return choice.accelerator_args.framework


def _of_slice(choice: Resources, queue_hours: float | None) -> Iterator[tuple[str, str]]:
    args = choice.accelerator_args
    yield "runtime_version", args.runtime_version
    yield "topology", args.topology
    yield "queued", "yes" if args.gcp_queued_resource else ""
    yield "tier", args.provisioning if args.provisioning in ("guaranteed", "best-effort") else ""
    yield "reservation_bound", "yes" if args.provisioning == "reservation-bound" else ""
    yield "max_run_hours", f"{args.max_run_hours:g}" if args.max_run_hours and args.provisioning != "flex-start" else ""
    hours = args.valid_hours or (queue_hours if args.provisioning or queue_hours else None)
    yield "valid_hours", f"{hours:g}" if hours else ""
    yield "data_disks", ",".join(args.data_disks)
    yield "secure_boot", "yes" if args.secure_boot else ""
    yield "api", args.api
