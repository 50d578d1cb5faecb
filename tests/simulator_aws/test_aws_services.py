"""The services around the pretend EC2, asked with boto3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from orch_fronts.aws.grants import Grants, owner
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.images import AMAZON, by_id, by_parameter, images
from orch_fronts.aws.server import AwsServer
from orch_fronts.aws.services import account_fronts
from orchestrator.providers.aws.check_policy import ORCH, document, host_trust
from orchestrator.providers.aws.images import choose
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Fault, FaultKind, Quota, Scenario

GPU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
NEURON = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"
P_ON_DEMAND, P5_SPOT, TRN, ADDRESSES = "L-417A185B", "L-C4BD4855", "L-2C3B7624", "L-0263D0A3"


@dataclass(frozen=True)
class Account:
    url: str
    guard: Guard

    def client(self, service: str, region: str = "us-east-1") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id="k",
            aws_secret_access_key="s",
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )


def _account(scenario: Scenario, grants: Grants) -> Iterator[Account]:
    access, guard = InMemory(scenario, ManualClock()), Guard(grants)
    with AwsServer(access, fronts=account_fronts(access, guard), guard=guard) as server:
        yield Account(server.url, guard)


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    yield from _account(Scenario(), owner())


def _refused(call: Any, **params: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_public_parameter_leads_to_the_newest_image_of_its_line(account: Account) -> None:
    ssm = account.client("ssm")
    found = ssm.get_parameter(Name=GPU)["Parameter"]
    image = by_id("us-east-1")[found["Value"]]
    assert image.name.startswith("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)")
    line = [one.created for one in images() if one.name[:-8] == image.name[:-8]]
    assert len(line) > 1 and image.created == max(line)
    assert found["ARN"] == f"arn:aws:ssm:us-east-1::parameter{GPU}"
    elsewhere = account.client("ssm", "us-west-2").get_parameter(Name=GPU)["Parameter"]["Value"]
    assert elsewhere != found["Value"] and by_id("us-west-2")[elsewhere] == image
    assert _refused(ssm.get_parameter, Name="/aws/service/none") == ("ParameterNotFound", 400)
    several = ssm.get_parameters(Names=[NEURON, "/mine"])
    assert [one["Name"] for one in several["Parameters"]] == [NEURON]
    assert several["InvalidParameters"] == ["/mine"]
    assert _refused(ssm.delete_parameter, Name=GPU)[0] == "UnknownOperationException"


def test_parameters_are_found_by_their_path_page_by_page(account: Account) -> None:
    ssm = account.client("ssm")
    pages = ssm.get_paginator("get_parameters_by_path").paginate(
        Path="/aws/service", Recursive=True, PaginationConfig={"PageSize": 4}
    )
    found = [[one["Name"] for one in page["Parameters"]] for page in pages]
    assert [name for page in found for name in page] == sorted(by_parameter()) and len(found) > 2
    right_below = NEURON.rpartition("/")[0]
    assert [one["Name"] for one in ssm.get_parameters_by_path(Path=right_below)["Parameters"]] == [NEURON]
    assert ssm.get_parameters_by_path(Path="/aws/service/neuron")["Parameters"] == []
    assert _refused(ssm.get_parameters_by_path, Path="/aws", MaxResults=10, NextToken="x")[0] == "InvalidNextToken"


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(
    "machine", ["p5.48xlarge", "p4d.24xlarge", "trn1.32xlarge", "trn2.48xlarge", "inf2.xlarge", "c7i.large"]
)
def test_the_image_that_orch_wants_is_there(machine: str, framework: str) -> None:
    wanted = choose(machine, framework, "")
    if wanted.parameter:
        assert wanted.parameter in by_parameter()
        return
    found = [one for one in images() if fnmatchcase(one.name, wanted.name)]
    assert [one for one in found if f"Neuron SDK {wanted.sdk}" in one.description and one.owner == AMAZON]


def test_images_have_names_ids_and_root_devices_of_their_own() -> None:
    assert len({image.name for image in images()}) == len(images())
    assert {image.root_device for image in images() if "Amazon Linux" in image.name} == {"/dev/xvda"}
    assert all(len(ami) == 21 for ami in by_id("us-east-1")) and len(by_id("us-east-1")) == len(images())


def test_quotas_are_the_scenarios_counted_in_vcpus() -> None:
    limits = (
        Quota(region="us-east-1", accelerator="p5.48xlarge", amount=2),
        Quota(region="*", accelerator="p5.48xlarge", amount=8, market="spot", unit="chips"),
        Quota(region="us-west-2", accelerator="trn1.32xlarge", amount=1, market="on-demand"),
    )
    scenario = Scenario(quotas=limits)
    for account in _account(scenario, Grants(quotas={ADDRESSES: 1})):
        assert [_value(account, code) for code in (P_ON_DEMAND, P5_SPOT, ADDRESSES)] == [384, 192, 1]
        assert _value(account, TRN) == 4096
        assert _value(account, TRN, "us-west-2") == 128
        assert _value(account, P_ON_DEMAND, "us-west-2") == 4608


def _value(account: Account, code: str, region: str = "us-east-1") -> float:
    quotas = account.client("service-quotas", region)
    return float(quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"])


def test_quotas_are_listed_and_what_there_is_not_is_told(account: Account) -> None:
    quotas = account.client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 3})
    codes = [one["QuotaCode"] for page in pages for one in page["Quotas"]]
    assert len(codes) == len(set(codes)) > 3 and {P_ON_DEMAND, P5_SPOT, TRN, ADDRESSES} < set(codes)
    default = quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=ADDRESSES)["Quota"]
    assert (default["Value"], default["QuotaName"]) == (5, "EC2-VPC Elastic IPs")
    assert _refused(quotas.get_service_quota, ServiceCode="ec2", QuotaCode="L-0")[0] == "NoSuchResourceException"
    assert _refused(quotas.list_service_quotas, ServiceCode="s3")[0] == "NoSuchResourceException"


def test_whoever_calls_is_told_who_he_is(account: Account) -> None:
    who = account.client("sts").get_caller_identity()
    assert (who["Account"], who["Arn"]) == ("123456789012", "arn:aws:iam::123456789012:user/orch")
    assert _refused(account.client("sts").get_session_token)[0] == "InvalidAction"


def test_a_role_for_hosts_is_made_and_put_into_a_profile(account: Account) -> None:
    iam = account.client("iam")
    trust = json.dumps(host_trust())
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=trust)
    assert _refused(iam.create_role, RoleName="r", AssumeRolePolicyDocument=trust) == ("EntityAlreadyExists", 409)
    assert iam.get_role(RoleName="r")["Role"]["AssumeRolePolicyDocument"] == host_trust()
    policy = document(ORCH)
    iam.put_role_policy(RoleName="r", PolicyName="p", PolicyDocument=json.dumps(policy))
    assert iam.get_role_policy(RoleName="r", PolicyName="p")["PolicyDocument"] == policy
    bad = {"RoleName": "r", "PolicyName": "q"}
    assert _refused(iam.put_role_policy, **bad, PolicyDocument="{")[0] == "MalformedPolicyDocument"
    assert _refused(iam.get_role_policy, **bad) == ("NoSuchEntity", 404)
    assert iam.list_role_policies(RoleName="r")["PolicyNames"] == ["p"]
    made = iam.create_policy(PolicyName="m", PolicyDocument=json.dumps(policy))["Policy"]["Arn"]
    iam.attach_user_policy(UserName="orch", PolicyArn=made)
    iam.attach_role_policy(RoleName="r", PolicyArn=made)
    assert _refused(iam.attach_role_policy, RoleName="r", PolicyArn=f"{made}2") == ("NoSuchEntity", 404)
    assert [one["PolicyArn"] for one in iam.list_attached_role_policies(RoleName="r")["AttachedPolicies"]] == [made]
    iam.create_instance_profile(InstanceProfileName="i")
    assert iam.get_instance_profile(InstanceProfileName="i")["InstanceProfile"]["Roles"] == []
    iam.add_role_to_instance_profile(InstanceProfileName="i", RoleName="r")
    assert _refused(iam.add_role_to_instance_profile, InstanceProfileName="i", RoleName="r")[0] == "LimitExceeded"
    profile = iam.get_instance_profile(InstanceProfileName="i")["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == ["r"]
    assert profile["Arn"] == "arn:aws:iam::123456789012:instance-profile/i"
    assert _refused(iam.get_instance_profile, InstanceProfileName="no") == ("NoSuchEntity", 404)


def test_what_is_not_granted_is_refused_in_each_services_words() -> None:
    for account in _account(Scenario(), Grants()):
        allowed = account.client("iam").get_instance_profile(InstanceProfileName="orch-host")
        assert allowed["InstanceProfile"]["Roles"][0]["RoleName"] == "orch-host"
        with pytest.raises(ClientError, match="iam:CreateRole on resource: arn:aws:iam::123456789012:role/r") as caught:
            account.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}")
        assert caught.value.response["Error"]["Code"] == "AccessDenied"
        quotas = account.client("service-quotas")
        assert _refused(quotas.list_service_quotas, ServiceCode="ec2") == ("AccessDeniedException", 400)
        ssm = account.client("ssm")
        assert _refused(ssm.get_parameter, Name="/mine/secret") == ("AccessDeniedException", 400)
        ssm.get_parameter(Name=GPU)
        account.client("sts").get_caller_identity()
        assert account.guard.asked == {
            "iam:CreateRole",
            "iam:GetInstanceProfile",
            "servicequotas:ListServiceQuotas",
            "ssm:GetParameter",
        }


def test_permissions_can_be_asked_for_beforehand() -> None:
    for account in _account(Scenario(), Grants(policies=(document(ORCH), _SIMULATE))):
        iam = account.client("iam")
        asked = {
            "PolicySourceArn": "arn:aws:iam::123456789012:user/orch",
            "ActionNames": ["ec2:RunInstances", "ec2:DescribeInstances", "ec2:CreateVpc"],
            "ResourceArns": ["arn:aws:ec2:us-east-1:123456789012:instance/*"],
        }
        tag = {
            "ContextKeyName": "aws:RequestTag/orch-installation",
            "ContextKeyValues": ["i"],
            "ContextKeyType": "string",
        }
        for entries, expected in (([], "implicitDeny"), ([tag], "allowed")):
            results = iam.simulate_principal_policy(**asked, ContextEntries=entries)["EvaluationResults"]
            decisions = {one["EvalActionName"]: one["EvalDecision"] for one in results}
            assert decisions == {
                "ec2:RunInstances": expected,
                "ec2:DescribeInstances": "allowed",
                "ec2:CreateVpc": "implicitDeny",
            }


_SIMULATE = {
    "Version": "2012-10-17",
    "Statement": {"Effect": "Allow", "Action": "iam:Simulate*", "Resource": "*"},
}


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        (FaultKind.THROTTLED, "ThrottlingException", 400),
        (FaultKind.INTERNAL, "InternalServerError", 500),
        (FaultKind.UNAVAILABLE, "ServiceUnavailable", 503),
        (FaultKind.DENIED, "AccessDeniedException", 400),
        (FaultKind.TIMEOUT_AFTER, "ServiceUnavailable", 503),
    ],
)
def test_faults_of_the_scenario_befall_these_calls_too(kind: FaultKind, code: str, status: int) -> None:
    scenario = Scenario(faults=(Fault(call="get-parameter", kind=kind, nth=(1,)),))
    for account in _account(scenario, owner()):
        ssm = account.client("ssm")
        assert _refused(ssm.get_parameter, Name=GPU) == (code, status)
        ssm.get_parameter(Name=GPU)
