"""The TPU API over the simulated cloud, without a transport: a method, a path and a body in, JSON values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from orch_fronts.google import catalog, messages, nodes, operations, queued
from orch_fronts.google.answering import refusal_of
from orch_fronts.google.keys import with_keys
from orch_fronts.google.status import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    Refusal,
)
from orch_fronts.google.visit import Visit
from orchestrator.errors import OrchError
from orchestrator.simulator.access import Access
from orchestrator.simulator.bodies import Bodies
from orchestrator.simulator.calls import ApiError
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.power import apply_power_requests
from orchestrator.simulator.scenario import Deed
from orchestrator.simulator.state import Phase

VERSIONS = ("v1", messages.V2, messages.V2ALPHA1)
_PATH = re.compile(
    r"/(?P<version>[a-z0-9]+)/projects/(?P<project>[^/:]+)/locations"
    r"(?:/(?P<zone>[^/:]+)(?:/(?P<kind>[A-Za-z]+)(?:/(?P<name>[^/:]+)(?::(?P<verb>[A-Za-z]+))?)?)?)?"
)
_OPTIONS = frozenset({"alt", "$alt", "prettyPrint", "key", "fields", "quotaUser", "userProject", "$prettyPrint"})

_Listed = Callable[[Visit, str], dict[str, Any]]
_Named = Callable[[Visit, str, str], dict[str, Any]]

# By HTTP method, collection and custom verb; then what parameters it takes beside the general ones.
_OF_COLLECTION: Mapping[tuple[str, str], tuple[_Listed, frozenset[str]]] = {
    ("POST", "nodes"): (nodes.create, frozenset({"nodeId", "requestId"})),
    ("GET", "nodes"): (nodes.listing, frozenset({"pageSize", "pageToken"})),
    ("POST", "queuedResources"): (queued.create, frozenset({"queuedResourceId", "requestId"})),
    ("GET", "queuedResources"): (queued.listing, frozenset({"pageSize", "pageToken"})),
    ("GET", "operations"): (operations.listing, frozenset({"filter", "pageSize", "pageToken", "returnPartialSuccess"})),
    ("GET", "acceleratorTypes"): (
        catalog.accelerator_types,
        frozenset({"filter", "orderBy", "pageSize", "pageToken"}),
    ),
    ("GET", "runtimeVersions"): (catalog.runtime_versions, frozenset({"filter", "orderBy", "pageSize", "pageToken"})),
}
_OF_NAME: Mapping[tuple[str, str, str], tuple[_Named, frozenset[str]]] = {
    ("GET", "nodes", ""): (nodes.get, frozenset[str]()),
    ("DELETE", "nodes", ""): (nodes.delete, frozenset({"requestId"})),
    ("PATCH", "nodes", ""): (nodes.update, frozenset({"updateMask"})),
    ("POST", "nodes", "stop"): (nodes.stop, frozenset[str]()),
    ("POST", "nodes", "start"): (nodes.start, frozenset[str]()),
    ("POST", "nodes", "getGuestAttributes"): (nodes.guest_attributes, frozenset[str]()),
    ("GET", "queuedResources", ""): (queued.get, frozenset[str]()),
    ("DELETE", "queuedResources", ""): (queued.delete, frozenset({"force", "requestId"})),
    ("POST", "queuedResources", "reset"): (queued.reset, frozenset[str]()),
    ("GET", "operations", ""): (operations.get, frozenset[str]()),
    ("DELETE", "operations", ""): (operations.forget, frozenset[str]()),
    ("POST", "operations", "cancel"): (operations.cancel, frozenset[str]()),
    ("GET", "acceleratorTypes", ""): (catalog.accelerator_type, frozenset[str]()),
    ("GET", "runtimeVersions", ""): (catalog.runtime_version, frozenset[str]()),
}
_READ_ONLY_V1 = frozenset({"acceleratorTypes", ""})  # gcloud asks v1 for these (seen in gcloud 528)


class TpuApi:
    """project: the only one that there is."""

    def __init__(self, access: Access, bodies: Bodies, project: str) -> None:
        self._access = access
        self._bodies = bodies
        self._project = project

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        """target: path and query. Raises Refusal."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        found = _PATH.fullmatch(unquote(parts.path))
        if found is None or found["version"] not in VERSIONS:
            raise Refusal(NOT_FOUND, f"The requested URL {parts.path} was not found on this server.")
        try:
            with self._access.open() as cloud:
                self._advance(cloud)
                numbers = "enum-encoding=int" in query.get("$alt", "")
                visit = Visit(
                    cloud=cloud,
                    bodies=self._bodies,
                    project=self._project,
                    version=found["version"],
                    query=query,
                    body=body,
                    numbers=numbers,
                )
                return self._answer(visit, method, found)
        except ApiError as error:
            raise refusal_of(error, _zone_of(parts.path)) from error
        except OrchError as error:  # what stands behind the nodes has failed
            raise Refusal(INTERNAL, str(error)) from error

    def version_of(self, operation: str) -> str:
        """The version of the API that began this operation."""
        with self._access.open() as cloud:
            return operations.version_of(cloud, operation)

    def advance(self) -> None:
        """Let the time pass and bring what stands behind the nodes in line. Call it now and then. Raises OrchError."""
        with self._access.open() as cloud:
            self._advance(cloud)

    def _advance(self, cloud: SimulatedCloud) -> None:
        for look in cloud.live():
            if look.phase is Phase.READY:
                for rank, step in self._bodies.steps(look).items():
                    cloud.report_step(look.name, rank, step)
                if nodes.is_over(cloud, look):
                    cloud.do(look.name, Deed.VANISH)
        apply_power_requests(cloud, self._bodies)
        self._bodies.sync_hosts([with_keys(look) for look in cloud.made()])

    def _answer(self, visit: Visit, method: str, found: re.Match[str]) -> dict[str, Any]:
        if found["project"] != self._project:
            words = f"Permission denied on resource project {found['project']} (or it may not exist)."
            raise Refusal(PERMISSION_DENIED, words)
        zone, kind, name, verb = (found[each] or "" for each in ("zone", "kind", "name", "verb"))
        if visit.version == "v1" and kind not in _READ_ONLY_V1:
            raise Refusal(NOT_FOUND, f"The simulated cloud has no {kind} of version v1")
        if not kind:
            return catalog.locations(visit) if not zone else catalog.location(visit, zone)
        if name:
            work, known = _route(_OF_NAME.get((method, kind, verb)), method, found.string)
            _check_query(visit, known)
            return work(visit, zone, name)
        listed, known = _route(_OF_COLLECTION.get((method, kind)), method, found.string)
        _check_query(visit, known)
        return listed(visit, zone)


_Work = tuple[Callable[..., dict[str, Any]], frozenset[str]]


def _route(found: _Work | None, method: str, path: str) -> _Work:
    if found is None:
        raise Refusal(NOT_FOUND, f"Method not found: {method} {path}")
    return found


def _check_query(visit: Visit, known: frozenset[str]) -> None:
    """A parameter that the method does not have is refused, as a field of a body is. v2 has no requestId for nodes."""
    if visit.version == messages.V2 and "nodeId" in known:
        known -= {"requestId"}
    for name in visit.query:
        if name not in known | _OPTIONS:
            words = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
            raise Refusal(INVALID_ARGUMENT, words)


def _zone_of(path: str) -> str:
    """Return the zone in a path, "" for a path without one."""
    return path.partition("/locations/")[2].partition("/")[0]
