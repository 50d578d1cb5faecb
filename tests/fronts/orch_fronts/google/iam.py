"""Who may call what: permissions by method, a guard before all services, and the services that tell of permissions.

A method that the table does not have is refused too: whoever calls it adds its permissions here, with their source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from orch_fronts.google.grants import Grants
from orch_fronts.google.methods import Called, called, check_body
from orch_fronts.google.permissions import ACT_AS, PERMISSIONS, in_bucket
from orch_fronts.google.status import INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, Refusal

if TYPE_CHECKING:  # the server itself uses the guard
    from orch_fronts.google.server import Front

MOST_ASKED = 100  # permissions in one question ("projects.testIamPermissions" names no other; modelled)
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class Guard:
    """Lets a call pass when its API is enabled and its permissions are granted. asked: all that were asked for."""

    def __init__(self, grants: Grants | None = None) -> None:
        self.grants = grants or Grants()
        self.asked: set[str] = set()

    def admit(self, method: str, target: str, body: bytes = b"") -> None:
        """Raises Refusal, in Google's words."""
        call = called(method, target)
        if call.id not in PERMISSIONS:
            raise _denied(f"a permission for {call.id}, which no table names,", call)
        api = f"{call.service}.googleapis.com"
        if api not in self.grants.apis:
            raise _disabled(api, call)
        if in_bucket(call.id):
            return  # the bucket's own policy decides
        needed = (*PERMISSIONS[call.id], *_account_permissions(call, body))
        self.asked.update(needed)
        for permission in needed:
            if permission == ACT_AS:
                self._check_account(call, body)
            elif permission not in self.grants.permissions:
                raise _denied(permission, call)

    def around(self, front: Front) -> Front:
        """The same service behind this guard."""
        return _Guarded(self, front)

    def _check_account(self, call: Called, body: bytes) -> None:
        for account in _accounts(call, body, self.grants):
            if not self.grants.may_act_as(account):
                words = f"User does not have permission to act as service account {account}."
                raise Refusal(PERMISSION_DENIED, words)


def owner() -> Grants:
    """Of somebody who may do all that the table knows: for tests of the simulated services themselves."""
    return Grants(permissions=frozenset(one for needed in PERMISSIONS.values() for one in needed))


class ResourceManagerFront:
    """projects.get and projects.testIamPermissions (Cloud Resource Manager API v1 reference, read November 2026)."""

    def __init__(self, project: str, grants: Grants) -> None:
        self._project = project
        self._grants = grants

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        call = called(method, target)
        _check_project(call.path_values[0], self._project)
        if call.id == "cloudresourcemanager.projects.get":
            number = str(self._grants.number)
            return {"projectId": self._project, "projectNumber": number, "lifecycleState": "ACTIVE"}
        return {"permissions": [one for one in asked_permissions(call, body) if one in self._grants.permissions]}


class IamFront:
    """serviceAccounts.testIamPermissions (IAM API v1 reference, read November 2026)."""

    def __init__(self, grants: Grants) -> None:
        self._grants = grants

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        call = called(method, target)
        account = call.path_values[1]
        if not self._grants.has_account(account):
            raise Refusal(NOT_FOUND, f"Unknown service account: {account}")
        asked = asked_permissions(call, body)
        return {"permissions": [one for one in asked if one == ACT_AS and self._grants.may_act_as(account)]}


def asked_permissions(call: Called, body: bytes) -> list[str]:
    """Of a TestIamPermissionsRequest. Wildcards are not allowed in it (its reference). Raises Refusal."""
    asked = check_body(call.service, call.version, "TestIamPermissionsRequest", body).get("permissions", [])
    wrong = [one for one in asked if "*" in str(one) or str(one).count(".") < 2]
    if wrong or len(asked) > MOST_ASKED:
        words = f"Permission {wrong[0]} is not valid for this resource." if wrong else "Too many permissions."
        raise Refusal(INVALID_ARGUMENT, words)
    return [str(one) for one in asked]


