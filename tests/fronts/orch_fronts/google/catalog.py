"""What the API tells of places and machines: locations, accelerator types, runtime versions."""

from __future__ import annotations

from typing import Any

from orch_fronts.google import machines, names
from orch_fronts.google.status import NOT_FOUND, Refusal
from orch_fronts.google.tables import all_zones
from orch_fronts.google.visit import Visit
from orchestrator.simulator.scenario import ANY


def locations(visit: Visit) -> dict[str, Any]:
    """The zones of the scenario; where it takes any zone, also those of the table."""
    visit.cloud.ask("operation", "locations")
    zones = [zone.name for zone in visit.cloud.scenario.zones if zone.name != ANY]
    if any(zone.name == ANY for zone in visit.cloud.scenario.zones):
        zones += all_zones()
    return {"locations": [_location(visit, zone) for zone in sorted(set(zones))]}


def location(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    return _location(visit, zone)


def accelerator_types(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    return {"acceleratorTypes": [_type(visit, zone, each) for each in machines.accelerator_types(zone)]}


def accelerator_type(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    if name not in machines.accelerator_types(zone):
        raise Refusal(NOT_FOUND, f"Accelerator type {name} was not found in {zone}")
    return _type(visit, zone, name)


def runtime_versions(visit: Visit, zone: str) -> dict[str, Any]:
    visit.check_zone(zone)
    return {"runtimeVersions": [_version(visit, zone, each) for each in machines.runtime_versions()]}


def runtime_version(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    visit.check_zone(zone)
    if name not in machines.runtime_versions():
        raise Refusal(NOT_FOUND, f"Runtime version {name} was not found")
    return _version(visit, zone, name)


def _location(visit: Visit, zone: str) -> dict[str, Any]:
    return {"name": names.place(visit.project, zone), "locationId": zone}


def _type(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    return {"name": f"{names.place(visit.project, zone)}/acceleratorTypes/{name}", "type": name}


def _version(visit: Visit, zone: str, name: str) -> dict[str, Any]:
    return {"name": f"{names.place(visit.project, zone)}/runtimeVersions/{name}", "version": name}
