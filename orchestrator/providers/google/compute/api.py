"""Calls of Compute Engine, by the paths that the planned requests have: each with its deadline, each error told apart.

A path is `projects/P/zones/Z/KIND/NAME`, `projects/P/regions/R/KIND/NAME` or `projects/P/global/KIND/NAME`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from orchestrator.errors import CloudError
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.google.body import revealed
from orchestrator.providers.google.discovery import Discovery
from orchestrator.providers.google.retries import read_operation_error
from orchestrator.providers.google.session import Session
from orchestrator.slices import Request

WORK_SECONDS = 60.0  # how long a template or a policy may take to be made
_LOOK_SECONDS = 1.0  # between two looks at an operation
_PAGE = 500
_SINGULAR = {
    "instances": "instance",
    "instanceGroupManagers": "instanceGroupManager",
    "instanceTemplates": "instanceTemplate",
    "resourcePolicies": "resourcePolicy",
}
DONE: Mapping[str, Any] = {"status": "DONE"}  # an operation that has nothing left to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path in parts. scope: {"zone": …}, {"region": …} or {} for what is global. name: "" for the collection."""

    project: str
    scope: Mapping[str, str]
    kind: str
    name: str = ""
    verb: str = ""

    @property
    def one(self) -> dict[str, str]:
        """The parameters that name it."""
        return {"project": self.project, **self.scope, _SINGULAR[self.kind]: self.name}

    @property
    def operations(self) -> str:
        return {"zone": "zoneOperations", "region": "regionOperations"}.get(
            next(iter(self.scope), ""), "globalOperations"
        )


def place_of(path: str) -> Place:
    """Raises ValueError for what is no such path, and while a part of it is unknown."""
    words = urlsplit(path).path.split("/")
    if words[0] != "projects" or len(words) < 4 or "(" in path:
        raise ValueError(f"{path} is not a whole path of Compute Engine")
    if words[2] == "global":
        return _place(words[1], {}, words[3:])
    return _place(words[1], {words[2].removesuffix("s"): words[3]}, words[4:])


def _place(project: str, scope: Mapping[str, str], rest: list[str]) -> Place:
    kind, name, verb = (*rest, "", "")[:3]
    return Place(project=project, scope=scope, kind=kind, name=name, verb=verb)


def path_of(request: Request) -> str:
    """Of the resource that a planned request is about."""
    path = urlsplit(request.target).path
    if request.method == "POST" and not place_of(path).verb:
        return f"{path}/{request.body['name']}"
    return path.removesuffix("/resize")


