"""The policy that orch documents is what it asks for: no call beyond it, and nothing in it that no call needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_check_run import RUNS, STEPS, keys, provider_of, spec
from aws_check_support import P4_SPOT, P5_SPOT, REGION, TRN_SPOT, Account, without

from orchestrator.cloud_access import AWS_API
from orchestrator.errors import AccessError
from orchestrator.providers.aws.check_policy import ORCH, PURPOSES

ROLE, CLOSE, SPOT, SDK, _ = RUNS.values()
NEEDED = {
    "ec2:AllocateAddress": CLOSE,
    "ec2:AuthorizeSecurityGroupEgress": ROLE,
    "ec2:AuthorizeSecurityGroupIngress": ROLE,
    "ec2:CreatePlacementGroup": CLOSE,
    "ec2:CreateSecurityGroup": ROLE,
    "ec2:CreateTags": ROLE,
    "ec2:DescribeImages": SDK,
    "ec2:DescribeSubnets": ROLE,
    "ec2:RunInstances": ROLE,
    "iam:CreateServiceLinkedRole": SPOT,
    "iam:PassRole": ROLE,
    "ssm:GetParameter": CLOSE,
}


PLENTY = {P4_SPOT: 768, P5_SPOT: 768, TRN_SPOT: 768}  # a launch asks for them first


def test_what_orch_asks_for_is_its_policy(account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    buckets = {"AWS_ENDPOINT_URL_S3": account.buckets.url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for name, value in {**buckets, "AWS_REGION": REGION, AWS_API: account.server.url}.items():
        monkeypatch.setenv(name, value)
    account.quotas |= PLENTY
    for step in STEPS:
        step(account, tmp_path)
    found = account.ask(bucket="s3://runs/exp", instance_profile="orch-host")
    assert {one.status for one in found.values()} == {0}, found
    assert account.guard.asked == {action for one in ORCH for action in one.actions}


@pytest.mark.parametrize("action", NEEDED)
def test_a_create_without_one_of_them_names_it_and_leaves_nothing(
    action: str, account: Account, tmp_path: Path
) -> None:
    account.grant(without(action))
    account.quotas |= PLENTY
    one, provider = NEEDED[action], provider_of(account, tmp_path)
    with pytest.raises(AccessError) as failed:
        provider.create(spec("refused", one), keys(one.hosts, tmp_path))
    assert action in failed.value.why and "orch check aws" in failed.value.next_step
    ec2 = account.client("ec2")
    assert [group["GroupName"] for group in ec2.describe_security_groups()["SecurityGroups"]] == ["default"]
    assert ec2.describe_addresses()["Addresses"] == ec2.describe_placement_groups()["PlacementGroups"] == []


def test_every_action_of_the_policy_has_one_purpose() -> None:
    """What stands on a bucket is asked about with the bucket."""
    purposes = [action for one in PURPOSES for action in one.actions]
    assert len(purposes) == len(set(purposes))
    assert set(purposes) == {action for one in ORCH for action in one.actions if not action.startswith("s3:")}
