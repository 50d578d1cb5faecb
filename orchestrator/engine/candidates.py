"""From a task's choices to candidates: one for each place, with what only its provider understands. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

from orchestrator.catalog.machines import TpuSlice
from orchestrator.catalog.prices import Price, price_per_hour
from orchestrator.providers.registry import planner
from orchestrator.slices import Candidate, FlexStart, Market, OnDemand, Owned, Reservation, Spot
from orchestrator.spec.infra import Where
from orchestrator.spec.task import GcpSettings, Resources, Task

QUEUE_HOURS = 6.0  # how long a queued request may wait where there is only one place to ask
QUEUE_HOURS_OF_MANY = 0.5  # where there are others to try after it


def candidates(task: Task) -> tuple[Candidate, ...]:
    """As the user ordered them; when allowed, the spot ones once more on demand at the end.

    A choice that names no zone becomes a candidate in each zone that is known to have it, the cheapest first.
    """
    choices = list(task.choices)
    if task.recovery.on_demand_fallback:
        choices += [replace(choice, use_spot=False) for choice in task.choices if choice.use_spot]
    placed = [(choice, region, zone) for choice in choices for region, zone in _places(choice)]
    hours = QUEUE_HOURS if len(placed) == 1 else QUEUE_HOURS_OF_MANY
    found = [_candidate(task, choice, region, zone, hours) for choice, region, zone in placed]
    return tuple(dict.fromkeys(found))


def market_of(choice: Resources) -> Market:
    if choice.infra.provider is Where.HOSTS:
        return Owned()
    args = choice.args
    if args.reservation and not choice.infra.owned:
        return Reservation(args.reservation)
    if args.provisioning == "flex-start" and args.max_run_hours and not choice.infra.owned:
        return FlexStart(args.max_run_hours)
    return Spot() if choice.use_spot else OnDemand()


def _places(choice: Resources) -> list[tuple[str, str]]:
    """Region and zone, "" for what the provider chooses."""
    infra, machine = choice.infra, choice.machine
    if infra.provider is not Where.GCP or infra.zone or not isinstance(machine, TpuSlice):
        return [(infra.region, infra.zone)]
    zones = [(zone.rpartition("-")[0], zone) for zone in machine.zones]
    fitting = [place for place in zones if infra.region in ("", place[0])]
    market = market_of(choice)
    return sorted(fitting, key=lambda place: _dollars(price_per_hour(machine, market, place[0]))) or [
        (infra.region, "")
    ]


def _dollars(price: Price | None) -> float:
    return price.high if price is not None else float("inf")


def _candidate(task: Task, choice: Resources, region: str, zone: str, queue_hours: float) -> Candidate:
    infra, machine = choice.infra, choice.machine
    planner(str(infra.provider))  # a provider that is not served is refused here, before anything else
    market = market_of(choice)
    units = 1 if infra.provider is Where.HOSTS else task.num_nodes
    price = price_per_hour(machine, market, region)
    return Candidate(
        provider=str(infra.provider),
        accelerator=machine.name,
        hosts=task.hosts_of(choice),
        chips_per_host=machine.chips_per_host,
        market=market,
        region=region,
        zone=zone,
        price_per_hour=price.times(units).high if price is not None else None,
        price_note=price.note if price is not None else "",
        disk_gib=choice.disk_gib,
        details=_details(task, choice, market, queue_hours),
    )


def _details(task: Task, choice: Resources, market: Market, queue_hours: float) -> tuple[tuple[str, str], ...]:
    match choice.infra.provider:
        case Where.HOSTS:
            return (("hosts", json.dumps([asdict(host) for host in task.hosts])),)
        case Where.GCP:
            queued = task.num_nodes > 1 or not isinstance(market, OnDemand) or choice.args.gcp_queued_resource
            pairs = [*_of_project(task.gcp), *_of_slice(choice, queue_hours if queued else None)]
            return tuple((key, value) for key, value in pairs if value)
        case _:
            return (("shape", choice.infra.shape),) if choice.infra.shape else ()


def _of_project(gcp: GcpSettings) -> Iterator[tuple[str, str]]:
    """Details of the provider "gcp" (providers/google/choices.py); "" is left out."""
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


def _of_slice(choice: Resources, queue_hours: float | None) -> Iterator[tuple[str, str]]:
    args = choice.args
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