class _Guarded:
    def __init__(self, guard: Guard, front: Front) -> None:
        self._guard = guard
        self._front = front

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        self._guard.admit(method, target, body)
        return self._front.handle(method, target, body)


_GIVES_ACCOUNT: Mapping[str, str] = {  # where the body of a create names the hosts' accounts
    "tpu.projects.locations.nodes.create": "node",
    "tpu.projects.locations.queuedResources.create": "queued",
    "compute.instances.insert": "instance",
    "compute.instanceTemplates.insert": "template",
}


def _account_permissions(call: Called, body: bytes) -> tuple[str, ...]:
    """A TPU host always runs as an account; an instance only when one is named ("Attach service accounts")."""
    kind = _GIVES_ACCOUNT.get(call.id, "")
    return (ACT_AS,) if kind in ("node", "queued") or (kind and _named(kind, _json(body))) else ()


def _accounts(call: Called, body: bytes, grants: Grants) -> list[str]:
    """What is not named is the project's default account of Compute Engine."""
    named = _named(_GIVES_ACCOUNT[call.id], _json(body))
    default = f"{grants.number}-compute@developer.gserviceaccount.com"
    return [name if name not in ("", "default") else default for name in named] or [default]


def _named(kind: str, body: Mapping[str, Any]) -> list[str]:
    if kind == "node":
        return [str(body.get("serviceAccount", {}).get("email", ""))]
    if kind == "queued":
        specs = body.get("tpu", {}).get("nodeSpec", [])
        return [str(spec.get("node", {}).get("serviceAccount", {}).get("email", "")) for spec in specs]
    holder = body.get("properties", {}) if kind == "template" else body
    return [str(one.get("email", "")) for one in holder.get("serviceAccounts", [])]


def _json(body: bytes) -> dict[str, Any]:
    """{} for what is no JSON object: the service itself will say so."""
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _check_project(given: str, project: str) -> None:
    if given != project:
        words = f"Permission denied on resource project {given} (or it may not exist)."
        raise Refusal(PERMISSION_DENIED, words)


def _denied(permission: str, call: Called) -> Refusal:
    """The words and the detail of IAM (seen in GoogleCloudPlatform/t5x-on-vertex-ai issue 5, 2022).

    Compute Engine has other words and no detail (its troubleshooting pages, 2025).
    """
    resource = call.path.partition("/")[2] if call.service != "compute" else call.path
    domain = f"{call.service}.googleapis.com"
    if call.service == "compute":
        return Refusal(PERMISSION_DENIED, f"Required '{permission}' permission for '{resource}'")
    words = f"Permission '{permission}' denied on resource '//{domain}/{resource}' (or it may not exist)."
    metadata = {"permission": permission, "resource": resource}
    return Refusal(PERMISSION_DENIED, words, (_info("IAM_PERMISSION_DENIED", domain, metadata),))


def _disabled(api: str, call: Called) -> Refusal:
    """google.api.ErrorReason SERVICE_DISABLED, whose comment gives the metadata (google/api/error_reason.proto)."""
    project = call.path.partition("projects/")[2].partition("/")[0].partition(":")[0] or "-"
    page = f"https://console.developers.google.com/apis/api/{api}/overview?project={project}"
    words = (
        f"{api} has not been used in project {project} before or it is disabled. Enable it by visiting {page} then"
        " retry. If you enabled this API recently, wait a few minutes for the action to propagate to our systems and"
        " retry."
    )
    metadata = {"consumer": f"projects/{project}", "service": api, "activationUrl": page}
    return Refusal(PERMISSION_DENIED, words, (_info("SERVICE_DISABLED", "googleapis.com", metadata),))


def _info(reason: str, domain: str, metadata: dict[str, str]) -> dict[str, Any]:
    return {"@type": _INFO, "reason": reason, "domain": domain, "metadata": metadata}
