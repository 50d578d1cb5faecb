"""IAM at the door: every call is weighed against policy documents, as the policy evaluation logic says.

Sources: IAM User Guide, "Policy evaluation logic", "IAM JSON policy elements: Condition operators" and "Troubleshoot
access denied error messages"; the words of EC2's refusals are those of public issues (all read November 2026). What
this cannot weigh, it refuses to load: a policy that is half understood would let a test pass.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from orch_fronts.aws.calls import AwsCall, AwsRefusal, Need
from orch_fronts.aws.grants import USER, Grants
from orchestrator.errors import UserError

ALLOWED, EXPLICIT, IMPLICIT = "allowed", "explicitDeny", "implicitDeny"  # as SimulatePrincipalPolicy says them


class Guard:
    """asked: the actions of all calls so far, allowed or not. Raises UserError for a policy that it cannot weigh."""

    def __init__(self, grants: Grants | None = None) -> None:
        self.grants = grants or Grants()
        self.asked: set[str] = set()
        self._rules = tuple(rule for policy in self.grants.policies for rule in read(policy, self.grants.names))

    def admit(self, call: AwsCall, needs: Sequence[Need]) -> None:
        """Raises AwsRefusal, in the service's words."""
        for need in needs:
            self.check(call.service, need, call.region)

    def check(self, service: str, need: Need, region: str) -> None:
        """The same for one permission."""
        if need.action in _FREE:
            return
        self.asked.add(need.action)
        decision = self.decide(need, region)
        if decision != ALLOWED:
            raise _denied(service, need, decision)

    def decide(self, need: Need, region: str) -> str:
        """ALLOWED, EXPLICIT or IMPLICIT: a deny wins, and what nothing allows is denied."""
        context = _context(need, region)
        effects = {rule.effect for rule in self._rules if rule.fits(need, context)}
        return EXPLICIT if "Deny" in effects else ALLOWED if "Allow" in effects else IMPLICIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One statement of a policy. conditions: each (operator, key, wanted values)."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def fits(self, need: Need, context: Mapping[str, str]) -> bool:
        """Actions are without regard to case, ARNs are not ("IAM JSON policy elements")."""
        return (
            any(_like(need.action.lower(), one.lower()) for one in self.actions)
            and any(_like(need.resource, one) for one in self.resources)
            and all(_OPERATORS[operator](context.get(key.lower()), wanted) for operator, key, wanted in self.conditions)
        )


def read(policy: Mapping[str, Any], names: Mapping[str, str]) -> tuple[Rule, ...]:
    """names: words in it that stand for something else. Raises UserError for what cannot be weighed here."""
    if policy.get("Version") != "2012-10-17":
        raise _unknown(f"Version {policy.get('Version')!r}")
    return tuple(_rule(statement, names) for statement in _several(policy.get("Statement", ())))


def _rule(statement: Mapping[str, Any], names: Mapping[str, str]) -> Rule:
    strange = statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if strange or statement.get("Effect") not in ("Allow", "Deny"):
        raise _unknown(f"{', '.join(sorted(strange)) or 'Effect'} in a statement")
    conditions: list[tuple[str, str, tuple[str, ...]]] = []
    for operator, keys in cast(Mapping[str, Mapping[str, Any]], statement.get("Condition", {})).items():
        if operator not in _OPERATORS:
            raise _unknown(f"the condition operator {operator}")
        for key, wanted in keys.items():
            if not key.lower().startswith(_KEYS):
                raise _unknown(f"the condition key {key}")
            conditions.append((operator, key, tuple(_replaced(str(one), names) for one in _several(wanted))))
    resources = tuple(_replaced(str(one), names) for one in _several(statement["Resource"]))
    if any("${" in one for one in (*resources, *(one for _, _, wanted in conditions for one in wanted))):
        raise _unknown("a policy variable")
    return Rule(
        effect=str(statement["Effect"]),
        actions=tuple(_several(statement["Action"])),
        resources=resources,
        conditions=tuple(conditions),
    )


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def _context(need: Need, region: str) -> Mapping[str, str]:
    """Condition keys with their values; the keys in lower case, for they are without regard to case."""
    every = {"aws:RequestedRegion": region, "ec2:Region": region, **need.context}
    every |= {f"aws:RequestTag/{name}": value for name, value in need.request_tags.items()}
    for key in ("aws:ResourceTag", "ec2:ResourceTag"):
        every |= {f"{key}/{name}": value for name, value in need.resource_tags.items()}
    return {key.lower(): value for key, value in every.items()}


def _equal(found: str | None, wanted: Sequence[str]) -> bool:
    return found is not None and found in wanted


def _alike(found: str | None, wanted: Sequence[str]) -> bool:
    return found is not None and any(_like(found, one) for one in wanted)


def _null(found: str | None, wanted: Sequence[str]) -> bool:
    return any((one.lower() == "true") == (found is None) for one in wanted)


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "StringEquals": _equal,
    "StringLike": _alike,
    "ArnLike": _alike,
    "StringNotEquals": lambda found, wanted: not _equal(found, wanted),
    "StringNotLike": lambda found, wanted: not _alike(found, wanted),
    "StringEqualsIfExists": lambda found, wanted: found is None or _equal(found, wanted),
    "StringLikeIfExists": lambda found, wanted: found is None or _alike(found, wanted),
    "Null": _null,
}
_KEYS = (
    "aws:requestedregion",
    "aws:requesttag/",
    "aws:resourcetag/",
    "ec2:createaction",
    "ec2:region",
    "ec2:resourcetag/",
    "iam:awsservicename",
    "iam:passedtoservice",
    "s3:prefix",
)
_FREE = frozenset({"sts:GetCallerIdentity"})  # needs no permission (STS API reference, GetCallerIdentity)


def _like(text: str, pattern: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """`*` any characters, slashes too; `?` any one."""
    return re.compile("".join({"*": ".*", "?": "."}.get(one, re.escape(one)) for one in text), re.DOTALL)


def _several(value: Any) -> Iterable[Any]:
    return cast(Iterable[Any], value) if isinstance(value, list | tuple) else (value,)


def _unknown(what: str) -> UserError:
    return UserError("the simulated IAM cannot weigh this policy", f"it has {what}", "write it with what docs/iam uses")


def _denied(service: str, need: Need, decision: str) -> AwsRefusal:
    why = f"because no identity-based policy allows the {need.action} action"
    if decision == EXPLICIT:
        why = "with an explicit deny in an identity-based policy"
    words = f"User: {USER} is not authorized to perform: {need.action} on resource: {need.resource} {why}"
    if service != "ec2":
        code, http = _CODES.get(service, ("AccessDeniedException", 400))
        return AwsRefusal(code, words, http)
    encoded = base64.urlsafe_b64encode(f"{need.action} {need.resource}".encode()).decode()
    words = f"You are not authorized to perform this operation. {words}."
    return AwsRefusal("UnauthorizedOperation", f"{words} Encoded authorization failure message: {encoded}", 403)


_CODES: Mapping[str, tuple[str, int]] = dict.fromkeys(("iam", "s3", "sts"), ("AccessDenied", 403))
