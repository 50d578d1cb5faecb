"""What orch may do in an AWS account: one table, from which policy files, the check and the simulated IAM are made.

Actions, resource types and condition keys: Service Authorization Reference, pages of Amazon EC2, Systems Manager,
Service Quotas, IAM and S3 (read November 2026). Calls of EC2 that only read know no resources: they are on "*". What is
made carries our tag in the creating call, and only what carries it is changed or ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.providers.aws.tags import INSTALLATION

BUCKET, PREFIX = "BUCKET", "PREFIX"  # to be replaced by whoever uses the files
HOST_ROLE = "orch-host"
PROJECT_ROLE = "orch-project"  # begins the names of roles that are assumed for projects
SERVER_ARN, EXTERNAL_ID = "arn:aws:iam::ACCOUNT:role/SERVER", "EXTERNAL-ID"  # to be replaced, too

_EC2 = "arn:aws:ec2:*:*:"
_NEW = (f"{_EC2}*/*",)
_TAGGED: Mapping[str, Mapping[str, Any]] = {"Null": {f"aws:ResourceTag/{INSTALLATION}": "false"}}
_TAGGING: Mapping[str, Any] = {f"aws:RequestTag/{INSTALLATION}": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One of a policy: all of these actions are allowed on these resources. sid: what they are for."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def to_json(self) -> dict[str, Any]:
        plain = {operator: dict(keys) for operator, keys in self.conditions.items()}
        value = {"Sid": self.sid, "Effect": "Allow", "Action": list(self.actions), "Resource": list(self.resources)}
        return value | ({"Condition": plain} if plain else {})


SEE = Statement(
    sid="SeeWhatIsThere",
    actions=(
        "ec2:DescribeAddresses",
        "ec2:DescribeCapacityBlockOfferings",
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceAttribute",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribePlacementGroups",
        "ec2:DescribeRegions",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSpotInstanceRequests",
        "ec2:DescribeSubnets",
    ),
)
LOOK = Statement(
    sid="CheckBeforehand",
    actions=("iam:GetInstanceProfile", "iam:SimulatePrincipalPolicy", "servicequotas:GetServiceQuota"),
)
IMAGES = Statement(
    sid="FindPublicImages", actions=("ssm:GetParameter",), resources=("arn:aws:ssm:*:*:parameter/aws/service/*",)
)
# Of `orch catalog refresh`; no launch needs it, so the check does not miss it.
PRICES = Statement(sid="ReadPrices", actions=("ec2:DescribeSpotPriceHistory", "pricing:GetProducts"))
USE = Statement(
    sid="RunOnWhatTheAccountHas",
    actions=("ec2:RunInstances",),
    resources=(
        f"{_EC2}capacity-reservation/*",
        "arn:aws:ec2:*::image/*",
        f"{_EC2}placement-group/*",
        f"{_EC2}security-group/*",
        f"{_EC2}subnet/*",
    ),
)
IN_VPC = Statement(sid="MakeGroupsInAnyVpc", actions=("ec2:CreateSecurityGroup",), resources=(f"{_EC2}vpc/*",))
MAKE = Statement(
    sid="MakeWithOurTag",
    actions=(
        "ec2:AllocateAddress",
        "ec2:CreatePlacementGroup",
        "ec2:CreateSecurityGroup",
        "ec2:RunInstances",
    ),
    resources=_NEW,
    conditions={"Null": _TAGGING},
)
BUY = Statement(
    sid="BuyCapacityBlocks", actions=("ec2:PurchaseCapacityBlock",)
)  # "*": which resources it knows is not confirmed
TAG_NEW = Statement(
    sid="TagOnlyWhatIsBeingMade",
    actions=("ec2:CreateTags",),
    resources=_NEW,
    conditions={
        "Null": _TAGGING,
        "StringEquals": {
            "ec2:CreateAction": [
                "AllocateAddress",
                "CreatePlacementGroup",
                "CreateSecurityGroup",
                "PurchaseCapacityBlock",
                "RunInstances",
            ]
        },
    },
)
CHANGE = Statement(
    sid="ChangeOnlyWhatCarriesOurTag",
    actions=(
        "ec2:AssociateAddress",
        "ec2:AuthorizeSecurityGroupEgress",
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:CancelSpotInstanceRequests",
        "ec2:DeletePlacementGroup",
        "ec2:DeleteSecurityGroup",
        "ec2:ReleaseAddress",
        "ec2:RevokeSecurityGroupIngress",
        "ec2:StartInstances",
        "ec2:StopInstances",
        "ec2:TerminateInstances",
    ),
    resources=_NEW,
    conditions=_TAGGED,
)
TAKE = Statement(
    sid="TakeOverWhatCarriesOurTag",
    actions=("ec2:CreateTags",),
    resources=_NEW,
    conditions={"Null": {**_TAGGED["Null"], **_TAGGING}},
)
SPOT = Statement(
    sid="FirstSpotRequest",
    actions=("iam:CreateServiceLinkedRole",),
    resources=("arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",),
    conditions={"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
)
PASS = Statement(
    sid="GiveHostsTheirRole",
    actions=("iam:PassRole",),
    resources=(f"arn:aws:iam::*:role/{HOST_ROLE}*",),
    conditions={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
)
BUCKETS = (
    Statement(sid="SeeTheBucket", actions=("s3:ListBucket",), resources=(f"arn:aws:s3:::{BUCKET}",)),
    Statement(
        sid="UseTheBucket",
        actions=("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"),
        resources=(f"arn:aws:s3:::{BUCKET}/*",),
    ),
)
ORCH = (SEE, LOOK, IMAGES, PRICES, USE, IN_VPC, MAKE, BUY, TAG_NEW, CHANGE, TAKE, SPOT, PASS, *BUCKETS)


@dataclass(frozen=True, slots=True)
class Purpose:
    """words: what stops working without these actions."""

    words: str
    actions: tuple[str, ...]


PURPOSES = (
    Purpose("see what there is, and where", SEE.actions),
    Purpose("find the image of the machines", IMAGES.actions),
    Purpose(
        "make machines, and the security group around them",
        (
            "ec2:RunInstances",
            "ec2:CreateTags",
            "ec2:CreateSecurityGroup",
            "ec2:AuthorizeSecurityGroupEgress",
            "ec2:AuthorizeSecurityGroupIngress",
        ),
    ),
    Purpose("end machines, and what was made for them", ("ec2:TerminateInstances", "ec2:DeleteSecurityGroup")),
    Purpose("stop machines and start them again", ("ec2:StopInstances", "ec2:StartInstances")),
    Purpose(
        "give the machines Elastic IPs, and take them back",
        ("ec2:AllocateAddress", "ec2:AssociateAddress", "ec2:ReleaseAddress"),
    ),
    Purpose("keep several machines close together", ("ec2:CreatePlacementGroup", "ec2:DeletePlacementGroup")),
    Purpose("withdraw the addresses of computers that no longer use the machines", ("ec2:RevokeSecurityGroupIngress",)),
    Purpose("use spot machines", ("ec2:CancelSpotInstanceRequests", *SPOT.actions)),
    Purpose("buy Capacity Blocks", BUY.actions),
    Purpose("give machines their instance profile", PASS.actions),
    Purpose("check all this beforehand", LOOK.actions),
    Purpose("read prices again: orch catalog refresh", PRICES.actions),
)


def host_statements(bucket: str = BUCKET, prefix: str = PREFIX) -> tuple[Statement, ...]:
    """Of the hosts' role: what is below s3://bucket/prefix, or in the whole bucket for prefix ""."""
    arn = f"arn:aws:s3:::{bucket}"
    seen = {"StringLike": {"s3:prefix": [prefix, f"{prefix}/*"]}} if prefix else {}
    return (
        Statement(sid="SeeOnePrefix", actions=("s3:ListBucket",), resources=(arn,), conditions=seen),
        Statement(
            sid="UseOnePrefix",
            actions=("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"),
            resources=(f"{arn}/{prefix}/*" if prefix else f"{arn}/*",),
        ),
    )