class ComputeApi:
    """project: what the user's configuration names, "" for none. Every method may raise Refused."""

    def __init__(self, session: Session, *, wait_seconds: float = WORK_SECONDS) -> None:
        self._compute = Discovery(session, "compute", "v1")
        self._wait = wait_seconds
        self.project = session.project
        self.loopback = session.loopback

    def send(self, request: Request) -> dict[str, Any]:
        """A planned insert or resize, once. Its operation. Raises ValueError while a part is unknown."""
        place = place_of(request.target)
        query = dict(parse_qsl(urlsplit(request.target).query))
        if place.verb == "resize":
            size, token = int(query["size"]), query["requestId"]
            return self._compute.change(lambda api: _of(api, place).resize(**place.one, size=size, requestId=token))
        body = cast(dict[str, Any], revealed(request.body))
        whole = {"project": place.project, **place.scope, "body": body, "requestId": query["requestId"]}
        return self._compute.change(lambda api: _of(api, place).insert(**whole))

    def get(self, path: str) -> dict[str, Any] | None:
        """None only when Google says that there is none."""
        place = place_of(path)
        return self._compute.find(lambda api: _of(api, place).get(**place.one))

    def delete(self, path: str) -> Mapping[str, Any]:
        """Request a deletion; return its operation. What does not exist is no error."""
        place = place_of(path)
        try:
            return self._compute.change(lambda api: _of(api, place).delete(**place.one))
        except Refused as refused:
            if refused.answer.kind is not Kind.NOT_FOUND:
                raise
            return DONE

    def power(self, path: str, verb: str) -> None:
        """stop or start an instance."""
        place = place_of(path)
        self._compute.change(lambda api: getattr(_of(api, place), verb)(**place.one))

    def set_labels(self, path: str, labels: Mapping[str, str], fingerprint: str) -> None:
        """Give an instance these labels, if those that it has are still the ones with this fingerprint."""
        place, body = place_of(path), {"labels": dict(labels), "labelFingerprint": fingerprint}
        done = self._compute.change(lambda api: _of(api, place).setLabels(**place.one, body=body))
        self.settled(path, done)

    def instances(self, project: str, zone: str, label: str, value: str) -> list[dict[str, Any]]:
        """Those of a zone that carry this label. All pages."""
        where = {"project": project, "zone": zone, "filter": f"labels.{label}={value}"}

        def ask(api: Any, page: dict[str, str]) -> Any:
            return api.instances().list(**where, maxResults=_PAGE, **page)

        return list(self._pages(ask, "items"))

    def members(self, path: str) -> list[dict[str, Any]]:
        """The instances that a group manages, made or not. All pages."""
        one = place_of(path).one

        def ask(api: Any, page: dict[str, str]) -> Any:
            return api.instanceGroupManagers().listManagedInstances(**one, **page)

        return list(self._pages(ask, "managedInstances"))

    def errors(self, path: str) -> list[dict[str, Any]]:
        """What went wrong with a group lately, the newest first."""
        one = place_of(path).one
        found = self._compute.read(lambda api: api.instanceGroupManagers().listErrors(**one))
        newest = sorted(found.get("items", ()), key=lambda each: str(each.get("timestamp", "")), reverse=True)
        return [each.get("error", {}) for each in newest]

    def read_guest_attributes(self, path: str) -> dict[str, str]:
        """The guest attributes of an instance as namespace/key; {} while it says nothing."""
        one = place_of(path).one
        found = self._compute.find(lambda api: api.instances().getGuestAttributes(**one))
        items = (found or {}).get("queryValue", {}).get("items", ())
        return {f"{item.get('namespace', '')}/{item['key']}": str(item.get("value", "")) for item in items}

    def read_serial_output(self, path: str, last_bytes: int) -> str:
        """The end of what an instance wrote to its serial console; "" where it does not exist."""
        one = place_of(path).one
        found = self._compute.find(lambda api: api.instances().getSerialPortOutput(**one, start=str(-last_bytes)))
        return str((found or {}).get("contents", ""))

    def templates(self, project: str) -> list[dict[str, Any]]:
        """All of the project's, all pages."""

        def ask(api: Any, page: dict[str, str]) -> Any:
            return api.instanceTemplates().list(project=project, **page)

        return list(self._pages(ask, "items"))

    def everywhere(self, project: str, kind: str, only: str = "") -> Iterator[dict[str, Any]]:
        """All of a kind in all zones or regions. only: a filter. Raises CloudError when a place did not answer."""
        page: dict[str, str] = {"filter": only} if only else {}
        while True:
            ask = partial(_aggregated, project, kind, page)
            answer: Any = self._compute.read(ask)
            missing: list[object] = list(answer.get("unreachables") or ())
            scopes: dict[str, Any] = answer.get("items") or {}
            for scope, part in scopes.items():
                if _is_partial(part):
                    missing.append(scope)
                yield from part.get(kind, ())
            if missing:
                where = ", ".join(dict.fromkeys(str(each) for each in missing))
                raise CloudError(f"Google could not list all {kind}", f"no answer from {where}", "try again")
            if not answer.get("nextPageToken"):
                return
            page = page | {"pageToken": str(answer["nextPageToken"])}

    def operation(self, path: str) -> dict[str, Any] | None:
        """path: as name_of gives it. None when there is none any more."""
        place = place_of(path)
        where = {"project": place.project, **place.scope, "operation": place.name}
        return self._compute.find(lambda api: getattr(api, place.operations)().get(**where))

    def settled(self, path: str, operation: Mapping[str, Any]) -> None:
        """Wait until an operation is done. path: of what it is about. Raises Refused with its error, CloudError."""
        until = time.monotonic() + self._wait
        name = name_of(path, operation)
        found: Mapping[str, Any] | None = operation
        while found is not None and found.get("status") != "DONE":
            if time.monotonic() >= until:
                raise CloudError(
                    f"{path} is not there yet", "Google is still at work on it", "run the same command again"
                )
            time.sleep(_LOOK_SECONDS)
            found = self.operation(name)
        answer = failure_of(found or {})
        if answer is not None:
            raise Refused(answer)

    def _pages(self, ask: Callable[[Any, dict[str, str]], Any], field: str) -> Iterator[dict[str, Any]]:
        page: dict[str, str] = {}
        while True:
            answer: Any = self._compute.read(partial(_asked, ask, page))
            if _is_partial(answer):
                raise CloudError("Google could not list all", str(answer["warning"].get("message", "")), "try again")
            yield from answer.get(field) or ()
            if not answer.get("nextPageToken"):
                return
            page = {"pageToken": str(answer["nextPageToken"])}


def _is_partial(answer: Mapping[str, Any]) -> bool:
    warning: Mapping[str, Any] = answer.get("warning") or {}
    return warning.get("code") in ("UNREACHABLE", "PARTIAL_SUCCESS")


def name_of(path: str, operation: Mapping[str, Any]) -> str:
    """The path of an operation about this path."""
    place = place_of(path)
    scope = next((f"{key}s/{value}" for key, value in place.scope.items()), "global")
    return f"projects/{place.project}/{scope}/operations/{operation.get('name', '')}"


def failure_of(operation: Mapping[str, Any]) -> Answer | None:
    """Why an operation failed, None when it did not."""
    failed: Mapping[str, Any] = operation.get("error") or {}
    errors: list[Mapping[str, Any]] = failed.get("errors") or []
    return answer_of(errors[0]) if errors else None


def answer_of(error: Mapping[str, Any]) -> Answer:
    """An error of an operation or of a group: code and message (Compute Engine documentation, "Troubleshooting")."""
    return read_operation_error(str(error.get("code", "")), " ".join(str(error.get("message", "")).split()))


def _of(api: Any, place: Place) -> Any:
    return getattr(api, place.kind)()


def _asked(ask: Callable[[Any, dict[str, str]], Any], page: dict[str, str], api: Any) -> Any:
    return ask(api, page)


def _aggregated(project: str, kind: str, page: dict[str, str], api: Any) -> Any:
    return getattr(api, kind)().aggregatedList(project=project, maxResults=_PAGE, **page)
