"""The Compute Engine API over the simulated cloud: a method, a path and a body in, JSON values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from orch_fronts.google.answering import refusal as say_refusal
from orch_fronts.google.compute import groups, instances, making, operations, plain
from orch_fronts.google.compute.answers import ComputeRefusal, Reason, denied, in_form, invalid, refused
from orch_fronts.google.compute.plain import FIREWALLS, POLICIES, TEMPLATES, Kind
from orch_fronts.google.compute.types import plain_types, zones_of
from orch_fronts.google.compute.visit import Visit
from orch_fronts.google.keys import with_keys
from orch_fronts.google.status import INTERNAL, NOT_FOUND, Refusal
from orch_fronts.google.tables import all_zones
from orchestrator.errors import OrchError
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.power import apply_power_requests
from orchestrator.simulator.scenario import ANY

PREFIX = "/compute/v1/"
_PATH = re.compile(
    r"projects/(?P<project>[^/]+)"
    r"(?:/(?P<scope>global|aggregated|zones(?:/[^/]+)?|regions/[^/]+)(?:/(?P<kind>\w+)(?:/(?P<name>[^/]+)(?:/(?P<verb>\w+))?)?)?)?"
)
_OPTIONS = frozenset({"alt", "prettyPrint", "key", "fields", "quotaUser", "userIp", "$alt", "$prettyPrint"})
_OF_A_LIST = frozenset({"filter", "maxResults", "orderBy", "pageToken", "returnPartialSuccess"})
_NAMES = re.compile(r'name eq "([^"]+)"')
_IMAGES = re.compile(r"projects/([^/]+)/global/images/(?:family/)?([^/]+)")

_InZone = Callable[[Visit, str], dict[str, Any]]
_OfOne = Callable[[Visit, str, str], dict[str, Any]]
_ID = frozenset({"requestId"})
_NONE = frozenset[str]()

# By method, kind and verb; then the query parameters beside the general ones. The first words are a zone's name.
_OF_ZONE: Mapping[tuple[str, str], tuple[_InZone, frozenset[str]]] = {
    ("POST", "instances"): (instances.insert, _ID),
    ("GET", "instances"): (instances.listing, _OF_A_LIST),
    ("POST", "instanceGroupManagers"): (groups.insert, _ID),
    ("GET", "instanceGroupManagers"): (groups.listing, _OF_A_LIST),
    ("GET", "autoscalers"): (lambda visit, zone: {"items": []}, _OF_A_LIST),  # gcloud asks before it deletes a group
}
_OF_NAME: Mapping[tuple[str, str, str], tuple[_OfOne, frozenset[str]]] = {
    ("GET", "instances", ""): (instances.get, _NONE),
    ("DELETE", "instances", ""): (instances.delete, _ID),
    ("POST", "instances", "stop"): (lambda v, z, n: instances.power(v, z, n, "stop"), _ID | {"discardLocalSsd"}),
    ("POST", "instances", "start"): (lambda v, z, n: instances.power(v, z, n, "start"), _ID),
    ("POST", "instances", "setMetadata"): (lambda v, z, n: instances.amend(v, z, n, "metadata"), _ID),
    ("POST", "instances", "setLabels"): (lambda v, z, n: instances.amend(v, z, n, "labels"), _ID),
    ("GET", "instances", "getGuestAttributes"): (
        instances.guest_attributes,
        frozenset({"queryPath", "variableKey"}),
    ),
    ("GET", "instances", "serialPort"): (instances.serial_output, frozenset({"port", "start"})),
    ("GET", "instanceGroupManagers", ""): (groups.get, _NONE),
    ("DELETE", "instanceGroupManagers", ""): (groups.delete, _ID),
    ("POST", "instanceGroupManagers", "resize"): (groups.resize, _ID | {"size"}),
    ("POST", "instanceGroupManagers", "listManagedInstances"): (groups.members, _OF_A_LIST),
    ("GET", "instanceGroupManagers", "listErrors"): (groups.errors, _OF_A_LIST),
}
_PLAIN: Mapping[str, Kind] = {kind.collection: kind for kind in (FIREWALLS, TEMPLATES, POLICIES)}


class ComputeFront:
    """Serves beside the TPU API (Front of google/server.py) at PREFIX, from the same cloud and bodies.

    project: the only one that there is.
    """

    def __init__(self, access: Access, bodies: Bodies, project: str) -> None:
        self._access = access
        self._bodies = bodies
        self._project = project

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        """target: path and query. Raises Refusal."""
        parts = urlsplit(target)
        path = unquote(parts.path).removeprefix(PREFIX)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            with self._access.open() as cloud:
                visit = Visit(cloud=cloud, bodies=self._bodies, project=self._project, query=query, body=body)
                self._advance(visit)
                answer = self._answer(visit, method, path)
                making.pass_time(cloud)
                return answer
        except ApiError as error:
            raise (say_refusal(error.answer) if error.answer else refused(error)) from error
        except Refusal as refusal:
            raise in_form(refusal) from refusal
        except OrchError as error:  # what stands behind the instances has failed
            raise ComputeRefusal(Reason(INTERNAL, "internalError"), str(error)) from error

    def _advance(self, visit: Visit) -> None:
        cloud: SimulatedCloud = visit.cloud
        cloud.advance()
        making.pass_time(cloud)
        groups.adopt(visit)
        apply_power_requests(cloud, self._bodies)
        self._bodies.sync_hosts([with_keys(look) for look in cloud.made()])

    def _answer(self, visit: Visit, method: str, path: str) -> dict[str, Any]:
        found = _PATH.fullmatch(path)
        image = _IMAGES.fullmatch(path)
        if image is not None:  # Google's own images are in projects of theirs
            return {"kind": "compute#image", "name": image[2], "status": "READY"}
        if found is None:
            raise _no_method(method, path)
        if found["project"] != self._project:
            words = f"Required 'compute.projects.get' permission for 'projects/{found['project']}'"
            raise denied(words)
        scope, kind, name, verb = (found[each] or "" for each in ("scope", "kind", "name", "verb"))
        if not scope:
            return _project(visit)
        if scope == "zones":
            return _zones(visit)
        if scope == "aggregated":
            return _aggregated(visit, method, kind)
        place, _, where = scope.partition("/")
        if kind == "operations":
            return operations.get(visit, scope, name)
        if kind in _PLAIN and (place == "regions") == (kind == POLICIES.collection):
            return _kept(visit, method, scope, _PLAIN[kind], name)
        if place == "global" and kind == "networks" and name:
            return plain.network(visit, name)
        if place == "zones":
            return _zonal(visit, method, where, kind, name, verb, path)
        raise _no_method(method, path)


def _zonal(visit: Visit, method: str, zone: str, kind: str, name: str, verb: str, path: str) -> dict[str, Any]:
    if not kind:
        visit.check_zone(zone)
        return _zone(visit, zone)
    if name:
        one = _OF_NAME.get((method, kind, verb))
        if one is None:
            raise _no_method(method, path)
        _check_query(visit, one[1])
        return one[0](visit, zone, name)
    several = _OF_ZONE.get((method, kind))
    if several is None:
        raise _no_method(method, path)
    _check_query(visit, several[1])
    return several[0](visit, zone)


def _kept(visit: Visit, method: str, scope: str, kind: Kind, name: str) -> dict[str, Any]:
    _check_query(visit, _OF_A_LIST if method == "GET" and not name else _ID)
    match method, bool(name):
        case "POST", False:
            return plain.insert(visit, scope, kind)
        case "GET", False:
            return plain.listing(visit, scope, kind)
        case "GET", True:
            return plain.get(visit, scope, kind, name)
        case "PATCH", True if kind is FIREWALLS:
            return plain.patch(visit, scope, kind, name)
        case "DELETE", True:
            return plain.delete(visit, scope, kind, name)
        case _:
            raise _no_method(method, f"{scope}/{kind.collection}/{name}")


def _aggregated(visit: Visit, method: str, kind: str) -> dict[str, Any]:
    _check_query(visit, _OF_A_LIST | {"includeAllScopes"})
    if method == "GET" and kind == "instances":
        return instances.aggregated(visit)
    if method == "GET" and kind == "instanceGroupManagers":
        return groups.aggregated(visit)
    if method == "GET" and kind == "machineTypes":
        return _machine_types(visit)
    if method == "GET" and kind in (POLICIES.collection, TEMPLATES.collection):
        return plain.aggregated(visit, _PLAIN[kind])
    raise _no_method(method, f"aggregated/{kind}")


def _machine_types(visit: Visit) -> dict[str, Any]:
    """By zones; the filter is one regular expression of whole names, as machineTypes.aggregatedList takes it."""
    visit.cloud.ask("list", "machineTypes")
    given = visit.query.get("filter", "")
    wanted = _NAMES.fullmatch(given)
    if given and wanted is None:
        raise invalid("filter", f"'{given}'")
    known = {zone.name for zone in visit.cloud.scenario.zones}
    sold = [
        (zone, name)
        for name in plain_types()
        if wanted is None or re.fullmatch(wanted[1], name)
        for zone in sorted(zones_of(name))
        if zone in known or ANY in known
    ]
    page, more = visit.page([{"zone": zone, "name": name} for zone, name in sold])
    items: dict[str, Any] = {}
    for one in page:
        part = items.setdefault(f"zones/{one['zone']}", {"machineTypes": []})
        part["machineTypes"].append({"kind": "compute#machineType", "name": one["name"], "zone": one["zone"]})
    return {"items": items} | ({"nextPageToken": more} if more else {})


def _project(visit: Visit) -> dict[str, Any]:
    visit.cloud.ask("operation", visit.project)
    return {
        "kind": "compute#project",
        "name": visit.project,
        "defaultServiceAccount": f"1-compute@{visit.project}.iam.gserviceaccount.com",
        "commonInstanceMetadata": {"kind": "compute#metadata", "items": []},
    }


def _zones(visit: Visit) -> dict[str, Any]:
    """The zones of the scenario; where it takes any zone, also those of the table."""
    known = [zone.name for zone in visit.cloud.scenario.zones if zone.name != ANY]
    if any(zone.name == ANY for zone in visit.cloud.scenario.zones):
        known += all_zones()
    return {"kind": "compute#zoneList", "items": [_zone(visit, zone) for zone in sorted(set(known))]}


def _zone(visit: Visit, zone: str) -> dict[str, Any]:
    region = operations.link(visit, f"regions/{visit.region(zone)}")
    link = operations.link(visit, f"zones/{zone}")
    return {"kind": "compute#zone", "name": zone, "region": region, "status": "UP", "selfLink": link}


def _check_query(visit: Visit, known: frozenset[str]) -> None:
    for name in visit.query:
        if name not in known | _OPTIONS:
            raise invalid(name, "Invalid JSON payload received. Unknown name: Cannot bind query parameter.")


def _no_method(method: str, path: str) -> ComputeRefusal:
    return ComputeRefusal(Reason(NOT_FOUND, "notFound"), f"Method not found: {method} {path}")
