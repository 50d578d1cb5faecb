"""What the machines may do: the instance profile, its role, and whether that reaches the bucket and Session Manager."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.exits import Exit
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.aws.check_probes import Simulation
from orchestrator.providers.aws.faults import explain
from orchestrator.providers.aws.profile_repair import plan_repair
from orchestrator.providers.checks import Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused

_OBJECTS = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject")
_SESSIONS = ("ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:OpenDataChannel")


def hosts(asked: Asked) -> Outcome:
    """By iam GetInstanceProfile, and IAM's simulation of the role. Raises UserError for no bucket URI."""
    name = asked.options.instance_profile
    if not name:
        needed = f"reach {asked.ask.bucket}" if asked.bucket else "be reached by Session Manager"
        words = f"no instance profile is named: the machines could not {needed}"
        return _fix(asked, words)
    try:
        profile = asked.calls.read("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
    except Refused as refused:
        return _no_profile(asked, name, refused)
    roles = profile.get("Roles", ())
    if not roles:
        return _fix(asked, f"the instance profile {name} has no role")
    role, arn = str(roles[0]["RoleName"]), str(roles[0]["Arn"])
    try:
        return _role(asked, role, Simulation(asked.calls, arn))
    except Refused as refused:
        if refused.answer.kind is not Kind.PERMISSION:
            return finding_from_error("hosts", explain("ask what", f"the role {role} may do", refused.answer))
        words = f"the machines get the role {role}; what it may do is not shown to these credentials"
        return unknown(
            "hosts", words, f"ask the owner of account {asked.caller.account} for iam:SimulatePrincipalPolicy"
        )


_EXIT = Exit.PERMISSION


def _no_profile(asked: Asked, name: str, refused: Refused) -> Outcome:
    match refused.answer.kind:
        case Kind.NOT_FOUND:
            return _fix(asked, f"there is no instance profile {name}", Exit.NOT_FOUND)
        case Kind.PERMISSION:
            words = f"these credentials may not read whether there is an instance profile {name}"
            return unknown(
                "hosts", words, f"ask the owner of account {asked.caller.account} for iam:GetInstanceProfile"
            )
        case _:
            return finding_from_error("hosts", explain("read", f"the instance profile {name}", refused.answer))


def _role(asked: Asked, role: str, simulation: Simulation) -> Outcome:
    """Raises Refused, UserError."""
    bucket = asked.bucket
    reach: list[str] = []
    if bucket is not None:
        arn = f"arn:{asked.caller.partition}:s3:::{bucket.container}"
        below = f"{bucket.prefix}/" if bucket.prefix else ""
        seen: Mapping[str, str] = {"s3:prefix": below}
        lacking = simulation.denied(("s3:ListBucket",), arn, seen)
        lacking |= simulation.denied(_OBJECTS, f"{arn}/{below}any", {})
        if lacking:
            words = f"the role {role} may not use {bucket.uri}: missing {', '.join(sorted(lacking))}"
            return _fix(asked, words, Exit.STORAGE)
        reach.append(f"use {bucket.uri}")
    if asked.options.access == "ssm":
        if simulation.denied(_SESSIONS, "*", {}):
            return _fix(asked, f"the role {role} cannot be reached by Session Manager")
        reach.append("be reached by Session Manager")
    may = f", which may {' and '.join(reach)}" if reach else ""
    return ok("hosts", f"the machines get the role {role}{may}")


def _fix(asked: Asked, words: str, status: int = _EXIT) -> Outcome:
    """Return the finding with the command that shows the missing requests, and sends them after a question."""
    bucket = f" --bucket {asked.ask.bucket}" if asked.ask.bucket else ""
    name = f" --instance-profile {asked.options.instance_profile}" if asked.options.instance_profile else ""
    return fix("hosts", words, f"orch check aws{bucket}{name}{asked.profile_option} --fix", status, plan_repair(asked))
