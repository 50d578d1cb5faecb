"""`orch check aws` at the command line: credentials, places, texts and files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_check_support import GOOD, REGION, Account, refusing, without

from orch_fronts.aws.calls import AwsCall
from orch_fronts.aws.grants import USER, owner
from orch_fronts.aws.guard import Guard
from orch_fronts.aws.iam import IamFront, Role
from orchestrator.paths import load_paths
from orchestrator.providers.aws.check_policy import policy_files, policy_text
from orchestrator.store.store import Store

DOCS = Path(__file__).parents[2] / "docs" / "iam"


def test_without_credentials(orch: Any) -> None:
    said = orch("check", "aws", "-o", "json")
    assert (said.status, list(said.findings())) == (4, ["credentials"])
    assert said.findings()["credentials"]["fix"].startswith("aws configure")


def test_whoever_does_not_use_aws_has_nothing_to_mend(orch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # google-auth would look for a machine of Google's
    said = orch("check")
    assert said.status == 0, said
    unused = [line.split()[:3] for line in said.out.splitlines() if line.startswith("-")]
    assert unused == [["-", "gcp", "credentials"], ["-", "aws", "credentials"]]


def test_a_profile_that_there_is_not(orch: Any) -> None:
    said = orch("check", "aws", "--profile", "nobody", "-o", "json")
    assert said.status == 2
    found = said.findings()["credentials"]
    assert ("nobody" in found["words"], found["fix"]) == (True, "aws configure list-profiles")


@pytest.mark.parametrize(
    ("code", "status", "mend"),
    [
        ("ExpiredToken", 4, "aws sso login   then: aws sts get-caller-identity"),
        (
            "RequestExpired",
            4,
            "set the clock of this computer: timedatectl set-ntp true   then run the same command again",
        ),
        ("InvalidClientTokenId", 4, "aws configure   then: aws sts get-caller-identity"),
        ("InternalFailure", 0, "run the same command again"),
    ],
)
def test_credentials_that_aws_does_not_take(code: str, status: int, mend: str, account: Account, led: Any) -> None:
    account.answers["sts", "GetCallerIdentity"] = refusing(code, "no", 400 if status else 500)
    said = led("check", "aws", "-o", "json")
    assert (said.status, list(said.findings())) == (status, ["credentials"])
    assert said.findings()["credentials"]["fix"] == mend


def test_the_text_has_one_line_each_and_its_remedy_below(account: Account, led: Any) -> None:
    account.grant(without("ec2:TerminateInstances"))
    said = led("check", "aws", "--region", REGION, "--accelerators", "p4d.24xlarge")
    lines = said.out.splitlines()
    assert lines[0].split()[:3] == ["ok", "aws", "credentials"]
    (at,) = [index for index, line in enumerate(lines) if line.startswith("FIX")]
    assert lines[at].split()[:3] == ["FIX", "aws", "permissions"]
    assert lines[at + 1].strip().startswith("next: orch check aws --print-policy user > orch-policy.json && aws iam")
    assert said.err.splitlines()[-2:] == ["1 problem", "not checked; add: --bucket s3://NAME"]
    assert said.status == 4


def test_libraries_write_nothing_beside_it(account: Account, led: Any) -> None:
    account.grant(without("servicequotas:GetServiceQuota"))
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "check", "aws", "--accelerators", "H100:8", "--use-spot"],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 4
    assert [line for line in done.stderr.splitlines() if not line.startswith("checking aws")] == [
        "1 problem, 2 checks inconclusive",
        "not checked; add: --bucket s3://NAME, --region REGION",
    ]


def test_what_the_configuration_says_is_asked_about(
    account: Account, led: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_AWS_INSTANCE_PROFILE", "other")
    monkeypatch.setenv("ORCH_AWS_ACCESS", "ssm")
    monkeypatch.setenv("ORCH_AWS_SUBNETS", "subnet-0123abcd")
    found = led("check", "aws", "--accelerators", "A100:8", "-o", "json").findings()
    assert found["hosts"]["words"] == "there is no instance profile other"
    assert found["zones"]["words"] == "us-east-1 has no subnet subnet-0123abcd"
    assert "access ssm" in found["ssh"]["words"]
    found = led("check", "aws", "--instance-profile", "orch-host", "-o", "json").findings()
    assert "orch-host" in found["hosts"]["words"]


MADE = ("CreateRole", "PutRolePolicy", "AttachRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile")
FIX = ("check", "aws", "--bucket", "s3://runs/exp", "--fix")


def changes(account: Account) -> list[tuple[str, dict[str, str]]]:
    """What was sent to IAM, without the two fields of its protocol."""
    sent = [call for call in account.server.requests if call.operation in MADE]
    kept = [{k: str(v) for k, v in call.params.items() if k not in ("Action", "Version")} for call in sent]
    account.server.requests.clear()
    return [(call.operation, params) for call, params in zip(sent, kept, strict=True)]


def shown(text: str) -> list[tuple[str, dict[str, str]]]:
    """The `aws` commands of a preview as operations and parameters."""
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith("  aws iam ")]
    return [
        (
            pascal(words[2]),
            {pascal(key.removeprefix("--")): value for key, value in pairs(words[3:]) if key != "--region"},
        )
        for words in lines
    ]


def pascal(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))


def pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


@pytest.fixture
def roles(account: Account, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Role]:
    """The roles of an account that begins without any, for its owner."""
    account.grant(replace(owner(), profiles={}))
    front = IamFront(account.guard)
    monkeypatch.setitem(account.server._fronts, "iam", front)
    return front._roles


@pytest.mark.usefixtures("roles")
def test_fix_shows_every_request_and_sends_nothing_without_consent(account: Account, led: Any) -> None:
    said = led(*FIX)
    assert said.status == 2 and "nothing is created without consent" in said.err and "add --yes" in said.err
    assert [name for name, _ in shown(said.out)] == [
        "CreateRole", "PutRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile",
    ]  # fmt: skip
    assert "  orch config set aws.instance_profile orch-host" in said.out
    assert changes(account) == []


def test_fix_sends_what_it_shows_and_only_what_is_missing(
    account: Account, led: Any, roles: Mapping[str, Role]
) -> None:
    said = led(*FIX, "--yes")
    assert said.status == 0, said
    sent = changes(account)
    assert sent == shown(said.out) and len(sent) == 4
    policy = json.loads(sent[1][1]["PolicyDocument"])
    assert policy == json.loads(policy_text("hosts", "runs", "exp"))
    again = led(*FIX, "--yes")
    assert (again.status, changes(account)) == (0, []) and "nothing that orch can fix itself" in again.err
    assert led("config", "unset", "aws.instance_profile").status == 0
    other = led("check", "aws", "--bucket", "s3://runs/other", "--fix", "--yes")
    assert (other.status, [name for name, _ in changes(account)]) == (0, ["PutRolePolicy"])
    assert sorted(roles["orch-host"].policies) == ["orch-runs+exp", "orch-runs+other"], "the first one stays"


@pytest.mark.usefixtures("roles")
def test_fix_without_permission_says_which(account: Account, led: Any) -> None:
    account.grant(replace(GOOD, profiles={}))
    said = led(*FIX, "--yes")
    assert said.status == 4 and "iam:GetRole" in said.err, said
    assert changes(account) == []


def test_what_this_installation_has_left_is_found(account: Account, led: Any) -> None:
    assert "this installation has made nothing yet" in led("check", "aws").out
    load_paths().database.parent.mkdir(parents=True)
    with Store(load_paths().database) as store:
        tags = [{"Key": "orch-installation", "Value": store.installation}, {"Key": "orch-slice", "Value": "gone"}]
    ec2 = account.client("ec2")
    made = [{"ResourceType": "elastic-ip", "Tags": tags}]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=made)
    said = led("check", "aws", "-o", "json")
    ec2.release_address(AllocationId=address["AllocationId"])
    assert said.findings()["leftovers"]["words"].startswith(f"us-east-1: Elastic IP {address['PublicIp']}; no slice")


def test_places(account: Account, led: Any) -> None:
    def region(*words: str) -> str:
        found: dict[str, Any] = led("check", "-o", "json", *words).findings()["region"]
        return str(found["words"])

    assert region("--zone", "us-east-2a") == "us-east-2"  # a zone of AWS's: nobody else is asked
    assert region("--infra", "aws/us-east-2") == "us-east-2"
    assert region("aws", "--accelerators", "trn2.48xlarge") == "us-east-2; --region checks another"


def test_questions_to_another_cloud_are_left_to_it(account: Account, led: Any) -> None:
    said = led("check", "--bucket", "gs://runs", "--accelerators", "v5litepod-8", "-o", "json")
    (found,) = [one["findings"] for one in json.loads(said.out)["providers"] if one["provider"] == "aws"]
    assert {one["verdict"] for one in found} == {"ok"} and "bucket" not in {one["check"] for one in found}


@pytest.mark.parametrize(
    "words",
    [
        ("hosts",),
        ("aws", "--infra", "local"),
        ("aws", "--infra", "aws/us-east-1/us-east-1a", "--zone", "us-east-1b"),
        ("aws", "--region", "us-east-2", "--zone", "us-east-1b"),
        ("aws", "--region", "us-west4"),
        ("aws", "--zone", "us-west4-a"),
        ("aws", "--print-policy", "hosts", "--bucket", "gs://runs"),
        ("aws", "--print-policy", "hosts", "--bucket", "runs"),
    ],
)
def test_questions_that_cannot_be(words: tuple[str, ...], orch: Any) -> None:
    said = orch("check", *words)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("error[usage]") and len(said.err.splitlines()) <= 5


def test_policies_are_printed_as_they_are_documented(orch: Any) -> None:
    names = {
        "user": "aws-policy", "hosts": "aws-host-policy", "trust": "aws-host-trust", "server": "aws-server-policy",
        "project-trust": "aws-project-trust",
    }  # fmt: skip
    for whose, name in names.items():
        said = orch("check", "aws", "--print-policy", whose)
        assert (said.status, said.out) == (0, (DOCS / f"{name}.json").read_text())
        assert said.out == policy_files()[f"{name}.json"]


def test_policies_of_a_bucket_name_it(orch: Any) -> None:
    user = orch("check", "aws", "--print-policy", "user", "--bucket", "s3://runs/exp").out
    assert user == policy_text("user", "runs") and "BUCKET" not in user
    hosts = orch("check", "aws", "--print-policy", "hosts", "--bucket", "s3://runs/exp").out
    assert "arn:aws:s3:::runs/exp/*" in hosts and "BUCKET" not in hosts and "PREFIX" not in hosts
    whole = orch("check", "aws", "--print-policy", "hosts", "--bucket", "s3://runs").out
    assert "arn:aws:s3:::runs/*" in whole and "Condition" not in whole
    for text in (user, hosts, whole):
        Guard(replace(GOOD, policies=(json.loads(text),)))  # what cannot be weighed is refused
    assert len(json.dumps(json.loads(user), separators=(",", ":"))) < 6144  # of a managed policy (IAM quotas, 2026)


PROJECT_ROLE = "arn:aws:iam::111111111111:role/orch-project-vision"


@pytest.fixture
def project_role(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A role that trusts the caller with an external id; the caller may do nothing but assume such roles."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", account.server.url)
    account.server.roles.trusting[PROJECT_ROLE] = "for-vision"
    yield PROJECT_ROLE
    account.server.roles.trusting.clear()


def test_a_role_is_assumed_and_all_else_is_asked_as_it(
    orch: Any, account: Account, project_role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.grant(replace(GOOD, policies=(*GOOD.policies, json.loads(policy_text("server")))))
    assert orch("config", "set", "aws.role_arn", project_role, "--project", "vision").status == 0
    assert orch("config", "set", "aws.external_id", "for-vision", "--project", "vision").status == 0
    listed = json.loads(orch("config", "list", "--project", "vision", "-o", "json").out)["keys"]
    assert {one["key"] for one in listed if one["where"] == "project vision"} == {"aws.role_arn", "aws.external_id"}
    monkeypatch.setenv("ORCH_PROJECT", "vision")
    found = orch("check", "aws", "-o", "json").findings()
    assert found["role"]["verdict"] == "ok", found
    assert found["region"]["verdict"] == "ok", found
    assert "arn:aws:sts::111111111111:assumed-role/orch-project-vision/orch" in found["role"]["words"]
    own = {call.operation for call in account.server.requests if account.server.roles.find(_signature(call)) is None}
    assert own == {"GetCallerIdentity", "AssumeRole"}


@pytest.mark.parametrize(
    ("external_id", "server", "missing"),
    [
        ("wrong", True, f'"Principal": {{"AWS": "{USER}"}}'),
        ("for-vision", False, f'add to a policy of {USER}: {{"Effect": "Allow", "Action": "sts:AssumeRole"'),
    ],
)
def test_a_role_that_cannot_be_assumed_says_which_line_is_missing(
    orch: Any,
    account: Account,
    project_role: str,
    external_id: str,
    server: bool,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = (json.loads(policy_text("server")),) if server else ()
    account.grant(replace(GOOD, policies=(*GOOD.policies, *more)))
    monkeypatch.setenv("ORCH_AWS_EXTERNAL_ID", external_id)
    said = orch("check", "aws", "--role-arn", project_role, "-o", "json")
    assert said.status == 4
    found = said.findings()
    assert project_role in found["role"]["words"]
    assert missing in found["role"]["fix"]
    assert "region" not in found


def _signature(call: AwsCall) -> str:
    return call.headers.get("authorization", "")