HOST = host_statements()
# Of the identity that assumes the roles of projects, such as a server's: nothing else (IAM User Guide, "Grant a user
# permissions to switch roles", read November 2026).
SERVER = (
    Statement(sid="ActForProjects", actions=("sts:AssumeRole",), resources=(f"arn:aws:iam::*:role/{PROJECT_ROLE}*",)),
)


def document(statements: Sequence[Statement]) -> dict[str, Any]:
    """A policy as IAM takes it."""
    return {"Version": "2012-10-17", "Statement": [statement.to_json() for statement in statements]}


def host_trust() -> dict[str, Any]:
    """Who may be the hosts' role: instances of EC2."""
    who = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [who]}


def project_trust() -> dict[str, Any]:
    """Who may be the role of a project: the server, with the external id that the project's setting names."""
    condition = {"StringEquals": {"sts:ExternalId": EXTERNAL_ID}}
    who = {"Effect": "Allow", "Principal": {"AWS": SERVER_ARN}, "Action": "sts:AssumeRole", "Condition": condition}
    return {"Version": "2012-10-17", "Statement": [who]}


def policy_text(whose: str, bucket: str = BUCKET, prefix: str = PREFIX) -> str:
    """whose: "user" for whoever runs orch, "hosts", or "trust", which says who may be the hosts' role.

    "server" is for who assumes the roles of projects, and "project-trust" says who may be such a role.
    """
    made: Mapping[str, Callable[[], dict[str, Any]]] = {
        "user": lambda: document(ORCH),
        "hosts": lambda: document(host_statements(bucket, prefix)),
        "trust": host_trust,
        "server": lambda: document(SERVER),
        "project-trust": project_trust,
    }
    value = made[whose]()
    return json.dumps(value, indent=2).replace(f":::{BUCKET}", f":::{bucket}") + "\n"


def policy_files() -> Mapping[str, str]:
    """By the names that they have in docs/iam."""
    names = {
        "aws-policy.json": "user",
        "aws-host-policy.json": "hosts",
        "aws-host-trust.json": "trust",
        "aws-server-policy.json": "server",
        "aws-project-trust.json": "project-trust",
    }
    return {name: policy_text(whose) for name, whose in names.items()}
