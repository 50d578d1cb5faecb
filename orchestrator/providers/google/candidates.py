"""From a choice of a task to the places and options of its candidates on Google Cloud. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.options import Details, encode_options
from orchestrator.providers.google.options import GoogleOptions
from orchestrator.providers.google.places import list_machine_places
from orchestrator.providers.protocol import Place
from orchestrator.slices import Market, OnDemand

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

NAME = "gcp"
QUEUE_HOURS = 6.0  # how long a queued request may wait where there is only one place to ask
QUEUE_HOURS_OF_MANY = 0.5  # where there are others to try after it


def list_places(choice: Resources, market: Market) -> list[Place]:
    """Return one place per zone that is known to have the machine, the cheapest first."""
    return list_machine_places(choice.machine, Place(choice.infra.region, choice.infra.zone), market)


def list_details(task: Task, choice: Resources, market: Market, *, only: bool) -> Details:
    """Return the options of a candidate as it carries them (options.py)."""
    from orchestrator.task.driver_sections import build_options

    args: Any = choice.accelerator_args
    asked = build_options(GoogleOptions, task.settings(NAME), args)
    queued = task.num_nodes > 1 or not isinstance(market, OnDemand) or asked.queued
    hours = (QUEUE_HOURS if only else QUEUE_HOURS_OF_MANY) if asked.provisioning or queued else None
    options = replace(
        asked,
        runtime_version=choice.machine_images.get("", "") or asked.runtime_version,
        subnetwork=asked.subnet_names[0] if asked.subnet_names else "",
        tier=asked.provisioning if asked.provisioning in ("guaranteed", "best-effort") else "",
        reservation_bound=asked.provisioning == "reservation-bound",
        max_run_hours=None if asked.provisioning == "flex-start" else asked.max_run_hours,
        valid_hours=asked.valid_hours or hours,
    )
    return encode_options(options)
