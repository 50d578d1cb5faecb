"""What `orch check aws --fix` creates: the role of the machines, its policy for one bucket, and its instance profile.

Only what is missing is requested, so a second run requests nothing. An existing role keeps its other policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial

from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.check_policy import HOST_ROLE, document, host_statements, host_trust
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.requests import Place, request
from orchestrator.providers.checks import Repair
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.slices import Request

SSM_POLICY = "AmazonSSMManagedInstanceCore"  # "Configure instance permissions for Systems Manager", read November 2026
_SETTING = "aws.instance_profile"


def plan_repair(asked: Asked) -> Repair:
    """Return the repair for machines that cannot reach what was asked about."""
    configured = asked.options.instance_profile
    return Repair(
        plan=partial(_plan, asked, configured or HOST_ROLE),
        send=partial(_send, asked),
        settings=() if configured else ((_SETTING, HOST_ROLE),),
    )


def _plan(asked: Asked, name: str) -> tuple[Request, ...]:
    """Return the requests for what is missing. Raises OrchError when AWS does not show what exists."""
    profile = _read(asked, "GetInstanceProfile", {"InstanceProfileName": name}).get("InstanceProfile")
    roles = profile.get("Roles", ()) if profile else ()
    role = str(roles[0]["RoleName"]) if roles else name
    made: list[Request] = []

    def add(operation: str, **parameters: str) -> None:
        place = Place(asked.region, asked.options.profile)
        subject = parameters.get("InstanceProfileName", role)
        made.append(request(place, operation, subject, parameters, service="iam"))

    if not roles and not _read(asked, "GetRole", {"RoleName": role}):
        add("CreateRole", RoleName=role, AssumeRolePolicyDocument=_compact(host_trust()))
    if asked.bucket is not None:
        policy = _compact(document(host_statements(asked.bucket.container, asked.bucket.prefix)))
        where = f"{asked.bucket.container}/{asked.bucket.prefix}".rstrip("/")
        add("PutRolePolicy", RoleName=role, PolicyName=_policy_name(where), PolicyDocument=policy)
    if asked.options.access == "ssm":
        arn = f"arn:{asked.caller.partition}:iam::aws:policy/{SSM_POLICY}"
        add("AttachRolePolicy", RoleName=role, PolicyArn=arn)
    if profile is None:
        add("CreateInstanceProfile", InstanceProfileName=name)
    if not roles:
        add("AddRoleToInstanceProfile", InstanceProfileName=name, RoleName=role)
    return tuple(made)


def _send(asked: Asked, planned: Request) -> None:
    """Send one request. What another person has created since then counts as done. Raises OrchError."""
    body = {name: str(value) for name, value in planned.body.items()}
    try:
        asked.calls.change(planned.method, body, service="iam")
    except Refused as refused:
        if refused.answer.kind is not Kind.TAKEN:
            raise explain(planned.method, planned.target.partition("/")[2], refused.answer) from refused


def _read(asked: Asked, operation: str, params: Mapping[str, str]) -> Mapping[str, Mapping[str, list[dict[str, str]]]]:
    """Return an answer of IAM, {} for what does not exist."""
    try:
        return asked.calls.read("iam", operation, params)
    except Refused as refused:
        if refused.answer.kind is Kind.NOT_FOUND:
            return {}
        raise explain("read", next(iter(params.values())), refused.answer) from refused


def _policy_name(where: str) -> str:
    """Return a separate name for each bucket and prefix: 1 to 128 of [\\w+=,.@-] (IAM API, PutRolePolicy, 2026)."""
    return re.sub(r"[^\w+=,.@-]", "+", f"orch-{where}")[:128]


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
