"""Which method of which API a request calls, by the discovery documents that google-api-python-client carries.

One port serves all the services, each below its prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from orch_fronts.google.status import INVALID_ARGUMENT, NOT_FOUND, Refusal

# Where the one port serves each service. For Compute Engine and Cloud Storage it is Google's own path: "servicePath" of
# their discovery documents (compute v1 of 2026-11-06, storage v1 of 2026-10-09). At Google the others begin at the root
# of a host each; here a name sets them apart.
PREFIXES: Mapping[str, str] = {
    "tpu": "/",
    "compute": "/compute/v1/",
    "cloudresourcemanager": "/crm/",
    "serviceusage": "/serviceusage/",
    "oslogin": "/oslogin/",
    "iam": "/iam/",
    "iamcredentials": "/iamcredentials/",
    "storage": "/storage/v1/",
    "cloudbilling": "/cloudbilling/",
}
_VERSIONS: Mapping[str, tuple[str, ...]] = {
    "tpu": ("v1", "v2", "v2alpha1"),
    "compute": ("v1",),
    "cloudresourcemanager": ("v1",),
    "serviceusage": ("v1", "v1beta1"),
    "oslogin": ("v1",),
    "iam": ("v1",),
    "iamcredentials": ("v1",),
    "storage": ("v1",),
    "cloudbilling": ("v1",),
}
_OF_THE_PREFIX = frozenset({"compute", "storage"})  # their version is part of the prefix, not of the path


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """id: of the discovery document, e.g. tpu.projects.locations.nodes.create. path: without the prefix.

    path_values: the variable parts of the path, in order. query: every value of each parameter.
    """

    service: str
    version: str
    id: str
    path: str
    path_values: tuple[str, ...]
    query: Mapping[str, tuple[str, ...]]


def called(method: str, target: str) -> Called:
    """target: path and query. Raises Refusal: NOT_FOUND for no method, INVALID_ARGUMENT for a parameter it lacks."""
    parts = urlsplit(target)
    service = max((name for name, prefix in PREFIXES.items() if parts.path.startswith(prefix)), key=_prefix_length)
    rest = parts.path[len(PREFIXES[service]) :].lstrip("/")
    version = _version(service, rest)
    for known in _methods(service, version) if version else ():
        found = known.pattern.fullmatch(rest) if known.http == method else None
        if found:
            query = {key: tuple(values) for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
            _check_query(known, query)
            values = tuple(unquote(value) for value in found.groups())
            return Called(
                service=service, version=version, id=known.id, path=unquote(rest), path_values=values, query=query
            )
    raise Refusal(NOT_FOUND, f"The requested URL {parts.path} was not found on this server.")


def check_body(service: str, version: str, schema: str, body: bytes) -> dict[str, Any]:
    """A body as JSON. Raises Refusal for what is none, and for a field that the message does not have."""
    try:
        value = json.loads(body or b"{}")
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, "Invalid JSON payload received.") from error
    known = _document(service, version)["schemas"][schema]["properties"]
    if not isinstance(value, dict):
        raise Refusal(INVALID_ARGUMENT, "Invalid JSON payload received. Root element must be a message.")
    found = cast(dict[str, Any], value)
    unknown = sorted(set(found) - set(known))
    if unknown:
        words = f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
        raise Refusal(INVALID_ARGUMENT, words)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    id: str
    http: str
    pattern: re.Pattern[str]
    query: frozenset[str]


@cache
def _document(service: str, version: str) -> dict[str, Any]:
    path = files("googleapiclient") / "discovery_cache" / "documents" / f"{service}.{version}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
def _methods(service: str, version: str) -> tuple[_Method, ...]:
    document = _document(service, version)
    general = frozenset(document.get("parameters", {})) | {"$alt", "$prettyPrint"}
    return tuple(_method(one, general) for one in _walk(document))


def _walk(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _walk(inner)


def _method(one: Mapping[str, Any], general: frozenset[str]) -> _Method:
    template = str(one.get("flatPath") or one["path"])
    parts = re.split(r"\{[^}]*\}", template)
    pattern = re.compile("([^/:]+)".join(re.escape(part) for part in parts))
    own = {name for name, spec in one.get("parameters", {}).items() if spec.get("location") == "query"}
    return _Method(id=str(one["id"]), http=str(one["httpMethod"]), pattern=pattern, query=general | own)


def _version(service: str, rest: str) -> str:
    """The version asked for; "" for one that the service does not have."""
    versions = _VERSIONS[service]
    if service in _OF_THE_PREFIX:
        return versions[0]
    first = rest.partition("/")[0]
    return first if first in versions else ""


def _prefix_length(service: str) -> int:
    return len(PREFIXES[service])


def _check_query(known: _Method, query: Mapping[str, object]) -> None:
    for name in query:
        if name not in known.query:
            words = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
            raise Refusal(INVALID_ARGUMENT, words)
