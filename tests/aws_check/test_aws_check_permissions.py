"""Which permissions `orch check aws` finds missing, whom it says to give them to, and when it cannot tell."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from aws_check_support import GOOD, REGION, Account, refusing, saying_iam, without

from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.check_policy import ORCH, PURPOSES, document
from orchestrator.providers.aws.check_probes import rehearsed
from orchestrator.providers.checks import Verdict
from orchestrator.providers.core.faults import Refused
from orchestrator.slices import Request

ROLE = "arn:aws:sts::123456789012:assumed-role/Dev/me"
SSO = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Admin_0123456789abcdef/me"
SIMULATION = "iam:SimulatePrincipalPolicy"
NOT_USED = {
    "ec2:PurchaseCapacityBlock",
    "ec2:RevokeSecurityGroupIngress",
    "ec2:StartInstances",
    "ec2:StopInstances",
    "ec2:DescribeSpotPriceHistory",
    "pricing:GetProducts",
}
ASKED = sorted({action for one in PURPOSES for action in one.actions} - NOT_USED - {SIMULATION})


@pytest.mark.parametrize("action", ASKED)
def test_each_permission_that_is_withheld_is_named(action: str, account: Account) -> None:
    account.grant(without(action))
    found = account.ask(instance_profile="orch-host", spot=True)["permissions"]
    (purpose,) = [one for one in PURPOSES if action in one.actions]
    assert (found.verdict, found.status) == (Verdict.FIX, 4), found
    assert found.words == f"missing: {action}; without them no way to {purpose.words}"
    assert found.fix.startswith("orch check aws --print-policy user > orch-policy.json && aws iam create-policy")


def test_each_action_has_a_purpose() -> None:
    asked = {action for one in ORCH for action in one.actions if not action.startswith("s3:")}
    assert asked == {action for one in PURPOSES for action in one.actions}


def test_a_request_that_the_library_does_not_send_shows_no_permission(account: Account) -> None:
    mistaken = Request(service="ec2", method="CreateSecurityGroup", target="", body={"GroupName": 3})
    with pytest.raises(Refused, match="GroupName"):
        rehearsed(Calls(account.session, REGION), mistaken)


@pytest.mark.parametrize("action", sorted(NOT_USED))
def test_what_no_launch_needs_may_be_missing(action: str, account: Account) -> None:
    account.grant(without(action))
    (purpose,) = [one for one in PURPOSES if action in one.actions]
    found = account.ask()["permissions"]
    assert (found.verdict, found.words) == (Verdict.OK, f"enough for this; not granted: to {purpose.words}")


def test_what_is_not_used_may_be_missing(account: Account) -> None:
    account.grant(
        without("ec2:AllocateAddress", "ec2:CreatePlacementGroup", "ec2:CancelSpotInstanceRequests", "iam:PassRole")
    )
    alone = account.ask(nodes=1)["permissions"]
    assert alone.verdict is Verdict.OK
    assert "Elastic IPs" in alone.words and "close together" in alone.words and "spot" in alone.words
    several = account.ask()["permissions"]
    assert several.words.startswith("missing: ec2:AllocateAddress, ec2:CreatePlacementGroup; without")
    assert "iam:PassRole" in account.ask(nodes=1, instance_profile="orch-host")["permissions"].words
    nobody = account.ask("", nodes=1)["permissions"]
    assert nobody.words.startswith("missing: ec2:AllocateAddress, ec2:CreatePlacementGroup; without")


def test_rights_on_what_others_have_tagged_are_none(account: Account) -> None:
    for key, verdict in (("orch-installation", Verdict.OK), ("Team", Verdict.FIX)):
        text = json.dumps(document(ORCH)).replace("aws:ResourceTag/orch-installation", f"aws:ResourceTag/{key}")
        account.grant(replace(GOOD, policies=(json.loads(text),)))
        found = account.ask()["permissions"]
        assert found.verdict is verdict, found
    assert "ec2:TerminateInstances" in found.words


@pytest.mark.parametrize(
    ("arn", "mend"),
    [
        (ROLE, "aws iam put-role-policy --role-name Dev --policy-name orch --policy-document file://orch-policy.json"),
        (SSO, "  then ask the owner of account 123456789012 to put that into your permission set"),
    ],
)
def test_whom_the_policy_is_given_to(arn: str, mend: str, account: Account) -> None:
    account.grant(without("ec2:TerminateInstances"))
    found = account.ask(arn=arn, bucket="s3://runs/exp")["permissions"]
    assert found.fix.startswith("orch check aws --print-policy user --bucket s3://runs/exp > orch-policy.json ")
    assert found.fix.endswith(mend)


def _weighed(account: Account) -> set[str]:
    """Whose rights IAM was asked to weigh."""
    asked = [call.params for call in account.server.requests if call.operation == "SimulatePrincipalPolicy"]
    return {str(params["PolicySourceArn"]) for params in asked}


def test_a_role_is_weighed_and_not_its_session(account: Account) -> None:
    account.ask(arn=ROLE)
    assert _weighed(account) == {"arn:aws:iam::123456789012:role/Dev"}  # its record may not be read
    account.reset()
    reading = {"Effect": "Allow", "Action": "iam:GetRole", "Resource": "*"}
    account.grant(replace(GOOD, policies=(*GOOD.policies, {"Version": "2012-10-17", "Statement": reading})))
    arn = "arn:aws:iam::123456789012:role/team/Dev"
    account.answers["iam", "GetRole"] = saying_iam(Role={"RoleName": "Dev", "Arn": arn})
    account.ask(arn=ROLE)
    assert _weighed(account) == {arn}


def test_whom_iam_cannot_weigh(account: Account) -> None:
    account.answers["iam", "SimulatePrincipalPolicy"] = refusing("NoSuchEntity", "not there", 404)
    found = account.ask(arn=SSO)["permissions"]
    assert found.verdict is Verdict.UNKNOWN
    assert "ec2:TerminateInstances" in found.words and f"IAM does not simulate the permissions of {SSO}" in found.words
    root = account.ask(arn="arn:aws:iam::123456789012:root", bucket="s3://runs")
    assert root["permissions"].verdict is root["bucket"].verdict is Verdict.OK
