"""Firewall rules as they are at Google: made before a slice, looked at, taken away after it. Compute API v1.

A rule's name is its key: whatever was lost on the way is found out by looking. What does not carry the right
description is never changed and never deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, cast

from orchestrator.errors import AccessError, CloudError, ConflictError, OrchError, UserError
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.google import access
from orchestrator.providers.google.body import filled, revealed
from orchestrator.providers.google.discovery import Discovery
from orchestrator.providers.google.labels import CLUSTER, INSTALLATION, INTENT
from orchestrator.providers.google.retries import explain
from orchestrator.providers.google.session import Session
from orchestrator.slices import Request
from orchestrator.values import Unknown

WORK_SECONDS = 60.0  # how long a rule may take to come into force
_LOOK_SECONDS = 1.0  # between two looks at a rule that is being made
_ROLE = "roles/compute.securityAdmin"  # holds compute.firewalls.* (IAM documentation, "Compute Engine roles", 2025)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRule:
    """A rule that an orch made. created: seconds since the epoch, 0 when Google does not say."""

    name: str
    project: str
    slice: str
    cluster: str
    installation: str
    intent: str
    created: float

    @property
    def request(self) -> Request:
        """What takes it away."""
        return Request(
            service=access.SERVICE, method="DELETE", target=f"projects/{self.project}/global/firewalls/{self.name}"
        )


class Firewall:
    """Every method raises AccessError, CloudError or another OrchError when Google refuses or does not answer."""

    def __init__(self, session: Session, *, wait_seconds: float = WORK_SECONDS) -> None:
        self._compute = Discovery(session, "compute", "v1")
        self._wait = wait_seconds

    def ensure(self, request: Request) -> None:
        """Make the rule of a planned request, or see that it is there; returns when it is in force.

        One of ours that admits another address (the computer has moved) is changed to what is asked for. Raises
        ConflictError for a rule of that name that is not ours, ValueError while a part of the request is unknown.
        """
        project, _ = _place(request)
        body = cast(dict[str, Any], revealed(request.body))
        name = str(body["name"])
        with _explained("create", name, project):
            found = self._get(project, name)
            if found is None:
                found = self._insert(project, body)
            if found is not None:
                self._agree(project, found, body)

    def change_sources(self, rule: str, token: str, admitted: Iterable[str], withdrawn: Iterable[str]) -> None:
        """Admit addresses by a rule, and withdraw others; nothing when the rule is not of this slice.

        rule: the target of the request that deletes it. Rules name a set of sources as a whole, and one without sources
        admits everyone (compute v1, Firewall.sourceRanges, discovery document of November 2026).
        """
        project, name = _place(Request(service=access.SERVICE, method="PATCH", target=rule))
        with _explained("change", name, project):
            found = self._get(project, name)
            if found is None or access.owner_of(str(found.get("description", ""))).get(INTENT) != token:
                return
            held, given = [str(one) for one in found.get("sourceRanges", ())], [*admitted]
            kept = [one for one in held if one in given or one not in {*withdrawn}]
            sources = [*dict.fromkeys((*kept, *given))]
            if not sources:
                raise ValueError(f"{name} would admit everyone")
            if sources != held:
                ask = partial(_patch, project, name, {"sourceRanges": sources})
                self._await(project, self._compute.change(ask))

    def remove(self, request: Request, token: str) -> bool:
        """Take away the rule of a planned end. True when none of ours is left.

        token: of the slice; a rule of another request, or of nobody's, stays and counts as none of ours.
        """
        project, name = _place(request)
        with _explained("delete", name, project):
            if self._is_ours(project, name, token):
                try:
                    self._compute.change(lambda api: api.firewalls().delete(project=project, firewall=name))
                except Refused as refused:  # not found: gone in between; not ready: it is being made or deleted now
                    if refused.answer.kind not in (Kind.NOT_FOUND, Kind.WRONG_STATE):
                        raise
            return not self._is_ours(project, name, token)

    def is_gone(self, request: Request, token: str) -> bool:
        """Whether none of ours is left; changes nothing."""
        project, name = _place(request)
        with _explained("look at", name, project):
            return not self._is_ours(project, name, token)

    def owned(self, project: str, installation: str = "", *, may_be_off: bool = False) -> tuple[OwnedRule, ...]:
        """The rules of an installation, "" for those of all. Raises CloudError when the listing is not whole.

        may_be_off: that the project does not use the API at all is an answer: there are no rules.
        """
        found: list[OwnedRule] = []
        page = ""
        with _explained("list", "firewall rules", project):
            while True:
                try:
                    answer = self._compute.read(partial(_list, project, page))
                except Refused as refused:
                    if may_be_off and refused.answer.kind is Kind.API_DISABLED:
                        return ()
                    raise
                warning: dict[str, Any] = answer.get("warning") or {}
                if warning.get("code") == "UNREACHABLE":
                    why = str(warning.get("message", ""))
                    raise CloudError("Google could not list all firewall rules", why, "run the same command again")
                found += [rule for item in answer.get("items", ()) if (rule := _owned(project, item)) is not None]
                page = str(answer.get("nextPageToken", ""))
                if not page:
                    break
        return tuple(rule for rule in found if installation in ("", rule.installation))

    def _get(self, project: str, name: str) -> dict[str, Any] | None:
        return self._compute.find(lambda api: api.firewalls().get(project=project, firewall=name))

    def _insert(self, project: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """None when we have made it; what is there already when that was in the way. Raises Refused."""
        try:
            operation = self._compute.change(lambda api: api.firewalls().insert(project=project, body=body))
        except Refused as refused:
            if refused.answer.kind is not Kind.TAKEN and not refused.answer.kind.may_have_acted:
                raise
            found = self._get(project, body["name"])
            if found is None:
                raise
            return found
        self._await(project, operation)
        return None

    def _agree(self, project: str, found: dict[str, Any], body: dict[str, Any]) -> None:
        """See that a rule which was there before is ours and says what we want."""
        if found.get("description") != body["description"]:
            raise ConflictError(
                f"a firewall rule '{body['name']}' exists already",
                "it was not made for this slice",
                "take another name: -c NAME   or make your own rule and set firewall: none",
            )
        fields = ("sourceRanges", "sourceTags", "targetTags", "allowed")
        changed = {key: body[key] for key in fields if key in body and found.get(key) != body[key]}
        if changed:
            name = str(body["name"])
            ask = partial(_patch, project, name, changed)
            self._await(project, self._compute.change(ask))

    def _is_ours(self, project: str, name: str, token: str) -> bool:
        found = self._get(project, name)
        return found is not None and access.owner_of(str(found.get("description", ""))).get(INTENT) == token

    def _await(self, project: str, operation: dict[str, Any]) -> None:
        """Until the operation is done. Raises Refused with its error, CloudError when it takes too long."""
        until = time.monotonic() + self._wait
        name = str(operation.get("name", ""))
        while operation.get("status") != "DONE":
            if time.monotonic() > until:
                raise CloudError(
                    "a firewall rule is not in force", f"requested {self._wait:.0f} s ago", "run the same command again"
                )
            time.sleep(_LOOK_SECONDS)
            operation = self._compute.read(lambda api: api.globalOperations().get(project=project, operation=name))
        failed: dict[str, list[dict[str, Any]]] = operation.get("error") or {}
        errors = failed.get("errors") or []
        if errors:
            words = "; ".join(f"{one.get('code', '')}: {one.get('message', '')}" for one in errors)
            raise Refused(
                Answer(kind=_OF_STATUS.get(int(operation.get("httpErrorStatusCode", 0)), Kind.INVALID), words=words)
            )


_OF_STATUS = {403: Kind.PERMISSION, 404: Kind.NOT_FOUND, 409: Kind.TAKEN, 429: Kind.THROTTLED, 503: Kind.UNAVAILABLE}


def with_caller(requests: Iterable[Request], address: Callable[[], str]) -> tuple[Request, ...]:
    """The planned requests with the caller's address in them; asked for only where it is used."""
    given = tuple(requests)
    if not any(_asks_for(access.CALLER, request.body.get("sourceRanges")) for request in given):
        return given
    known = {access.CALLER: address()}
    return tuple(replace(one, body=cast(dict[str, object], filled(one.body, known)), command=()) for one in given)


