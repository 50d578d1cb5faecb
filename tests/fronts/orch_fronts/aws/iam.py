"""IAM: the hosts' role and its instance profile, policies, and what the caller may do.

Source: IAM API reference, pages of the operations below (read November 2026). What is made here is forgotten with the
front, and a policy that is attached to the caller changes nothing: what he may do is said by the grants alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from orch_fronts.aws.asking import ask
from orch_fronts.aws.calls import ACCOUNT, AwsAnswer, AwsCall, AwsRefusal, Need
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.query import answer, members
from orchestrator.simulator.access import Access

_MADE = "2026-01-01T00:00:00Z"


@dataclass
class Role:
    """policies: those in it, by name; attached: names of those beside it."""

    trust: str
    policies: dict[str, str] = field(default_factory=dict[str, str])
    attached: list[str] = field(default_factory=list[str])


class IamFront:
    """guard: whose grants it shows, and who simulates policies."""

    def __init__(self, guard: Guard, access: Access | None = None) -> None:
        self._guard = guard
        self._access = access
        self._roles = {role: Role("{}") for role in guard.grants.profiles.values()}
        self._profiles: dict[str, str] = dict(guard.grants.profiles)  # name -> its role, or ""
        self._policies: dict[str, str] = {}
        self._operations: Mapping[str, Callable[[Mapping[str, str]], Mapping[str, Any] | None]] = {
            "AddRoleToInstanceProfile": self._add_role,
            "AttachRolePolicy": self._attach,
            "AttachUserPolicy": self._attach,
            "CreateInstanceProfile": self._create_profile,
            "CreatePolicy": self._create_policy,
            "CreateRole": self._create_role,
            "GetInstanceProfile": self._get_profile,
            "GetRole": self._get_role,
            "GetRolePolicy": self._get_policy,
            "ListAttachedRolePolicies": self._list_attached,
            "ListRolePolicies": self._list_policies,
            "PutRolePolicy": self._put_policy,
            "SimulatePrincipalPolicy": self._simulate,
        }

    def needs(self, call: AwsCall) -> Sequence[Need]:
        """On the role or the profile that it names; of giving a role to a profile, iam:PassRole as well."""
        action, params = f"iam:{call.operation}", call.params
        if profile := params.get("InstanceProfileName"):
            needs = [Need(action=action, resource=_arn("instance-profile", profile))]
            if call.operation == "AddRoleToInstanceProfile":
                context = {"iam:PassedToService": "ec2.amazonaws.com"}
                needs.append(
                    Need(action="iam:PassRole", resource=_arn("role", params.get("RoleName", "")), context=context)
                )
            return needs
        for kind in ("Role", "User", "Policy"):
            if name := params.get(f"{kind}Name"):
                return [Need(action=action, resource=_arn(kind.lower(), name))]
        return [Need(action=action)]

    def handle(self, call: AwsCall) -> AwsAnswer:
        operation = self._operations.get(call.operation)
        if operation is None:
            raise AwsRefusal("InvalidAction", f"Could not find operation {call.operation} for version 2010-05-08")
        ask(self._access, call, str(call.params.get("InstanceProfileName") or call.params.get("RoleName") or ""))
        return answer(call, operation(call.params))

    def _create_role(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        name = params["RoleName"]
        if name in self._roles:
            raise AwsRefusal("EntityAlreadyExists", f"Role with name {name} already exists.", 409)
        self._roles[name] = Role(_document(params["AssumeRolePolicyDocument"]))
        return {"Role": self._role(name)}

    def _get_role(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        return {"Role": self._role(params["RoleName"])}

    def _put_policy(self, params: Mapping[str, str]) -> None:
        self._known(params["RoleName"]).policies[params["PolicyName"]] = _document(params["PolicyDocument"])

    def _get_policy(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        role, name = params["RoleName"], params["PolicyName"]
        policy = self._known(role).policies.get(name)
        if policy is None:
            raise _missing(f"The role policy with name {name}")
        return {"RoleName": role, "PolicyName": name, "PolicyDocument": quote(policy)}

    def _list_policies(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        return {"PolicyNames": sorted(self._known(params["RoleName"]).policies), "IsTruncated": False}

    def _list_attached(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        attached = self._known(params["RoleName"]).attached
        shown = [{"PolicyName": name, "PolicyArn": _arn("policy", name)} for name in attached]
        return {"AttachedPolicies": shown, "IsTruncated": False}

    def _create_policy(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        name = params["PolicyName"]
        if name in self._policies:
            raise AwsRefusal("EntityAlreadyExists", f"A policy called {name} already exists.", 409)
        self._policies[name] = _document(params["PolicyDocument"])
        return {"Policy": {"PolicyName": name, "PolicyId": _id("ANPA", name), "Arn": _arn("policy", name)}}

    def _attach(self, params: Mapping[str, str]) -> None:
        """To a role, or to a user: whoever he is."""
        name = params["PolicyArn"].rpartition("/")[2]
        if _arn("policy", name) == params["PolicyArn"] and name not in self._policies:
            raise _missing(f"Policy {params['PolicyArn']}")
        if role := params.get("RoleName"):
            self._known(role).attached.append(name)

    def _create_profile(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        name = params["InstanceProfileName"]
        if name in self._profiles:
            raise AwsRefusal("EntityAlreadyExists", f"Instance Profile {name} already exists.", 409)
        self._profiles[name] = ""
        return self._get_profile(params)

    def _add_role(self, params: Mapping[str, str]) -> None:
        name, role = params["InstanceProfileName"], params["RoleName"]
        self._get_profile(params)
        self._known(role)
        if self._profiles[name]:  # a profile holds one role
            raise AwsRefusal("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1", 409)
        self._profiles[name] = role

    def _get_profile(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        name = params["InstanceProfileName"]
        if name not in self._profiles:
            raise _missing(f"Instance Profile {name}")
        roles = [self._role(self._profiles[name])] if self._profiles[name] else []
        shown = {"Path": "/", "InstanceProfileName": name, "Arn": _arn("instance-profile", name)}
        more = {"InstanceProfileId": _id("AIPA", name), "CreateDate": _MADE, "Roles": roles}
        return {"InstanceProfile": shown | more}

    def _simulate(self, params: Mapping[str, str]) -> Mapping[str, Any]:
        """Without conditions of its own: a statement that asks for a tag does not fit then, as it is with IAM."""
        resources = members(params, "ResourceArns") or ["*"]
        results = [
            {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision}
            for action in members(params, "ActionNames")
            for resource in resources
            for decision in (
                self._guard.decide(Need(action=action, resource=resource, context=_entries(params)), "us-east-1"),
            )
        ]
        return {"EvaluationResults": results, "IsTruncated": False}

    def _known(self, name: str) -> Role:
        if name not in self._roles:
            raise _missing(f"The role with name {name}")
        return self._roles[name]

    def _role(self, name: str) -> dict[str, Any]:
        trust = quote(self._known(name).trust)
        shown = {"Path": "/", "RoleName": name, "RoleId": _id("AROA", name), "Arn": _arn("role", name)}
        return {**shown, "CreateDate": _MADE, "AssumeRolePolicyDocument": trust}


def _entries(params: Mapping[str, str]) -> dict[str, str]:
    """ContextEntries.member.N: a key and its first value."""
    found: dict[str, str] = {}
    for name, key in params.items():
        if name.startswith("ContextEntries.member.") and name.endswith(".ContextKeyName"):
            value = params.get(name.replace(".ContextKeyName", ".ContextKeyValues.member.1"))
            found |= {} if value is None else {key: value}
    return found


def _document(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        raise AwsRefusal("MalformedPolicyDocument", f"Syntax errors in policy: {error}") from error
    return text


def _missing(what: str) -> AwsRefusal:
    return AwsRefusal("NoSuchEntity", f"{what} cannot be found.", 404)


def _arn(kind: str, name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:{kind}/{name}"


def _id(prefix: str, name: str) -> str:
    return f"{prefix}{name.encode().hex().upper():0<17.17}"
