"""Machine types: those without TPUs (types.py), and those of TPUs that Compute Engine serves (v5p, v6e, TPU7x)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from orch_fronts.answers import say
from orch_fronts.google.compute import types
from orch_fronts.google.compute.answers import ComputeRefusal, Reason, invalid, required
from orch_fronts.google.compute.visit import last
from orch_fronts.google.status import INVALID_ARGUMENT
from orch_fronts.google.tables import all_zones, generations
from orchestrator.simulator.capacity import RESERVED

LONGEST_RUN = 7 * 86_400  # seconds; rule flex_start_has_a_length
LONGEST_WAIT = 7200
_MARKETS = {"SPOT": "spot", "FLEX_START": "flex-start"}


@dataclass(frozen=True, slots=True)
class MachineType:
    """generation: of TPUs; of a type without them its own name, by which the simulated cloud counts its capacity."""

    name: str
    generation: str
    chips: int
    plain: bool = False


@cache
def machine_types() -> Mapping[str, MachineType]:
    found: dict[str, MachineType] = {}
    for each in generations().values():
        for name, chips in each.machine_types.items():
            found[name] = MachineType(name, each.name, chips)
    plain = types.plain_types().values()
    return found | {one.name: MachineType(one.name, one.name, one.gpus, plain=True) for one in plain}


def machine_of(properties: Mapping[str, Any], zone: str = "", *, pools: bool = False) -> MachineType:
    """Of an instance in a zone, or of a template. Rule type_is_sold_in_some_zones. Raises ComputeRefusal.

    pools: the scenario says which TPUs the zone has.
    """
    given = str(properties.get("machineType", ""))
    if not given:
        raise required("resource.machineType")
    found = machine_types().get(last(given))
    if zone and (found is None or not (_is_sold(found, zone) or (pools and not found.plain))):
        said = say("gce-machine-type-not-in-zone", type=last(given), zone=zone)
        raise ComputeRefusal(Reason(INVALID_ARGUMENT, said.entry.reason), said.text)
    if found is None:
        raise invalid("resource.machineType", f"'{given}'. Machine type with name '{last(given)}' does not exist.")
    return found


def _is_sold(machine: MachineType, zone: str) -> bool:
    """A zone that no table names sells every TPU."""
    if machine.plain:
        return zone in types.zones_of(machine.name)
    return zone not in all_zones() or generations()[machine.generation].is_in(zone)


def market_of(properties: Mapping[str, Any]) -> str:
    """In the simulated cloud's words. Raises ComputeRefusal."""
    scheduling: Mapping[str, Any] = properties.get("scheduling", {})
    affinity: Mapping[str, Any] = properties.get("reservationAffinity", {})
    model = str(scheduling.get("provisioningModel", ""))
    specific = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    if specific and model in _MARKETS:
        raise invalid("resource.reservationAffinity", f"a {model} instance cannot use a reservation")
    if model == "RESERVATION_BOUND" and not specific:
        raise invalid("resource.reservationAffinity", "a RESERVATION_BOUND instance needs a SPECIFIC_RESERVATION")
    if model == "FLEX_START" and not run_seconds(properties):
        raise required("resource.scheduling.maxRunDuration")
    if specific:
        names: list[object] = affinity.get("values") or []
        if affinity.get("key") != "compute.googleapis.com/reservation-name" or len(names) != 1:
            raise invalid("resource.reservationAffinity", "key and values must name one reservation")
        return RESERVED + last(str(names[0]))
    return _MARKETS.get(model) or ("spot" if scheduling.get("preemptible") else "on-demand")


def run_seconds(properties: Mapping[str, Any]) -> float:
    """How long the instance may run, 0 = without end. Raises ComputeRefusal."""
    scheduling: Mapping[str, Any] = properties.get("scheduling", {})
    given = scheduling.get("maxRunDuration")
    if given is None:
        return 0.0
    seconds = int(given.get("seconds", 0))
    flex = scheduling.get("provisioningModel") == "FLEX_START"
    if seconds <= 0 or (flex and seconds > LONGEST_RUN):
        raise invalid("resource.scheduling.maxRunDuration", f"'{seconds}' seconds")
    if scheduling.get("instanceTerminationAction") not in ("DELETE", "STOP"):
        raise required("resource.scheduling.instanceTerminationAction")
    return float(seconds)


def check_properties(properties: Mapping[str, Any], zone: str = "", *, pools: bool = False) -> None:
    """What is the same for an instance and for a template. Raises ComputeRefusal."""
    machine = machine_of(properties, zone, pools=pools)
    market_of(properties)
    run_seconds(properties)
    disks: list[dict[str, Any]] = properties.get("disks") or []
    boot = [disk for disk in disks if disk.get("boot")]
    if len(boot) != 1 or not boot[0].get("initializeParams", {}).get("sourceImage"):
        raise invalid("resource.disks", "exactly one boot disk with a sourceImage is needed")
    if not properties.get("networkInterfaces"):
        raise required("resource.networkInterfaces")
    _check_maintenance(properties.get("scheduling", {}), machine)


def _check_maintenance(scheduling: Mapping[str, Any], machine: MachineType) -> None:
    """Rules tpu_must_terminate and gpu_and_spot_must_terminate. Raises ComputeRefusal."""
    if scheduling.get("onHostMaintenance") == "TERMINATE":
        return
    if not machine.plain:
        raise invalid("resource.scheduling.onHostMaintenance", "'MIGRATE'. Instances with TPUs must TERMINATE")
    if machine.chips:
        words = "Instances with guest accelerators do not support live migration."
        raise invalid("resource.scheduling.onHostMaintenance", f"'MIGRATE'. {words}")
    if scheduling.get("preemptible") or scheduling.get("provisioningModel") == "SPOT":
        words = "Scheduling must have preemptible be false when OnHostMaintenance isn't TERMINATE."
        raise invalid("resource.scheduling.preemptible", f"'true'. {words}")


def chips_of(topology: str) -> int:
    """Raises ComputeRefusal."""
    sides = topology.split("x")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and int(side) for side in sides):
        raise invalid("resource.workloadPolicy.acceleratorTopology", f"'{topology}'")
    return prod(int(side) for side in sides)
