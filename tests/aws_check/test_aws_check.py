"""`orch check aws` against a pretend account: what it finds, what it says to do, and that it only looks."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aws_check_support import (
    ADDRESSES,
    GOOD,
    INSTALLATION,
    OTHER,
    P4_SPOT,
    P5_SPOT,
    REGION,
    RESERVED,
    TRN,
    TRN_SPOT,
    ZONE,
    Account,
    Answer,
    P,
    refusing,
    roles,
    saying,
    saying_iam,
    without,
)

import orchestrator.cli
from orch_fronts.aws.grants import Grants
from orchestrator.providers.aws.check_policy import PURPOSES, document, host_statements, policy_text
from orchestrator.providers.aws.images import GPU
from orchestrator.providers.checks import Finding, Verdict

ALL: dict[str, Any] = {"bucket": "s3://runs/exp", "instance_profile": "orch-host"}
OPTIONS = (
    "--accelerators",
    "H100:8",
    "--num-nodes",
    "2",
    "--bucket",
    "s3://runs/exp",
    "--instance-profile",
    "orch-host",
)
CHECKS = ["permissions", "zones", "machine", "quota", "addresses", "ssh", "leftovers", "bucket", "hosts"]
SCHEMA = Path(orchestrator.cli.__file__).parent / "data" / "check.schema.json"
SIMULATION = "iam:SimulatePrincipalPolicy"


def wrong(found: dict[str, Finding]) -> dict[str, Finding]:
    return {name: one for name, one in found.items() if one.verdict is not Verdict.OK}


def pasteable(found: Finding) -> list[list[str]]:
    """The words of each command that mends it: nothing in them has to be replaced first."""
    command = found.fix.split("   ")[0]
    if not command.startswith(("aws ", "orch ")):
        return []
    lines = [re.sub(r" > [a-z-]+\.json$", "", one) for one in command.split(" && ")]
    assert not [one for one in lines if re.search(r"[<>|;…]", one)], lines
    return [shlex.split(one) for one in lines]


def test_an_account_as_it_should_be(led: Any, tmp_path: Path) -> None:
    said = led("check", "aws", "--region", REGION, *OPTIONS, "-o", "json")
    assert said.status == 0, said
    found = said.findings()
    assert list(found) == ["credentials", "region", *CHECKS]
    assert {one["verdict"] for one in found.values()} == {"ok"}
    assert {one["fix"] for one in found.values()} == {None}
    assert found["credentials"]["words"].startswith("arn:aws:iam::123456789012:user/orch; http://127.0.0.1")
    assert (
        found["permissions"]["words"]
        == f"all {sum(len(one.actions) for one in PURPOSES)} of the policy that orch needs"
    )
    assert found["zones"]["words"].startswith(f"p5.48xlarge is offered; {ZONE}: 4,091 free addresses; {OTHER}: ")
    assert found["machine"]["words"].startswith("p5.48xlarge: 192 vCPUs, 8 accelerators, 32 network cards, 32 EFA")
    assert found["quota"]["words"].startswith("2 p5.48xlarge need 384 vCPUs; us-east-1: 768 of 'Running On-Demand P")
    assert found["bucket"]["words"] == "s3://runs can be read and written, in us-east-1"
    assert found["hosts"]["words"] == "the machines get the role orch-host, which may use s3://runs/exp"
    jsonschema.validate(json.loads(said.out), json.loads(SCHEMA.read_text()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_sent_that_could_change_something(account: Account) -> None:
    account.ask(**ALL, access="ssm", reservation=RESERVED.name)
    account.ask("Trainium:16", spot=True)
    account.ask("")
    sent = account.server.requests
    assert len(sent) > 80
    for call in sent:
        looks = call.operation.startswith(("Describe", "Get", "Simulate")) or (call.service, call.method) == (
            "s3",
            "HEAD",
        )
        assert looks or call.params.get("DryRun") == "true", call
    dry = {call.operation for call in sent if call.params.get("DryRun") == "true" and call.operation[:3] != "Des"}
    assert dry == {"RunInstances", "CreateSecurityGroup", "CreatePlacementGroup", "AllocateAddress"}
    ec2 = account.client("ec2")
    assert ec2.describe_addresses()["Addresses"] == ec2.describe_instances()["Reservations"] == []


def test_the_launch_that_is_rehearsed_is_the_whole_one(account: Account) -> None:
    account.ask(**ALL)
    (run,) = (call.params for call in account.server.requests if call.operation == "RunInstances")
    assert (run["InstanceType"], run["MinCount"], run["MaxCount"]) == ("p5.48xlarge", "2", "2")
    assert (run["NetworkInterface.33.NetworkCardIndex"], run["IamInstanceProfile.Name"]) == ("31", "orch-host")
    assert run["ImageId"].startswith("ami-") and run["NetworkInterface.1.SubnetId"].startswith("subnet-")
    assert {"orch-installation"} <= {value for name, value in run.items() if name.startswith("TagSpecification.1.Tag")}


@dataclass(frozen=True)
class Case:
    """What is so, what is asked, and what must be found: the check, its exit status, words of its remedy."""

    check: str
    status: int
    mend: str
    grants: Grants = GOOD
    quotas: dict[str, float] = field(default_factory=dict)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    ask: dict[str, Any] = field(default_factory=dict)
    with_it: tuple[str, ...] = ()  # checks that may find something for the same reason


def _more(code: str, value: int) -> str:
    request = "aws service-quotas request-service-quota-increase --service-code ec2"
    return f"{request} --quota-code {code} --desired-value {value} --region us-east-1"


def _subnet(zone: str, free: int = 4091) -> dict[str, Any]:
    return {"SubnetId": "subnet-0123abcd", "VpcId": "vpc-0", "AvailabilityZone": zone, "AvailableIpAddressCount": free}


CLOSED = {"RegionName": REGION, "OptInStatus": "not-opted-in"}
SUBNETS, OFFERINGS = ("ec2", "DescribeSubnets"), ("ec2", "DescribeInstanceTypeOfferings")
LAUNCH = ("ec2", "RunInstances")

WRONG = {
    "the region is not open": Case(
        "region", 4, "aws account enable-region --region-name us-east-1",
        answers={("ec2", "DescribeRegions"): saying(Regions=[CLOSED])},
    ),
    "no such region": Case("region", 2, "take another: --region us-east-1", ask={"region": "us-east-11"}),
    "no such machine": Case("accelerators", 2, "use H100:8", ask={"accelerator": "H101:8"}),
    "a TPU": Case("accelerators", 2, "orch check gcp", ask={"accelerator": "v5litepod-8"}),
    "not sold so": Case(
        "request", 2, "orch blocks find p5e.48xlarge", ask={"accelerator": "p5e.48xlarge", "region": "us-east-2"},
        with_it=("quota",),
    ),
    "a way that cannot be": Case(
        "request", 2, "access: eip", ask={"access": "public"},
    ),
    "refused by EC2": Case(
        "request", 2, "", answers={LAUNCH: refusing("InvalidParameterCombination", "these do not go")},
    ),
    "no quota": Case(
        "quota", 5, _more(P, 384), quotas={P: 192}, answers={LAUNCH: refusing("VcpuLimitExceeded", "Request more")},
    ),
    "no quota of spot": Case("quota", 5, _more(P5_SPOT, 384), quotas={P5_SPOT: 0}, ask={"spot": True}),
    "no quota of Trn": Case("quota", 5, _more(TRN, 256), quotas={TRN: 128}, ask={"accelerator": "Trainium:16"}),
    "no quota of Trn spot": Case(
        "quota", 5, _more(TRN_SPOT, 256), ask={"accelerator": "Trainium:16", "spot": True},
    ),
    "no quota at all": Case(
        "quota", 5, _more(P, 192), quotas={P: 0, P5_SPOT: 0, P4_SPOT: 0, TRN: 0}, ask={"accelerator": "", "nodes": 1},
    ),
    "no Elastic IP is left": Case("addresses", 5, _more(ADDRESSES, 2), quotas={ADDRESSES: 1}),
    "not offered in the zone": Case(
        "zones", 5, f"take another: --zone {OTHER}", ask={"zone": ZONE},
        answers={OFFERINGS: saying(InstanceTypeOfferings=[{"InstanceType": "p5.48xlarge", "Location": OTHER}])},
    ),
    "not offered in the region": Case(
        "zones", 5, "--region us-east-2", ask={"accelerator": "trn2.48xlarge", "spot": True},
        with_it=("request", "quota"),
    ),
    "no default network": Case(
        "zones", 2, "aws ec2 create-default-vpc --region us-east-1", answers={SUBNETS: saying(Subnets=[])},
        with_it=("permissions",),
    ),
    "no subnet where the machine is": Case(
        "zones", 2, f"aws ec2 create-default-subnet --availability-zone {OTHER}", ask={"zone": OTHER},
        answers={SUBNETS: saying(Subnets=[_subnet(ZONE)])}, with_it=("permissions",),
    ),
    "the subnet is elsewhere": Case(
        "zones", 2, f"name one in {OTHER}: aws.subnets", ask={"zone": OTHER, "subnets": ("subnet-0123abcd",)},
        answers={SUBNETS: saying(Subnets=[_subnet(ZONE)])}, with_it=("permissions",),
    ),
    "no such subnet": Case(
        "zones", 2, "aws ec2 describe-subnets --region us-east-1", ask={"subnets": ("subnet-0123abcd",)},
        with_it=("permissions",),
    ),
    "the subnet is full": Case(
        "zones", 5, "name a larger subnet", answers={SUBNETS: saying(Subnets=[_subnet(ZONE, 1)])},
        with_it=("permissions",),
    ),
    "no such bucket": Case(
        "bucket", 3, "aws s3 mb s3://none --region us-east-1", ask={**ALL, "bucket": "s3://none"},
    ),
    "somebody else's bucket": Case(
        "bucket", 10, "--print-policy user --bucket s3://runs/exp", without("s3:ListBucket"), ask=ALL,
        with_it=("hosts",),
    ),
    "a bucket that cannot be read": Case(
        "bucket", 10, "aws iam attach-user-policy", without("s3:GetObject"), ask=ALL, with_it=("hosts",),
    ),
    "a bucket to read only": Case(
        "bucket", 10, "aws iam create-policy", without("s3:PutObject"), ask=ALL, with_it=("hosts",),
    ),
    "no bucket": Case("bucket", 2, "", ask={"bucket": "runs"}),
    "no such instance profile": Case(
        "hosts", 3, "orch check aws --bucket s3://runs/exp --instance-profile orch-host-2 --fix",
        ask={**ALL, "instance_profile": "orch-host-2"},
        answers={LAUNCH: refusing("InvalidParameterValue", "Value (orch-host-2) … Invalid IAM Instance Profile name")},
    ),
    "no instance profile is named": Case(
        "hosts", 4, "orch check aws --bucket s3://runs/exp --fix",
        ask={"bucket": "s3://runs/exp"},
    ),
    "an instance profile without a role": Case(
        "hosts", 4, "orch check aws --bucket s3://runs/exp --instance-profile orch-host --fix",
        replace(GOOD, profiles={"orch-host": ""}), ask=ALL,
    ),
    "no key can be made": Case("ssh", 2, "ORCH_HOME", ask={"state": Path("/proc/1/state")}),
    "no such reservation": Case("reservation", 2, "orch blocks list", ask={"reservation": "cr-0123456789abcdef1"}),
    "a reservation of others": Case(
        "reservation", 2, "accelerators: p5.48xlarge", ask={"reservation": RESERVED.name, "accelerator": "Trainium:16"},
    ),
    "a reservation that is too small": Case(
        "reservation", 2, "take fewer nodes", ask={"reservation": RESERVED.name, "nodes": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_found_and_mended_by_one_line(case: str, account: Account) -> None:
    one = WRONG[case]
    account.grant(one.grants)
    account.quotas |= one.quotas
    account.answers |= one.answers
    if one.grants.profiles != GOOD.profiles:
        profile = {"InstanceProfileName": "orch-host", "Roles": []}
        account.answers["iam", "GetInstanceProfile"] = saying_iam(InstanceProfile=profile)
    found = account.ask(**one.ask)
    said = found[one.check]
    assert (said.verdict, said.status) == (Verdict.FIX, one.status), found
    assert one.mend in said.fix and said.fix and "\n" not in said.fix, said
    assert pasteable(said) or not said.fix.startswith(("aws ", "orch "))
    assert set(wrong(found)) - {one.check} <= set(one.with_it), wrong(found)  # it is not told of another thing


DENIED = refusing("AccessDenied", "User: x is not authorized to perform: iam:GetInstanceProfile on resource: y", 403)

UNKNOWN = {
    "quota may not be read": Case(
        "quota", 4, "ask the owner of account 123456789012", without("servicequotas:GetServiceQuota"),
        with_it=("addresses", "permissions"),
    ),
    "a quota that AWS does not tell": Case(
        "quota", 5, "Service Quotas",
        answers={("servicequotas", "GetServiceQuota"): refusing("NoSuchResourceException")},
        with_it=("addresses",),
    ),
    "the bucket is not of S3": Case("bucket", 1, "orch storage ls", ask={"bucket": "gs://runs"}),
    "rights cannot be weighed": Case(
        "bucket", 4, "--print-policy user", without(SIMULATION), ask=ALL, with_it=("permissions", "hosts"),
    ),
    "rights of the hosts cannot be weighed": Case(
        "hosts", 1, f"for {SIMULATION}", without(SIMULATION), ask=ALL, with_it=("permissions", "bucket"),
    ),
    "permissions cannot be weighed": Case("permissions", 4, "aws iam attach-user-policy", without(SIMULATION)),
    "nobody may be told of the profile": Case(
        "hosts", 1, "iam:GetInstanceProfile", answers={("iam", "GetInstanceProfile"): DENIED}, ask=ALL,
        with_it=("permissions",),
    ),
    "no network to try it in": Case(
        "permissions", 4, "fix the findings on zones", answers={SUBNETS: saying(Subnets=[])}, with_it=("zones",),
    ),
    "regions may not be read": Case(
        "region", 4, "owner of account", without("ec2:DescribeRegions"), with_it=("permissions",),
    ),
    "our table differs": Case(
        "machine", 1, "pip install --upgrade",
        answers={("ec2", "DescribeInstanceTypes"): saying(InstanceTypes=[{"InstanceType": "p5.48xlarge"}])},
    ),
    "no answer": Case(
        "leftovers", 1, "run the same", with_it=("permissions",),
        answers={("ec2", "DescribeSecurityGroups"): refusing("InternalError", "x", 500)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_found_out_is_no_fault(case: str, account: Account) -> None:
    one = UNKNOWN[case]
    account.grant(one.grants)
    account.answers |= one.answers
    found = account.ask(**one.ask)
    said = found[one.check]
    assert (said.verdict, said.status) == (Verdict.UNKNOWN, one.status), found
    assert one.mend in said.fix and "\n" not in said.fix, said
    assert set(wrong(found)) - {one.check} <= set(one.with_it), wrong(found)


def test_what_the_role_of_the_hosts_may_do(account: Account) -> None:
    account.answers["iam", "SimulatePrincipalPolicy"] = roles(
        {"orch-host": document(host_statements("runs", "exp"))}, account.guard
    )
    assert account.ask(**ALL)["hosts"].words.endswith("which may use s3://runs/exp")
    other = account.ask(**{**ALL, "bucket": "s3://runs/other"})["hosts"]
    assert (other.verdict, other.status) == (Verdict.FIX, 10)
    assert "missing s3:AbortMultipartUpload, s3:DeleteObject, s3:GetObject, s3:ListBucket, s3:PutObject" in other.words
    assert other.fix == "orch check aws --bucket s3://runs/other --instance-profile orch-host --fix"
    sessions = account.ask(**ALL, access="ssm")["hosts"]
    assert sessions.fix.endswith("--fix") and sessions.repair is not None
    (attach,) = [one for one in sessions.repair.plan() if one.method == "AttachRolePolicy"]
    assert attach.body["PolicyArn"] == "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    nobody = account.ask(access="ssm")["hosts"]
    assert "could not be reached by Session Manager" in nobody.words and "hosts.json" not in nobody.fix
    whole = json.loads(policy_text("hosts", "runs", ""))
    account.answers["iam", "SimulatePrincipalPolicy"] = roles({"orch-host": whole}, account.guard)
    assert account.ask(**{**ALL, "bucket": "s3://runs"})["hosts"].verdict is Verdict.OK


def _tagged(kind: str, slice_name: str, installation: str = INSTALLATION) -> list[dict[str, Any]]:
    tags = {"orch-installation": installation, "orch-slice": slice_name}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]


@contextmanager
def running(account: Account) -> Generator[None]:
    """Two p4d.24xlarge of a slice called `one`."""
    ec2, ssm = account.client("ec2"), account.client("ssm")
    here = [{"Name": "availability-zone", "Values": [ZONE]}]
    run = ec2.run_instances(
        ImageId=ssm.get_parameter(Name=GPU)["Parameter"]["Value"],
        InstanceType="p4d.24xlarge",
        MinCount=2,
        MaxCount=2,
        SubnetId=ec2.describe_subnets(Filters=here)["Subnets"][0]["SubnetId"],
        TagSpecifications=[one for kind in ("instance", "volume", "network-interface") for one in _tagged(kind, "one")],
    )
    account.clock.advance(600)
    try:
        yield
    finally:
        ec2.terminate_instances(InstanceIds=[one["InstanceId"] for one in run["Instances"]])
        account.clock.advance(7200)


def test_machines_that_run_count(account: Account) -> None:
    with running(account):
        assert "us-east-1: 768 of 'Running On-Demand P instances', 192 in use" in account.ask()["quota"].words
        assert "64 of 'All P4, P3 and P2 Spot Instance Requests', 0 in use" in account.ask("")["quota L-7212CCBC"].words
        account.quotas[P] = 575
        assert account.ask()["quota"].fix == _more(P, 576)
    assert account.ask()["quota"].words.endswith("us-east-1: 575 of 'Running On-Demand P instances', 0 in use")


def test_what_a_slice_with_machines_has_is_not_left(account: Account, tmp_path: Path) -> None:
    ec2 = account.client("ec2")
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=_tagged("elastic-ip", "one"))
    with running(account):
        assert account.ask(state=tmp_path)["leftovers"].verdict is Verdict.OK
    assert account.ask(state=tmp_path)["leftovers"].verdict is Verdict.FIX
    ec2.release_address(AllocationId=address["AllocationId"])


def test_what_earlier_slices_have_left(account: Account, tmp_path: Path) -> None:
    ec2 = account.client("ec2")
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=_tagged("elastic-ip", "gone"))
    group = ec2.create_security_group(
        GroupName="orch-gone", Description="x", VpcId=vpc, TagSpecifications=_tagged("security-group", "gone")
    )
    ec2.create_placement_group(
        GroupName="orch-gone", Strategy="cluster", TagSpecifications=_tagged("placement-group", "gone")
    )
    try:
        found = account.ask(state=tmp_path)["leftovers"]
        assert (found.verdict, found.fix) == (Verdict.FIX, "orch reap")
        assert (
            f"Elastic IP {address['PublicIp']}, security group orch-gone, placement group orch-gone; no" in found.words
        )
        others = account.ask(state=tmp_path, installation="ba9876543210")["leftovers"]
        assert others.verdict is Verdict.OK
        (tmp_path / "aws").mkdir()
        (tmp_path / "aws" / "gone.json").write_text("{}")
        assert account.ask(state=tmp_path)["leftovers"].verdict is Verdict.OK  # it is on record
    finally:
        ec2.release_address(AllocationId=address["AllocationId"])
        ec2.delete_security_group(GroupId=group["GroupId"])
        ec2.delete_placement_group(GroupName="orch-gone")


def test_the_one_figure_of_ec2s_that_is_known_to_be_wrong(account: Account) -> None:
    said = {
        "InstanceType": "trn2.48xlarge", "VCpuInfo": {"DefaultVCpus": 192},
        "NetworkInfo": {"MaximumNetworkCards": 16, "EfaInfo": {"MaximumEfaInterfaces": 16}},
        "NeuronInfo": {"NeuronDevices": [{"Count": 16, "MemoryInfo": {"SizeInMiB": 524288}}]},
    }  # fmt: skip
    account.answers["ec2", "DescribeInstanceTypes"] = saying(InstanceTypes=[said])
    found = account.ask("trn2.48xlarge", region="us-east-2", spot=True)["machine"]
    assert (found.verdict, "known to be wrong" in found.words) == (Verdict.OK, True)
    said["NeuronInfo"]["NeuronDevices"][0]["Count"] = 12
    found = account.ask("trn2.48xlarge", region="us-east-2", spot=True)["machine"]
    assert found.words == "orch's table has of trn2.48xlarge: accelerators 16, and EC2 says 12"


def test_a_machine_that_is_newer_than_our_table(account: Account) -> None:
    said = {"InstanceType": "p9.48xlarge", "VCpuInfo": {"DefaultVCpus": 400}}
    account.answers["ec2", "DescribeInstanceTypes"] = saying(InstanceTypes=[said])
    account.answers[OFFERINGS] = saying(InstanceTypeOfferings=[{"InstanceType": "p9.48xlarge", "Location": ZONE}])
    account.answers["ec2", "RunInstances"] = refusing("DryRunOperation", "would have succeeded", 412)
    found = account.ask("p9.48xlarge", nodes=2)
    assert found["machine"].words.startswith("p9.48xlarge is not in orch's table; EC2 says: 400 vCPUs")
    assert found["quota"].fix == _more(P, 800)


def test_a_capacity_block_tells_its_time(account: Account) -> None:
    ec2 = account.client("ec2")
    wanted = {"InstanceType": "p5.48xlarge", "InstanceCount": 2, "CapacityDurationHours": 24}
    offered = ec2.describe_capacity_block_offerings(**wanted)["CapacityBlockOfferings"][0]
    made = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offered["CapacityBlockOfferingId"],
        InstancePlatform="Linux/UNIX",
        TagSpecifications=_tagged("capacity-reservation", "none", "ba9876543210"),
    )["CapacityReservation"]
    early = account.ask(reservation=made["CapacityReservationId"])["reservation"]
    assert early.verdict is Verdict.OK and "is payment-pending" in early.words, "a launch waits for it"
    account.clock.advance(61)  # it is paid for
    found = account.ask(reservation=made["CapacityReservationId"])
    span = f"{offered['StartDate']:%Y-%m-%d %H:%M} UTC to {offered['EndDate']:%Y-%m-%d %H:%M} UTC"
    assert found["reservation"].words.startswith(f"the capacity block {made['CapacityReservationId']} is ")
    assert found["reservation"].words.endswith(f": 2 p5.48xlarge in {made['AvailabilityZone']}, {span}")
    assert wrong(found) == {}


def test_a_bucket_elsewhere(account: Account) -> None:
    account.buckets.create_bucket("far")
    account.buckets.regions["far"] = "eu-west-1"
    found = account.ask(bucket="s3://far", instance_profile="orch-host")["bucket"]
    assert found.verdict is Verdict.OK
    assert "in eu-west-1: machines in us-east-1 pay to read it (" in found.words


def test_the_way_through_session_manager_takes_two_programs(
    account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words: list[str] = []
    for program in ("", "aws", "session-manager-plugin"):
        if program:
            (tmp_path / program).write_text("#!/bin/sh\n")
            (tmp_path / program).chmod(0o755)
        found = account.ask(access="ssm", instance_profile="orch-host")["ssh"]
        words.append(f"{found.verdict} {found.fix}")
    assert words[0] == "fix pip install awscli"
    assert words[1].startswith("fix install it: https://docs.aws.amazon.com/")
    assert words[2] == "ok "


def test_commands_name_the_profile_that_is_used(account: Account) -> None:
    account.grant(without("ec2:TerminateInstances"))
    account.quotas |= {P: 0, ADDRESSES: 0}
    account.answers[SUBNETS] = saying(Subnets=[])
    found = account.ask(bucket="s3://none", access="ssm", profile="work")
    found |= account.ask(bucket="s3://none", profile="work", access="eip")
    commands = [one for fix in found.values() for one in pasteable(fix) if one[0] == "aws"]
    assert len(commands) == 2 + 1 + 1 + 1 + 1, commands  # permissions, zones, quota, addresses, bucket
    assert {tuple(one[-2:]) for one in commands} == {("--profile", "work")}
    assert found["hosts"].fix == "orch check aws --bucket s3://none --profile work --fix"
