"""Policies are weighed as IAM weighs them; the documented ones let through what orch does, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orch_fronts.aws.calls import AwsCall, AwsRefusal, Need
from orch_fronts.aws.grants import ALL, Grants, owner
from orch_fronts.aws.guard import ALLOWED, EXPLICIT, IMPLICIT, Guard
from orch_fronts.aws.permissions import ec2_needs
from orch_fronts.aws.s3 import s3_server
from orch_fronts.aws.services import admit_to_buckets
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.providers.aws.check_policy import BUCKET, HOST, PREFIX, document, policy_files
from orchestrator.storage.bucket import Bucket

REGION = "us-east-1"
EC2 = "arn:aws:ec2:us-east-1:123456789012"
OURS = {"orch-installation": "i1", "orch-slice": "s"}
SPECS = [{"ResourceType": kind, "Tags": [{"Key": "orch-installation", "Value": "i1"}]} for kind in
         ("instance", "volume", "network-interface")]  # fmt: skip
RUN: dict[str, Any] = {
    "ImageId": "ami-1",
    "NetworkInterfaces": [
        {"SubnetId": "subnet-1", "Groups": ["sg-1"]},
        {"SubnetId": "subnet-1", "Groups": ["sg-1"]},
    ],
    "Placement": {"GroupName": "orch-s"},
    "TagSpecifications": SPECS,
}


def _call(operation: str, params: dict[str, Any], guard: Guard, tags: dict[str, dict[str, str]] | None = None) -> None:
    """Through the door, with resources that carry these tags."""
    found = tags or {}
    needs = ec2_needs(operation, params, REGION, lambda name: found.get(name, {}))
    guard.admit(
        AwsCall(
            service="ec2",
            region=REGION,
            method="POST",
            path="/",
            query={},
            headers={},
            body=b"",
            operation=operation,
            params=params,
        ),
        needs,
    )


def _policy(*statements: dict[str, Any]) -> Grants:
    return Grants(policies=({"Version": "2012-10-17", "Statement": list(statements)},))


def _allow(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "ec2:*", "Resource": "*", **more}


def test_files_are_those_of_the_table_and_fit_into_a_managed_policy() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs/iam"
    for name, text in policy_files().items():
        assert (folder / name).read_text() == text, f"docs/iam/{name} is not what the table prints"
        assert len(json.dumps(json.loads(text), separators=(",", ":"))) <= 6144  # IAM quotas, 2026


def test_what_orch_does_is_allowed_and_nothing_of_it_without_our_tag() -> None:
    guard = Guard()
    group = {"GroupName": "orch-s", "VpcId": "vpc-1", "TagSpecifications": _specs("security-group")}
    _call("RunInstances", RUN, guard)
    _call("RunInstances", RUN | {"InstanceMarketOptions": {"MarketType": "spot"}, "TagSpecifications": [
        *SPECS, *_specs("spot-instances-request")]}, guard)  # fmt: skip
    _call("CreateSecurityGroup", group, guard)
    _call("CreatePlacementGroup", {"GroupName": "orch-s", "TagSpecifications": _specs("placement-group")}, guard)
    _call("AllocateAddress", {"TagSpecifications": _specs("elastic-ip")}, guard)
    _call("PurchaseCapacityBlock", {"TagSpecifications": _specs("capacity-reservation")}, guard)
    _call("DescribeInstances", {"InstanceIds": ["i-1"]}, guard)
    for operation, params in _CHANGES:
        _call(operation, params, guard, dict.fromkeys(_NAMES, OURS))
        with pytest.raises(AwsRefusal, match="UnauthorizedOperation"):
            _call(operation, params, guard, {name: {"Name": "another's"} for name in _NAMES})
    for operation, params in (
        ("RunInstances", RUN | {"TagSpecifications": SPECS[:1]}),
        ("RunInstances", RUN | {"TagSpecifications": _specs("instance", "theirs")}),
        ("RunInstances", RUN | {"InstanceMarketOptions": {"MarketType": "spot"}}),
        ("CreateSecurityGroup", group | {"TagSpecifications": []}),
        ("AllocateAddress", {}),
        ("CreateTags", {"Resources": ["i-1"], "Tags": SPECS[0]["Tags"]}),
        ("DeleteTags", {"Resources": ["i-1"]}),
        ("CreateVpc", {"CidrBlock": "10.0.0.0/16"}),
    ):
        with pytest.raises(AwsRefusal, match="UnauthorizedOperation"):
            _call(operation, params, guard)


_NAMES = ("i-1", "i-2", "sg-1", "eipalloc-1", "eni-1", "sir-1", "orch-s")
_CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("TerminateInstances", {"InstanceIds": ["i-1", "i-2"]}),
    ("StopInstances", {"InstanceIds": ["i-1"]}),
    ("StartInstances", {"InstanceIds": ["i-1"]}),
    ("AuthorizeSecurityGroupIngress", {"GroupId": "sg-1"}),
    ("AuthorizeSecurityGroupEgress", {"GroupId": "sg-1"}),
    ("DeleteSecurityGroup", {"GroupId": "sg-1"}),
    ("DeletePlacementGroup", {"GroupName": "orch-s"}),
    ("AssociateAddress", {"AllocationId": "eipalloc-1", "NetworkInterfaceId": "eni-1"}),
    ("ReleaseAddress", {"AllocationId": "eipalloc-1"}),
    ("CancelSpotInstanceRequests", {"SpotInstanceRequestIds": ["sir-1"]}),
)


def _specs(kind: str, key: str = "orch-installation") -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": "i1"}]}]


def test_one_of_several_that_is_not_ours_refuses_the_whole_call() -> None:
    with pytest.raises(AwsRefusal, match="instance/i-2"):
        _call("TerminateInstances", {"InstanceIds": ["i-1", "i-2"]}, Guard(), {"i-1": OURS})


def test_only_the_hosts_role_may_be_given_away() -> None:
    guard = Guard()
    for profile in ("orch-host", "orch-host-2"):
        _call("RunInstances", RUN | {"IamInstanceProfile": {"Name": profile}}, guard)
    with pytest.raises(AwsRefusal, match="iam:PassRole on resource: arn:aws:iam::123456789012:role/admin because"):
        _call("RunInstances", RUN | {"IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/admin"}}, guard)


def test_a_refusal_of_ec2_has_its_code_its_status_and_an_encoded_message() -> None:
    guard = Guard()
    with pytest.raises(AwsRefusal) as caught:
        _call("CreateVpc", {}, guard)
    assert (caught.value.code, caught.value.http) == ("UnauthorizedOperation", 403)
    assert caught.value.words.startswith("You are not authorized to perform this operation. User: arn:aws:iam::")
    assert "is not authorized to perform: ec2:CreateVpc on resource: *" in caught.value.words
    assert "Encoded authorization failure message: " in caught.value.words
    assert guard.asked == {"ec2:CreateVpc"}


def test_of_what_is_not_there_nothing_is_asked_and_ec2_says_so_itself() -> None:
    assert ec2_needs("TerminateInstances", {"InstanceIds": ["i-1"]}, REGION, lambda name: None) == ()
    (need,) = ec2_needs("StopInstances", {"InstanceIds": ["i-1", "i-2"]}, REGION, {"i-2": OURS}.get)
    assert need == Need(action="ec2:StopInstances", resource=f"{EC2}:instance/i-2", resource_tags=OURS)


@pytest.mark.parametrize(
    ("condition", "tags", "decision"),
    [
        ({"StringEquals": {"aws:ResourceTag/a": ["1", "2"]}}, {"a": "2"}, ALLOWED),
        ({"StringEquals": {"AWS:resourcetag/A": "2"}}, {"a": "2"}, ALLOWED),
        ({"StringEquals": {"ec2:ResourceTag/a": "1"}}, {"a": "2"}, IMPLICIT),
        ({"StringEquals": {"aws:ResourceTag/a": "1"}}, {}, IMPLICIT),
        ({"StringNotEquals": {"aws:ResourceTag/a": "1"}}, {}, ALLOWED),
        ({"StringEqualsIfExists": {"aws:ResourceTag/a": "1"}}, {}, ALLOWED),
        ({"StringEqualsIfExists": {"aws:ResourceTag/a": "1"}}, {"a": "2"}, IMPLICIT),
        ({"StringLike": {"aws:ResourceTag/a": "x-?*"}}, {"a": "x-12"}, ALLOWED),
        ({"StringLike": {"aws:ResourceTag/a": "x-?*"}}, {"a": "x-"}, IMPLICIT),
        ({"StringNotLike": {"aws:ResourceTag/a": "x*"}}, {"a": "x-"}, IMPLICIT),
        ({"Null": {"aws:ResourceTag/a": "false"}}, {"a": ""}, ALLOWED),
        ({"Null": {"aws:ResourceTag/a": "false"}}, {"b": ""}, IMPLICIT),
        ({"Null": {"aws:ResourceTag/a": "true"}}, {"b": ""}, ALLOWED),
        ({"Null": {"aws:ResourceTag/a": "false"}, "StringEquals": {"ec2:Region": "eu-west-1"}}, {"a": ""}, IMPLICIT),
        ({"StringEquals": {"aws:RequestedRegion": REGION, "ec2:Region": REGION}}, {}, ALLOWED),
    ],
)
def test_conditions(condition: dict[str, Any], tags: dict[str, str], decision: str) -> None:
    guard = Guard(_policy(_allow(Condition=condition)))
    assert (
        guard.decide(Need(action="ec2:StopInstances", resource=f"{EC2}:instance/i-1", resource_tags=tags), REGION)
        == decision
    )


def test_a_deny_wins_and_actions_are_without_regard_to_case_but_arns_are_not() -> None:
    deny = {"Effect": "Deny", "Action": "ec2:terminate*", "Resource": f"{EC2}:instance/i-1"}
    guard = Guard(_policy(_allow(Action="EC2:*"), deny))
    assert guard.decide(Need(action="ec2:TerminateInstances", resource=f"{EC2}:instance/i-1"), REGION) == EXPLICIT
    assert guard.decide(Need(action="ec2:TerminateInstances", resource=f"{EC2}:instance/I-1"), REGION) == ALLOWED
    assert guard.decide(Need(action="s3:GetObject", resource="arn:aws:s3:::b/k"), REGION) == IMPLICIT
    with pytest.raises(AwsRefusal, match="with an explicit deny"):
        guard.check("ec2", Need(action="ec2:TerminateInstances", resource=f"{EC2}:instance/i-1"), REGION)
    assert Guard(owner()).decide(Need(action="anything:AtAll"), REGION) == ALLOWED


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ({"Statement": []}, "Version"),
        ({**ALL, "Statement": [_allow(NotAction="ec2:*")]}, "NotAction"),
        ({**ALL, "Statement": [_allow(Effect="Maybe")]}, "Effect"),
        ({**ALL, "Statement": [_allow(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}})]}, "IpAddress"),
        ({**ALL, "Statement": [_allow(Condition={"ForAllValues:StringEquals": {"aws:TagKeys": "a"}})]}, "ForAllValues"),
        ({**ALL, "Statement": [_allow(Condition={"StringEquals": {"aws:PrincipalTag/a": "b"}})]}, "aws:PrincipalTag"),
        ({**ALL, "Statement": [_allow(Resource="arn:aws:s3:::${aws:username}/*")]}, "variable"),
    ],
)
def test_a_policy_that_cannot_be_weighed_is_not_loaded(policy: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        Guard(Grants(policies=(policy,)))


def test_the_hosts_policy_is_enough_for_one_prefix_of_one_bucket_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = {BUCKET: "mine", PREFIX: "runs/a"}
    guard = Guard(Grants(policies=(document(HOST),), names=names))
    with s3_server(create=True, admit=admit_to_buckets(guard)) as server:
        env = {"AWS_ENDPOINT_URL_S3": server.url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        for name, value in {**env, "AWS_REGION": REGION}.items():
            monkeypatch.setenv(name, value)
        ours = Bucket.open("s3://mine/runs/a")
        ours.check_access(write=True)
        (tmp_path / "big").write_bytes(bytes(9 << 20))
        ours.upload_file(tmp_path / "big", "ckpt/big")
        ours.download_file("ckpt/big", tmp_path / "back")
        assert [one.path for one in ours.list("ckpt")] == ["ckpt/big"]
        ours.delete("ckpt/big")
        assert ours.put_if_absent("latest", b"1") and not ours.put_if_absent("latest", b"2")
        for uri in ("s3://mine/runs/ab", "s3://mine", "s3://other/runs/a"):
            other = Bucket.open(uri)
            with pytest.raises(AccessError):
                other.put("x", b"")
            with pytest.raises(AccessError):
                list(other.list())
            with pytest.raises(OrchError, match="not authorized to perform: s3:DeleteObject"):
                other.delete("x")
    assert {one for one in guard.asked if not one.startswith("s3:")} == set()
