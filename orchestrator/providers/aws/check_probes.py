"""Calls that change nothing and show what is allowed: reads, dry runs, and the policy simulation of IAM.

EC2 answers DryRun with DryRunOperation where the caller may do it, and with UnauthorizedOperation where not (EC2 API
reference, "Common query parameters", 2026). Of a thing that is not there it cannot tell whether it carries our tag, so
what is only allowed on that is asked from IAM: SimulatePrincipalPolicy weighs the caller's own policies, boundary and
the organization's, not those of a bucket (IAM API reference, read November 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.check_asked import Caller
from orchestrator.providers.aws.check_policy import HOST_ROLE, IMAGES, LOOK, SEE
from orchestrator.providers.aws.faults import action_of
from orchestrator.providers.aws.images import GPU
from orchestrator.providers.aws.parameters import filled, revealed
from orchestrator.providers.aws.quotas import ADDRESSES, SERVICE
from orchestrator.providers.aws.tags import INSTALLATION
from orchestrator.providers.aws.unknowns import CALLER, GROUP, USER_DATA, VPC
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.slices import Request
from orchestrator.values import Unknown

AT_ONCE = 4  # calls, beside those of other checks: the library keeps ten connections to a service
ALLOWED_DRY = "DryRunOperation"
_LAUNCH = "RunInstances"
_CLIENTS = {"servicequotas": "service-quotas"}  # boto3's name of a service, where IAM's differs
_STANDS_IN = "#cloud-config\n"  # for user-data, in a request that launches nothing
_NO_INSTANCE = "i-00000000000000000"
_DOCUMENTATION = "203.0.113.1/32"  # an address of nobody's (RFC 5737)


@dataclass(frozen=True, slots=True)
class Probed:
    """Actions by what was found out. said: what else EC2 has to say against the launch, None for nothing."""

    allowed: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    said: Answer | None = None

    def __or__(self, other: Probed) -> Probed:
        missing = self.missing | other.missing
        return Probed((self.allowed | other.allowed) - missing, missing, self.said or other.said)


def reads(calls: Calls, instance_profile: str) -> Probed:
    """What only looks: all of it is asked, some by a dry run. Raises Refused without an answer."""
    given: Mapping[str, Mapping[str, Any]] = {
        "ec2:DescribeCapacityBlockOfferings": {"CapacityDurationHours": 24, "DryRun": True},
        "ec2:DescribeInstanceAttribute": {"InstanceId": _NO_INSTANCE, "Attribute": "userData", "DryRun": True},
        "iam:GetInstanceProfile": {"InstanceProfileName": instance_profile or HOST_ROLE},
        "servicequotas:GetServiceQuota": {"ServiceCode": SERVICE, "QuotaCode": ADDRESSES.code},
        "ssm:GetParameter": {"Name": GPU},
    }
    actions = [one for one in (*SEE.actions, *LOOK.actions, *IMAGES.actions) if one != Simulation.ACTION]

    def probe(action: str) -> Probed:
        return _probed(calls, action, given.get(action, {"DryRun": True}))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _united(pool.map(probe, actions))


def rehearsed(calls: Calls, plan: Request) -> Probed:
    """The launch as it would be sent, each change as a dry run. Raises Refused without an answer.

    Nothing is made: the usual security group of the network stands in for its own, and it has no placement group.
    """
    known: dict[Unknown, str] = {CALLER: _DOCUMENTATION, USER_DATA: _STANDS_IN}
    found = Probed()
    for step in (*plan.before, plan):
        if step.optional:
            continue  # a launch goes on without its answer
        if step.method == _LAUNCH and GROUP not in known:
            known |= _usual_group(calls, known)
        params = filled(step.body, known)
        try:
            given = cast(dict[str, Any], revealed(params))
        except ValueError:
            continue  # it is about what is made by the launch
        if step.method.startswith(("Describe", "Get")):
            found |= _looked(calls, step, given, known)
            continue
        if step.method == _LAUNCH and any(one.method == "CreatePlacementGroup" for one in plan.before):
            given.pop("Placement", None)
        found |= _dry(calls, step.method, given)
    return found


def _usual_group(calls: Calls, known: Mapping[Unknown, str]) -> dict[Unknown, str]:
    if VPC not in known:
        return {}
    wanted = {"group-name": ["default"], "vpc-id": [known[VPC]]}
    try:
        found = calls.every("DescribeSecurityGroups", "SecurityGroups", wanted)
    except Refused:
        return {}
    return {GROUP: str(found[0]["GroupId"])} if found else {}


def _looked(calls: Calls, step: Request, given: Mapping[str, Any], known: dict[Unknown, str]) -> Probed:
    """A read of the plan, for what it makes known to the rest."""
    import jmespath

    action = f"{step.service}:{step.method}"
    try:
        answer = calls.read(step.service, step.method, given)
    except Refused as refused:
        return _of_refusal(action, refused)
    for unknown, path in step.gives:
        value: object = cast(Any, jmespath).search(path, answer)
        if isinstance(value, str) and value:
            known[unknown] = value
    return Probed(frozenset({action}))


def _dry(calls: Calls, operation: str, given: Mapping[str, Any]) -> Probed:
    """A change, not carried out. Its tags are sent along, so that their permission is asked for, too."""
    action = f"ec2:{operation}"
    tagging = {"ec2:CreateTags"} if "TagSpecifications" in given else set[str]()
    passing = {"iam:PassRole"} if "IamInstanceProfile" in given else set[str]()
    market: Mapping[str, Any] = given.get("InstanceMarketOptions", {})
    linked = {"iam:CreateServiceLinkedRole"} if market.get("MarketType") == "spot" else set[str]()
    try:
        calls.read("ec2", operation, {**given, "DryRun": True})
    except Refused as refused:
        if refused.answer.code == ALLOWED_DRY:
            return Probed(frozenset({action} | tagging | passing | linked))
        found = _of_refusal(action, refused)
        of_launch = operation == _LAUNCH and not found.missing
        return Probed(found.allowed, found.missing, refused.answer if of_launch else None)
    return Probed(frozenset({action}))


def _probed(calls: Calls, action: str, given: Mapping[str, Any]) -> Probed:
    service, _, operation = action.partition(":")
    try:
        calls.read(_CLIENTS.get(service, service), operation, given)
    except Refused as refused:
        return _of_refusal(action, refused)
    return Probed(frozenset({action}))


def _of_refusal(action: str, refused: Refused) -> Probed:
    """Who may not do it is told so before anything else is looked at. Raises Refused without an answer."""
    answer = refused.answer
    match answer.kind:
        case Kind.PERMISSION if answer.code != "OptInRequired":
            told = action_of(answer)
            return Probed(missing=frozenset({told if ":" in told else action}))
        case Kind.NO_ANSWER | Kind.UNAVAILABLE | Kind.THROTTLED | Kind.CREDENTIALS:
            raise refused
        case Kind.INVALID if not answer.code:
            raise refused  # the library found the mistake, and nothing was sent
        case _:
            return Probed(frozenset({action}))


def _united(found: Iterable[Probed]) -> Probed:
    whole = Probed()
    for one in found:
        whole |= one
    return whole


@dataclass(frozen=True, slots=True)
class Simulation:
    """Asks IAM what `principal` may do, an ARN of a user or role; "" for the account's root, who may do all."""

    calls: Calls
    principal: str

    ACTION = "iam:SimulatePrincipalPolicy"

    def denied(self, actions: Sequence[str], resource: str, context: Mapping[str, str]) -> frozenset[str]:
        """Those that are not allowed on it. context: condition keys with their values. Raises Refused."""
        if not self.principal:
            return frozenset()
        given: dict[str, Any] = {
            "PolicySourceArn": self.principal,
            "ActionNames": list(actions),
            "ResourceArns": [resource],
            "ContextEntries": [
                {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
                for key, value in context.items()
            ],
        }
        return frozenset(one["EvalActionName"] for one in self._pages(given) if one["EvalDecision"] != "allowed")

    def _pages(self, given: dict[str, Any]) -> Iterable[Thing]:
        while True:
            page = self.calls.read("iam", "SimulatePrincipalPolicy", given)
            yield from page.get("EvaluationResults", ())
            if not page.get("IsTruncated"):
                return
            given = {**given, "Marker": page["Marker"]}


def simulation_of(calls: Calls, caller: Caller) -> Simulation:
    """Of the caller's own rights. A role's session does not show the path of its role: its record does, if readable."""
    match caller.kind:
        case "root":
            return Simulation(calls, "")
        case "assumed-role":
            try:
                role = calls.read("iam", "GetRole", {"RoleName": caller.name})["Role"]
            except Refused:
                return Simulation(calls, f"arn:{caller.partition}:iam::{caller.account}:role/{caller.name}")
            return Simulation(calls, str(role["Arn"]))
        case _:
            return Simulation(calls, caller.arn)


# What is allowed only on things with our tag: such things, none of which is there, as ARNs of EC2 name them.
_INSTANCE, _GROUP, _PLACEMENT = (
    "instance/i-0123456789abcdef0",
    "security-group/sg-0123456789abcdef0",
    "placement-group/p",
)
_ADDRESS, _INTERFACE = "elastic-ip/eipalloc-0123456789abcdef0", "network-interface/eni-0123456789abcdef0"
_ON: Mapping[str, tuple[str, ...]] = {
    "ec2:AllocateAddress": (_ADDRESS,),
    "ec2:AssociateAddress": (_ADDRESS, _INTERFACE),
    "ec2:AuthorizeSecurityGroupEgress": (_GROUP,),
    "ec2:AuthorizeSecurityGroupIngress": (_GROUP,),
    "ec2:CancelSpotInstanceRequests": ("spot-instances-request/sir-0123456789ab",),
    "ec2:CreatePlacementGroup": (_PLACEMENT,),
    "ec2:DeletePlacementGroup": (_PLACEMENT,),
    "ec2:DeleteSecurityGroup": (_GROUP,),
    "ec2:ReleaseAddress": (_ADDRESS,),
    "ec2:RevokeSecurityGroupIngress": (_GROUP,),
    "ec2:StartInstances": (_INSTANCE,),
    "ec2:StopInstances": (_INSTANCE,),
    "ec2:TerminateInstances": (_INSTANCE,),
}


def simulated(simulation: Simulation, caller: Caller, region: str, actions: Iterable[str]) -> Probed:
    """As IAM weighs them, on things that carry our tag. Raises Refused.

    What is allowed on several things at once, each on its own terms, only a dry run can tell: that is left out.
    """
    by_resource: dict[str, list[str]] = {}
    for action in actions:
        for resource in _resources(action, caller, region):
            by_resource.setdefault(resource, []).append(action)
    context = {
        f"aws:ResourceTag/{INSTALLATION}": "any",
        f"aws:RequestTag/{INSTALLATION}": "any",
        "aws:RequestedRegion": region,
        "iam:AWSServiceName": "spot.amazonaws.com",
        "iam:PassedToService": "ec2.amazonaws.com",
    }

    def weigh(resource: str) -> Probed:
        asked = frozenset(by_resource[resource])
        missing = simulation.denied(sorted(asked), resource, context)
        return Probed(asked - missing, missing)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _united(pool.map(weigh, by_resource))


def _resources(action: str, caller: Caller, region: str) -> tuple[str, ...]:
    arn, account = f"arn:{caller.partition}", caller.account
    match action:
        case "iam:PassRole":
            return (f"{arn}:iam::{account}:role/{HOST_ROLE}",)
        case "iam:CreateServiceLinkedRole":
            return (f"{arn}:iam::{account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",)
        case "ec2:PurchaseCapacityBlock" | "ec2:DescribeSpotPriceHistory" | "pricing:GetProducts":
            return ("*",)
        case _:
            return tuple(f"{arn}:ec2:{region}:{account}:{thing}" for thing in _ON.get(action, ()))
