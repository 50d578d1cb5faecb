"""How a request wants to be served: on demand, spot, from a reservation, or flex-start. Raises Refusal throughout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch_fronts.google.status import invalid
from orch_fronts.google.visit import Visit, duration_of
from orchestrator.simulator.capacity import RESERVED
from orchestrator.simulator.scenario import ANY

ON_DEMAND = "on-demand"
SPOT = "spot"
FLEX_START = "flex-start"
LONGEST_RUN = 7 * 86_400.0  # seconds; docs.cloud.google.com/tpu/docs/request-using-flex-start, read November 2026
_MODELS = {"SPOT": SPOT, "FLEX_START": FLEX_START}


def of_node(visit: Visit, zone: str, generation: str, node: Mapping[str, Any]) -> str:
    """By its schedulingConfig."""
    config: Mapping[str, Any] = node.get("schedulingConfig", {})
    model = str(config.get("provisioningModel", ""))
    spot = bool(config.get("spot") or config.get("preemptible") or model == "SPOT")
    reserved = bool(config.get("reserved") or config.get("reservationName") or model == "RESERVATION_BOUND")
    if spot and reserved:
        raise invalid("node.scheduling_config", "a node cannot be spot and reserved")
    if reserved:
        return _reservation(visit, zone, generation, str(config.get("reservationName", "")))
    return SPOT if spot else ON_DEMAND


def of_queued(visit: Visit, zone: str, generation: str, request: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """By its tier; without one by its node's schedulingConfig."""
    tiers = [tier for tier in ("spot", "guaranteed", "bestEffort") if tier in request]
    if len(tiers) > 1:
        raise invalid("queued_resource", f"{' and '.join(tiers)} are mutually exclusive")
    reserved = bool(request.get("reservationName") or request.get("guaranteed", {}).get("reserved"))
    model = str(request.get("provisioningModel", ""))
    _check_model(model, tiers, request)
    if tiers in (["spot"], ["bestEffort"]):
        if reserved:
            raise invalid("queued_resource", f"{tiers[0]} and a reservation are mutually exclusive")
        return SPOT
    if reserved or model == "RESERVATION_BOUND":
        return _reservation(visit, zone, generation, str(request.get("reservationName", "")))
    return _MODELS.get(model) or of_node(visit, zone, generation, node)


def _check_model(model: str, tiers: list[str], request: Mapping[str, Any]) -> None:
    """Rule model_and_tier_do_not_contradict."""
    if model == "FLEX_START" and not run_seconds(request):
        raise invalid("queued_resource.run_duration", "flex-start needs a maxRunDuration")
    if model in ("FLEX_START", "RESERVATION_BOUND") and tiers:
        raise invalid("queued_resource", f"{tiers[0]} and the provisioning model {model} are mutually exclusive")
    if model == "RESERVATION_BOUND" and not request.get("reservationName"):
        raise invalid("queued_resource.reservation_name", "RESERVATION_BOUND needs the name of a reservation")
    if model == "SPOT" and tiers not in ([], ["spot"]):
        raise invalid("queued_resource", f"{tiers[0]} and the provisioning model SPOT are mutually exclusive")


def run_seconds(request: Mapping[str, Any]) -> float:
    """How long its nodes may run, 0 = without end (rule run_duration_ends_the_nodes)."""
    given = request.get("runDuration", {}).get("maxRunDuration")
    if given is None:
        return 0.0
    seconds = duration_of(given)
    if not 0 < seconds <= LONGEST_RUN:
        raise invalid(
            "queued_resource.run_duration", f"maxRunDuration {given!r} is not within {LONGEST_RUN:.0f} seconds"
        )
    return seconds


def _reservation(visit: Visit, zone: str, generation: str, name: str) -> str:
    """name: the last part of a reservation's name; "" and "-" stand for any that fits."""
    wanted = name.rpartition("/")[2]
    if wanted in ("", "-"):
        fitting = (
            held.name
            for held in visit.cloud.scenario.reservations
            if held.zone == zone and held.accelerator in (generation, ANY)
        )
        wanted = next(fitting, "-")
    return RESERVED + wanted