def _asks_for(unknown: Unknown, ranges: object) -> bool:
    return any(unknown in one.parts for one in cast(list[Any], ranges or []))


def _place(request: Request) -> tuple[str, str]:
    """Project and name in a request's target; name "" for a create. Raises ValueError while the project is unknown."""
    words = request.target.split("/")
    if "(" in request.target or len(words) not in (4, 5) or words[0] != "projects" or words[3] != "firewalls":
        raise ValueError(f"{request.target} is not the path of a firewall rule")
    return words[1], words[4] if len(words) == 5 else ""


def _list(project: str, page: str, api: Any) -> Any:
    return api.firewalls().list(project=project, pageToken=page or None, maxResults=500)


def _patch(project: str, name: str, body: dict[str, Any], api: Any) -> Any:
    return api.firewalls().patch(project=project, firewall=name, body=body)


def _owned(project: str, item: dict[str, Any]) -> OwnedRule | None:
    owner = access.owner_of(str(item.get("description", "")))
    if not owner:
        return None
    return OwnedRule(
        name=str(item["name"]),
        project=project,
        slice=owner[access.SLICE],
        cluster=owner.get(CLUSTER, ""),
        installation=owner.get(INSTALLATION, ""),
        intent=owner[INTENT],
        created=_seconds(str(item.get("creationTimestamp", ""))),
    )


def _seconds(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0


@contextmanager
def _explained(verb: str, name: str, project: str) -> Generator[None]:
    """An answer of Google as an error of ours."""
    try:
        yield
    except Refused as refused:
        raise _error(verb, f"firewall rule {name}" if verb != "list" else name, refused.answer, project) from refused


def _error(verb: str, name: str, answer: Answer, project: str) -> OrchError:
    what, why = f"{verb} {name} was refused by Google", f"{answer.kind}: {answer.words}"
    match answer.kind:
        case Kind.PERMISSION:
            step = f"ask for the role {_ROLE} in {project}, or open port 22 yourself and set firewall: none"
            return AccessError(what, why, step)
        case Kind.API_DISABLED:
            step = f"gcloud services enable compute.googleapis.com --project={project}   then wait a minute"
            return AccessError(what, why, step)
        case Kind.INVALID | Kind.NOT_FOUND:
            return UserError(what, why, "check the network and ssh_cidr that the task names")
        case _:
            return explain(verb, name, answer, project)
